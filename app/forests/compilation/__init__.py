"""Compilation of loops by Numba, and where compiled code is kept."""
