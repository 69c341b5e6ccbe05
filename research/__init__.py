"""Measures how accurate forests are, ours, those of the papers and those of others; not
part of the tests.
"""
