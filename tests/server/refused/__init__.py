"""Requests that the API must refuse, one file per kind."""
