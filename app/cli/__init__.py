"""The ``grovekeeper`` command: starts the processes of an installation, and talks to one over HTTP."""
