"""Maxtree."""
