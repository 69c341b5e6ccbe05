"""An export is verified by a shell, ``openssl`` and a few lines of Python, which agree
with the verifier.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_FOLDER = Path(__file__).with_name("by_hand")
_PAGE = (_FOLDER / "commands.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _steps() -> list[tuple[str, str]]:
    """The commands of the file, each with its output; ``> `` continues a command."""
    results: list[tuple[str, str]] = []
    for line in "".join(_FENCE.findall(_PAGE)).splitlines():
        if line.startswith("$ "):
            results.append((line[2:], ""))
        elif line.startswith("> "):
            command, output = results.pop()
            results.append((f"{command}\n{line[2:]}", output))
        else:
            command, output = results.pop()
            results.append((command, f"{output}{line}\n"))
    return results


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the folder with the exports, so that commands may write files."""
    return Path(shutil.copytree(_FOLDER, tmp_path / "by_hand"))


def test_every_command_gives_the_output_that_the_file_shows(
    examples: Path, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    ours = tmp_path / "bin" / "python3"
    ours.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    ours.chmod(0o755)
    environ = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(_ROOT),
        "LC_ALL": "C",
    }
    steps = _steps()
    assert len(steps) > 25
    here = examples
    for command, output in steps:
        if command.startswith("cd "):
            here = (here / command[3:]).resolve(strict=True)
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=here,
            env=environ | {"PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == output, (command, done.stderr)
        assert done.stderr == "", command
