"""Serves the HTTP API: routes, middleware and error responses. Contains no business
rule.
"""
