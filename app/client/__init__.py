"""The HTTP client of the command line: httpx and plain JSON, nothing heavier."""
