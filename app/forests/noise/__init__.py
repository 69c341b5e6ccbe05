"""Exact random draws from a cryptographic generator: the samplers, and the object that mechanisms draw from."""
