"""Benchmarks: measurements of accuracy, time and size."""
