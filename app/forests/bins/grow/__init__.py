"""Releases of bins and of noisy counts on PRIVATE rows."""
