"""Trains differentially private forests and predicts with them. Depends on no database,
no HTTP and no ledger.
"""
