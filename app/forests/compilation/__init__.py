"""Compiles loops with Numba and chooses the folder of the compiled code."""
