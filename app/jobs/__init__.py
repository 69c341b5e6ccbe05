"""Queues jobs with leases in the database of the ledger, so that one transaction
changes both.
"""
