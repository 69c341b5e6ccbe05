"""Computes bins of numbers (public grid, private quantiles), and noisy counts with
their prices and releases.
"""
