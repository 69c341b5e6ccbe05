"""Draws exact random numbers from a cryptographic generator, through one interface for
all mechanisms.
"""
