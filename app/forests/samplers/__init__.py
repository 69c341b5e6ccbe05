"""Exact integer samplers over a stream of uniform 64-bit words. No floating-point number occurs here."""
