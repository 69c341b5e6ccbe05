"""Defines the request and response types of the HTTP API, one file per resource.
Contains no business rule.
"""
