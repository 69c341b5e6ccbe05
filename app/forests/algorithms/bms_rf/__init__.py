"""Bms rf."""
