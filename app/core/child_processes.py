"""Starts child processes of this program without addresses and keys in their environment."""

import os
from pathlib import Path

import app

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


def scrubbed_environment() -> dict[str, str]:
    """The environment of a child: the paths of Python and its caches, without addresses and keys."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {"PYTHONPATH": str(Path(app.__file__).parents[1]), "PYTHONSAFEPATH": "1"}
