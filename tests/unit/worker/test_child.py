"""What a child loads before its job begins: the loops of every algorithm on private rows, and of no other algorithm."""

import subprocess
import sys
from pathlib import Path

from app.forests import catalogue

_PROGRAM = """
import sys
from fractions import Fraction

import numpy as np

from app.worker.child import load_modules

def loaded():
    return {name for name in sys.modules if name.startswith("app.forests.kernels.compiled.")}

load_modules()
before = loaded()

from app.forests import catalogue, catalogue
from app.forests.forest_release import grow
from app.forests.noise.randomness import SystemRandomness
from tests.support.plans import request_for
from tests.support.schemas import schema_of
from tests.unit.forests.test_forest_release import SCHEMA, rows

for slug in sys.argv[1:]:
    accountant = catalogue.algorithm(slug).accountants[0]
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    plan = catalogue.plan(request_for(slug, {}, Fraction(3), 300, accountant=accountant, delta=delta), SCHEMA)
    few = rows(300)
    grow(plan, SCHEMA, few, SystemRandomness(), on_tree_done=lambda: None, unlabelled=few)
print(*sorted(before))
print(*sorted(loaded() - before))
"""


def test_a_job_on_private_rows_compiles_nothing_after_it_began() -> None:
    command = [sys.executable, "-c", _PROGRAM, *catalogue.BY_SLUG]
    ran = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    before, after = ran.stdout.split("\n")[:2]
    assert after == ""
    assert "node_row_loops" in before
