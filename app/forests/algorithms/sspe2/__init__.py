"""Sspe2."""
