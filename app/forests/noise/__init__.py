"""Exact random draws from a cryptographic generator: the samplers, and the interface that mechanisms use."""
