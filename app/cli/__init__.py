"""Implements the ``grovekeeper`` command, which starts the processes of an installation
and calls its HTTP API.
"""
