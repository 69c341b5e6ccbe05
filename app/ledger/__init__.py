"""Accounts, reservations and the append-only entries. It does not know what a tree is."""
