"""Artifacts and plans that were stored before an algorithm gained a parameter are read as what they did."""

import json
from fractions import Fraction

import numpy as np
import pytest
from safetensors import numpy as tensors

from app.forests import artifacts, catalogue, planning, predict
from app.forests.contract.plan import Plan
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.data.schema import Schema
from app.forests.grow import grow
from app.forests.noise.randomness import SystemRandomness
from app.forests.planning import PlanInvalid, PlanRequest, plan

SCHEMA = Schema.from_json(
    {
        "features": [{"name": "height", "type": "numeric", "lower": 0, "upper": 1}],
        "label": {"name": "kind", "classes": ["a", "b"]},
    }
)
FIRST_PARAMETERS = {
    "mrf": {
        "n_estimators", "max_depth", "n_bins", "assignment", "structure_share", "selection", "utility", "leaf", "se",
    },
    "rdt-mv": {"n_estimators", "max_depth", "n_bins", "assignment"},
    "rpf": {"n_estimators", "max_depth", "structure_share", "bins_share"},
}  # fmt: skip
"""Those of the first release: what every stored plan has."""

FIRST_RULES = {"rpf": {"splits": "node", "at_once": 1, "pairs": "none", "calibration": "none"}}
"""What parameters that came later are asked to be, so that an algorithm does what it first did."""


def first_plan(slug: str) -> Plan:
    return plan(PlanRequest(slug, FIRST_RULES.get(slug, {}), Fraction(1), 1_000), SCHEMA)


def as_first_stored(made: Plan) -> dict:
    stored = made.to_json()
    first = FIRST_PARAMETERS[made.algorithm]
    return {**stored, "parameters": {name: made.parameters[name] for name in first}}


@pytest.mark.parametrize("slug", sorted(FIRST_PARAMETERS))
def test_plan_of_the_first_release_is_read_as_what_it_did(slug: str) -> None:
    made = first_plan(slug)

    assert planning.read(as_first_stored(made)) == made


@pytest.mark.parametrize("slug", sorted(FIRST_PARAMETERS))
def test_parameter_of_the_first_release_is_never_missing(slug: str) -> None:
    added = {own.name for own in catalogue.mechanism(slug).parameters if own.added}
    stored = as_first_stored(first_plan(slug))

    assert not added & FIRST_PARAMETERS[slug]
    for name in FIRST_PARAMETERS[slug]:
        with pytest.raises(PlanInvalid):
            planning.read({**stored, "parameters": {n: v for n, v in stored["parameters"].items() if n != name}})


@pytest.mark.parametrize("slug", sorted(FIRST_PARAMETERS))
def test_artifact_of_the_first_release_predicts_as_it_did(slug: str) -> None:
    made = first_plan(slug)
    columns = SanitisedColumns((np.linspace(0, 1, 50),), 50)
    rows = SanitisedRows(columns, np.arange(50, dtype=np.int32) % 2, np.zeros((50, 16), dtype=np.uint8))
    forest = grow(made, SCHEMA, rows, SystemRandomness(), on_tree_done=lambda: None)
    metadata = {"format": artifacts.FORMAT, "schema": SCHEMA.to_json(), "plan": as_first_stored(made)}
    data = tensors.save(dict(forest.arrays), metadata={"grovekeeper": json.dumps(metadata)})
    artifact = artifacts.loads(data)

    assert np.array_equal(
        predict.probabilities(artifact.forest, artifact.schema, columns, read_out=None),
        predict.probabilities(forest, SCHEMA, columns, read_out=None),
    )
