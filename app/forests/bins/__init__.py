"""Bins."""
