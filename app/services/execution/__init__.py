"""Charges, runs and ends jobs of every kind."""
