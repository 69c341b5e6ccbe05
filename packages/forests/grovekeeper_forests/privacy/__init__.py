"""Computes privacy losses of events and their composition, without I/O, clock,
randomness or floats.
"""
