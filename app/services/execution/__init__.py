"""Charges, runs and settles jobs of every kind."""
