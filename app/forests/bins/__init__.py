"""Bins of numbers: the public grid, private quantiles, and noisy counts with their prices."""
