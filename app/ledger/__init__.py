"""Accounts, reservations and the append-only entries, independent of forests."""
