"""Computes bins of numeric features (public grid, private quantiles), and noisy counts with their prices."""
