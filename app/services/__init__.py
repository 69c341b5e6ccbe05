"""One use case per file, one transaction each. Here ledger, jobs, datasets and forests meet.

Every service takes the :class:`~app.services.installation.Installation` and the principal first. It commits before it
returns, so an answer never says what a failed commit took back.
"""
