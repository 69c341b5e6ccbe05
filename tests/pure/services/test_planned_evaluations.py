"""Whether a stored plan of an evaluation of numbers is what planning makes of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from app.datasets.catalog import Dataset, DatasetRow
from app.jobs.tables import JobPart
from app.registry.tables import ReleaseRow
from app.services.releases.contract import Earlier, StoredPlan
from app.services.releases.evaluations import EvaluationKind, _was_trained_on
from app.services.spending.asked import AskedDataset, AskedPart
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_forests.releases.choice.price import plan_best
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation.error_price import (
    error_scale,
    plan_errors,
)

DECLARED: dict[str, Any] = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 99}],
    "label": {"name": "days", "type": "number", "lower": 0, "upper": 60},
}
TERMS = Terms(Fraction(1))


def stored(
    n_models: int,
    declared: dict[str, Any] = DECLARED,
) -> dict[str, Any]:
    """The work of a job that evaluates one model, or chooses the best of several."""
    schema = Schema.from_json(declared)
    scale = error_scale(schema.label, 20.0, 5.0)
    facts = public_facts(TERMS, None, schema)
    if n_models == 1:
        plan = plan_errors(["mae", "r2"], facts, scale, score_bins=32)
    else:
        plan = plan_best(n_models, facts, winner_accuracy=True, scale=scale)
    models = [{"id": f"md_{n}", "digest": "d"} for n in range(n_models)]
    work = {
        "plan": plan.to_json(),
        "models": models,
        "classes": [],
        "bounds": [0.0, 60.0],
        "warnings": [],
    }
    return dict(json.loads(json.dumps(work)))


def is_planned(
    work: dict[str, Any],
    terms: Terms = TERMS,
) -> bool:
    plan = StoredPlan("evaluation", None, work, DECLARED, [terms])
    try:
        return EvaluationKind().is_planned(plan)
    except (GrovekeeperError, KeyError):
        return False


def _with(
    part: str,
    **changes: Any,
) -> Callable[[dict[str, Any]], None]:
    def change(work: dict[str, Any]) -> None:
        inner = work["plan"] if part == "plan" else work["plan"][part]
        inner.update(changes)

    return change


def test_a_model_was_trained_on_the_rows_of_any_part_of_its_job() -> None:
    dataset = Dataset(DatasetRow(id="ds_b", partitions=[]))
    source = AskedDataset(dataset, ["ep_b"], "pure", None)
    asked = AskedPart(source, WHOLE, TERMS, 1, Schema.from_json(DECLARED), None)
    labelled, unlabelled = (
        JobPart(f"ds_{name}", name, {}, [f"ep_{name}"], {}, f"rs_{name}")
        for name in ("a", "b")
    )
    row = ReleaseRow(id="md_1")
    assert _was_trained_on(Earlier(row, [labelled, unlabelled]), asked)
    assert not _was_trained_on(Earlier(row, [labelled]), asked)
    # one of the uploads is enough
    of_two = replace(unlabelled, epochs=["ep_b", "ep_c"])
    assert _was_trained_on(Earlier(row, [of_two]), asked)
    other = replace(unlabelled, epochs=["ep_c"])
    assert not _was_trained_on(Earlier(row, [other]), asked)


TAMPERED: dict[str, Callable[[dict[str, Any]], object]] = {
    "more noise of one sum": lambda work: work["plan"]["event"]["parts"].append(
        work["plan"]["event"]["parts"][0]
    ),
    "an error beyond the range": _with("scale", largest=61.0),
    "a centre beyond the bounds": _with("scale", centre=61.0),
    "no scale": lambda work: work["plan"].pop("scale"),
    "another table": _with("plan", releases=["rows", "absolute"]),
    "a table of classes": _with("plan", releases=["accuracy"]),
    "other bounds": lambda work: work.update(bounds=[0.0, 61.0]),
    "no bounds": lambda work: work.pop("bounds"),
    "classes": lambda work: work.update(classes=["a", "b"]),
    "one model more": lambda work: work["models"].append({"id": "x", "digest": "d"}),
}


@pytest.mark.parametrize("n_models", [1, 3])
def test_a_plan_is_what_planning_makes_of_it(n_models: int) -> None:
    work = stored(n_models)
    assert is_planned(work)
    assert not is_planned(work, Terms(Fraction(2))), "another price"


@pytest.mark.parametrize("tampering", TAMPERED)
@pytest.mark.parametrize("n_models", [1, 3])
def test_another_plan_is_refused(n_models: int, tampering: str) -> None:
    work = stored(n_models)
    TAMPERED[tampering](work)
    assert not is_planned(work)
