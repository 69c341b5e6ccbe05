"""Trains differentially private forests and accounts for the privacy loss of every
release (Grovekeeper).

The packages read in one direction, top to bottom: ``cli``; ``api``, ``worker``,
``client``, ``verifier``; ``services``; ``ledger``, ``jobs``, ``datasets``,
``registry``, ``access``; ``db``, ``forests``; ``privacy``; ``wire``; ``core``. A
package imports only packages below it; import-linter checks this rule.
"""
