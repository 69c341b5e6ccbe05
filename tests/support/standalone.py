"""The verifier as an auditor runs it: a process of its own, without the service."""

import json
import subprocess
import sys
from typing import Any


def verified_alone(*arguments: object) -> dict[str, Any]:
    """What ``python -m app.verifier … --json`` says, with its exit code as ``exit``."""
    command = [sys.executable, "-m", "app.verifier", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return {"exit": done.returncode, **json.loads(done.stdout)}
