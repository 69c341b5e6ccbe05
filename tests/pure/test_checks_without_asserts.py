"""Checks of prices and releases are statements: they hold where Python runs with
``-O``, which removes asserts.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OPTIMISED = """
import json
import os
import sys
from fractions import Fraction
import numpy as np
from grovekeeper_forests.releases.choice import price as choice_price
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.evaluation import price as evaluation_price
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.bins import noisy_counts, releases
from grovekeeper_forests.releases.forest.price import PlanRequest
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.events import DiscreteLaplace, EventCostsMore, Part, Sequential, UnknownPrivacyEvent
from tests.privacy.universe import TWO_SPLITS

assert False, "removed by -O"
facts = public_facts(Terms(Fraction(1)), None, TWO_SPLITS, Adjacency.ADD_REMOVE_ONE)
costly = DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(2), 2)

def error_of(code):
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            exec(code, globals())
        except Exception as error:
            os.write(writer, type(error).__name__.encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    return os.read(reader, 1000).decode()

print(json.dumps({what: error_of(code) for what, code in json.load(sys.stdin).items()}))
"""
"""Runs each case in a fork, because each case changes the product's modules."""

REFUSED = {
    "a training plan": (
        """
honest = forest_price._event
forest_price._event = lambda *each: Sequential((Part(2, honest(*each)),))
forest_price.plan(PlanRequest("mrf", {}, Terms(Fraction(1))), TWO_SPLITS)
""",
        "EventCostsMore",
    ),
    "a profile": (
        "noisy_counts.priced = lambda *each, **more: costly\nprofile_price.plan({}, facts)",
        "EventCostsMore",
    ),
    "an evaluation": (
        """
noisy_counts.priced = lambda *each, **more: costly
evaluation_price.plan_tables(["accuracy"], facts, score_bins=2)
""",
        "EventCostsMore",
    ),
    "a choice": (
        "choice_price._selection = lambda *each: costly\nchoice_price.plan_best(2, facts, winner_accuracy=False)",
        "EventCostsMore",
    ),
    "a table that is larger than its event": (
        "releases.release_counts(np.zeros(3, np.int64), costly, SystemRandomness())",
        "UnknownPrivacyEvent",
    ),
    "more models than were priced": (
        """
plan = choice_price.plan_best(2, facts, winner_accuracy=False)
evaluation_draw.release(plan, [None] * 3, None, SystemRandomness())
""",
        "EvaluationInvalid",
    ),
}


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """The name of the error of each case in a process that runs with ``-O``; empty for
    a case that was not refused.
    """
    codes = json.dumps({what: code for what, (code, _) in REFUSED.items()})
    ended = subprocess.run(
        [sys.executable, "-O", "-c", OPTIMISED], cwd=ROOT, input=codes, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


@pytest.mark.parametrize("what", REFUSED)
def test_an_event_above_its_price_is_refused_where_python_removes_asserts(
    errors: dict[str, str], what: str
) -> None:
    assert errors[what] == REFUSED[what][1]
