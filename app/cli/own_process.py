"""Builds the command line and environment that start this program as another process, from any folder.

``python -m`` searches the working directory for modules first. A user's folder may contain another ``app``, so the
environment names this program's path and switches that rule off.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import app


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this program with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which ``app`` is this program."""
    above = str(Path(app.__file__).parents[1])
    path = [above, *filter(None, [environ.get("PYTHONPATH")])]
    return dict(environ) | {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}
