"""Evaluates models privately: requests, releases and shows evaluations."""
