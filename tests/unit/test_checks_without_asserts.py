"""Checks of prices and releases are statements: they hold where Python runs with ``-O``, which removes asserts."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

COMMON = """
from fractions import Fraction
import numpy as np
from app.forests import planning
from app.forests.bins import noisy_counts
from app.forests.bins.grow import count_noise
from app.forests.evaluation import grow, price as evaluation
from app.forests.profile import price as profile
from app.forests.planning import AccountRequest, PlanRequest, public_facts
from app.forests.noise.randomness import SystemRandomness
from app.privacy.adjacency import Adjacency
from app.privacy.events import DiscreteLaplace, EventCostsMore, Part, Sequential, UnknownPrivacyEvent
from tests.privacy.universe import TWO_SPLITS

assert False, "removed by -O"
request = AccountRequest(Fraction(1), None, "pure", None, Adjacency.ADD_REMOVE_ONE, 1)
facts = public_facts(request, TWO_SPLITS, Adjacency.ADD_REMOVE_ONE)
costly = DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(2), 2)
"""

REFUSED = {
    "a training plan": (
        """
honest = planning._event
planning._event = lambda *each: Sequential((Part(2, honest(*each)),))
planning.plan(PlanRequest("mrf", {}, Fraction(1), None), TWO_SPLITS)
""",
        "EventCostsMore",
    ),
    "a profile": (
        "noisy_counts.priced = lambda *each, **more: costly\nprofile.plan({}, facts)",
        "EventCostsMore",
    ),
    "an evaluation": (
        'noisy_counts.priced = lambda *each, **more: costly\nevaluation.plan_tables(["accuracy"], facts, score_bins=2)',
        "EventCostsMore",
    ),
    "a choice": (
        "evaluation._selection = lambda *each: costly\nevaluation.plan_best(2, facts, winner_accuracy=False)",
        "EventCostsMore",
    ),
    "a table that is larger than its event": (
        "count_noise.release(np.zeros(3, np.int64), costly, SystemRandomness())",
        "UnknownPrivacyEvent",
    ),
    "more models than were priced": (
        """
plan = evaluation.plan_best(2, facts, winner_accuracy=False)
grow.release(plan, [None] * 3, None, SystemRandomness())
""",
        "EvaluationInvalid",
    ),
}


def _optimised(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-O", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("what", REFUSED)
def test_an_event_above_its_price_is_refused_where_python_removes_asserts(what: str) -> None:
    code, error = REFUSED[what]
    ended = _optimised(COMMON + code)
    assert ended.returncode == 1, ended.stderr
    assert error in ended.stderr.splitlines()[-1]
