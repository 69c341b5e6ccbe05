"""Defines the HTTP routes, one file per resource: each reads a request, calls one
service and sends its answer.
"""
