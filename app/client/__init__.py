"""Calls the HTTP API for the command line, with httpx and plain JSON only."""
