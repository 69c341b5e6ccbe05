"""Manages accounts, reservations and the append-only entries of the ledger, independent
of forests.
"""
