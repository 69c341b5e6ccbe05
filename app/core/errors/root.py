"""Defines the root of all errors that callers distinguish."""


class GrovekeeperError(Exception):
    """Root of all errors of this module. ``str()`` is a sentence for people."""
