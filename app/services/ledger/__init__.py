"""Answers requests about ledgers: balances, history, caps, external charges, proofs and
heads.
"""
