"""Releases bins and noisy counts of PRIVATE rows."""
