"""Runs a Python module in a process that answers each line of its standard input with
one line.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@contextmanager
def line_process(*arguments: str, errors: Path) -> Iterator[Callable[[object], str]]:
    """Starts ``python -m`` with arguments; a call sends one value as JSON and returns
    the line of the answer.

    A call fails if the process, or a fork of it, wrote to standard error, which goes to
    ``errors``.
    """
    with (
        errors.open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        write, read = process.stdin, process.stdout

        def call(value: object) -> str:
            write.write(f"{json.dumps(value)}\n")
            write.flush()
            answer = read.readline()
            assert errors.read_text() == ""
            return answer

        yield call
