"""Requests that the API has to refuse, one file per kind."""
