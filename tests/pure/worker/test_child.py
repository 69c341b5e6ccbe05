"""What a child loads before its job begins: the loops of every algorithm on private
rows, and of no other algorithm.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from grovekeeper_forests import catalogue

_PROGRAM = """
import sys
from fractions import Fraction

import numpy as np

from app.worker.child import load_modules

def loaded():
    return {name for name in sys.modules if name.startswith("grovekeeper_forests.kernels.compiled.")}

load_modules()
before = loaded()

from grovekeeper_forests import catalogue
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.noise.randomness import SystemRandomness
from tests.support.plans import request_for
from tests.support.schemas import schema_of
from tests.pure.releases.test_forest_release import SCHEMA, rows

for slug in sys.argv[1:]:
    accountant = catalogue.algorithm(slug).accountants[0]
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    plan = forest_price.plan(request_for(slug, {}, Fraction(3), 300, accountant=accountant, delta=delta), SCHEMA)
    few = rows(300)
    grow(plan, SCHEMA, few, SystemRandomness(), on_tree_done=lambda: None, unlabelled=few)
print(*sorted(before))
print(*sorted(loaded() - before))
"""


def test_a_job_on_private_rows_compiles_nothing_after_it_began() -> None:
    command = [sys.executable, "-c", _PROGRAM, *catalogue.BY_SLUG]
    ran = subprocess.run(
        command,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    before, after = ran.stdout.split("\n")[:2]
    assert after == ""
    assert "node_row_loops" in before


_LOUD = """
import os
import sys
from types import SimpleNamespace

from app.services.jobs.task import JobTask
from app.services.drawing import perform as drawing
from app.worker import child

def from_text(text):
    os.write(2, b"the key of the rows")
    return SimpleNamespace(folder=".")

def perform(task, *, on_tree_done):
    os.write(2, b"a private cell")
    print("another private cell", file=sys.stderr, flush=True)
    on_tree_done()
    if sys.argv[1] == "fails":
        raise ValueError("a third private cell")

JobTask.from_text, drawing.perform = from_text, perform
child.main(os.getppid())
"""


@pytest.mark.parametrize(("end", "code"), [("succeeds", 0), ("fails", 1)])
def test_what_libraries_write_while_a_task_is_read_or_run_is_discarded(
    end: str, code: int
) -> None:
    """Standard error is that of the worker, whose log others read, until the child gets
    its task.
    """
    command = [sys.executable, "-c", _LOUD, end]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[3], stdin=pipe, stdout=pipe, stderr=pipe
    ) as ran:
        assert ran.stdin is not None
        assert ran.stdout is not None
        assert ran.stderr is not None
        ran.stdin.write(b"a task\n")
        ran.stdin.flush()
        # the input stays open: the child ends when it closes
        said, logged = ran.stdout.read(), ran.stderr.read()
    assert (ran.returncode, said, logged) == (code, b"...", b"")


_OTHER_ROWS = """
import os
from grovekeeper_forests.algorithms.bms_rf.price import StackedForest
from app.worker import child

StackedForest.reads_values = False
child.main(os.getppid())
"""


def test_a_child_whose_growth_takes_other_rows_than_the_service_reads_takes_no_job() -> (
    None
):
    """The job waits uncharged: growth on values would break on the codes that it gets."""
    command, root = [sys.executable, "-c", _OTHER_ROWS], Path(__file__).parents[3]
    ran = subprocess.run(
        command,
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "the code of jobs cannot be loaded" in ran.stderr
    assert "require_rows_as_stated" in ran.stderr
