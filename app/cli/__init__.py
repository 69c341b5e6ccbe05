"""The ``grovekeeper`` command: starts the processes of an installation and calls its HTTP API."""
