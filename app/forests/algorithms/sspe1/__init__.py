"""Sspe1."""
