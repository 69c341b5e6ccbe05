"""Names the paths of the dashboard, for code that runs at every request and loads no page."""

SIGN_IN = "/ui/sign-in"
WITHOUT_SESSION = frozenset({SIGN_IN, "/ui/style.css", "/ui/live.js"})
"""Paths of the dashboard that need no session. They show no data of the installation."""


def is_page(path: str) -> bool:
    """Whether a path belongs to the dashboard."""
    return path == "/" or path.startswith("/ui/")
