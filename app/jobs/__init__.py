"""Keeps what waits for another process in the database of the ledger, so that one
transaction changes both: jobs with leases, and events for webhooks.
"""
