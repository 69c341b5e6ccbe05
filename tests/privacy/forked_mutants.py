"""Runs mutants in forks of a process that has loaded the product, for the tests of
:mod:`tests.privacy.mutants`; a new interpreter would take most of their time.
"""

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

from app.worker.child import load_modules
from tests.privacy import mutants
from tests.privacy.mutations import mutants_of


def main() -> None:
    """Answers each request for a run with its exit status and what it printed."""
    load_modules()
    mutants_of("grovekeeper_forests.bins.releases")  # keeps all signatures
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as printed:
            pid = os.fork()
            if pid == 0:
                _become_run(json.loads(line), printed.fileno())
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            printed.seek(0)
            print(json.dumps([status, printed.read()]), flush=True)


def _become_run(request: dict[str, Any], printed: int) -> NoReturn:
    for standard in (1, 2):
        os.dup2(printed, standard)
    status = 1
    try:
        status = _run(Path(request.pop("folder")), **request)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run(folder: Path, *, module: str, part: str, test: str, **options: bool) -> int:
    """Runs the first mutants of a module, with a part of their keys, against one test
    and the reasons of a folder.
    """
    mutants.WITHOUT_EFFECT = folder / "reasons.json"  # type: ignore[misc]
    mutants.PROGRESS = folder / "mutants.jsonl"  # type: ignore[misc]
    mutants.NOTICED = folder / "noticed.xz"  # type: ignore[misc]
    mutants.TRACES = folder / "traces"  # type: ignore[misc]
    made = [mutant for mutant in mutants_of(module) if part in mutant.key]
    status = mutants.run(made[:4], [test], **options)
    mutants.keep()
    mutants.PROGRESS.unlink()
    return status


if __name__ == "__main__":
    main()
