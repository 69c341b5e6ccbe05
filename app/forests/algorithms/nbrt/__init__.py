"""Nbrt."""
