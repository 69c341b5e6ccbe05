"""Serves the dashboard: pages about budgets, jobs and models, rendered on the server.

A page calls the same services as the API and shows what they answer, so it has no rule
of its own.
"""
