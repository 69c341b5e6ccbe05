"""The dashboard: pages about budgets, jobs and models for people, rendered on the server.

A page calls the same services as the API and shows what they answer, so it has no rule of its own.
"""
