"""Charges, runs, shows, cancels and cleans up jobs of every kind."""
