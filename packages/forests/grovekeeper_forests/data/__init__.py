"""Defines the public schema, and sanitises and encodes rows by it."""
