"""Runs the verifier as an auditor does, as a process without the service."""

import json
import subprocess
import sys
from typing import Any


def verified_alone(*arguments: object) -> dict[str, Any]:
    """The output of ``python -m grovekeeper_verifier … --json``, with the exit code as
    ``exit``.
    """
    command = [
        sys.executable,
        "-m",
        "grovekeeper_verifier",
        *map(str, arguments),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return {"exit": done.returncode, **json.loads(done.stdout)}
