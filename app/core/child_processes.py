"""Starts child processes of this program without addresses and keys in their environment."""

import os
from pathlib import Path

import app
from app.core.memory import ONE_BLAS_THREAD

_INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "NUMBA_CACHE_DIR",
    "HOME",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "COVERAGE_PROCESS_START",
)


_OF_PROVIDERS = ("AWS_", "AZURE_", "GOOGLE_", "SSL_CERT_")


def provider_environment() -> dict[str, str]:
    """The variables with the credentials of an object store, for a process that reads one."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OF_PROVIDERS)}


def scrubbed_environment() -> dict[str, str]:
    """The environment of a child: the paths of Python and its caches, without addresses and keys."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, **ONE_BLAS_THREAD, "PYTHONPATH": str(Path(app.__file__).parents[1]), "PYTHONSAFEPATH": "1"}
