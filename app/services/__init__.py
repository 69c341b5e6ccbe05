"""Implements the use cases of the service, one file and one transaction each, over
ledger, jobs, datasets and forests.

Every service takes the :class:`~app.services.installation.Installation` and the
principal first. A service commits before it returns, so an answer never reports a
change whose commit failed.
"""
