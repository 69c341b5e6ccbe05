"""Defines errors, time, ids, exact amounts, limits, settings, logging and durable files
for all other packages.
"""
