"""Implements the training algorithms, one folder per algorithm or paper: price, growth
and read-out.
"""
