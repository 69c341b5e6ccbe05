"""Command line and environment for starting this program as another process, from any folder.

``python -m`` puts the working directory in front of every other place where modules are looked for. People who run this
program stand in folders of their own, and ``app`` is a common name there; so the path is given, and that rule is off.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import app


def command(module: str, *arguments: str) -> list[str]:
    """What starts one of this program's modules with this interpreter."""
    return [sys.executable, "-m", module, *arguments]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which ``app`` is this program."""
    above = str(Path(app.__file__).parents[1])
    path = [above, *filter(None, [environ.get("PYTHONPATH")])]
    return dict(environ) | {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}
