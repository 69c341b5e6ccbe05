"""Errors, time, ids, exact amounts, limits, settings, logging and durable files, for every other package."""
