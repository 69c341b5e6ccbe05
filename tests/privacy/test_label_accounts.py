"""T1 on accounts that protect labels: the exact loss over one label that changes, for mechanisms of every adjacency."""

from fractions import Fraction

import pytest

from app.forests.plan import Plan
from app.forests.planning import PlanRequest, plan
from app.forests.schema import Schema
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from tests.privacy.enumeration import TOLERANCE
from tests.privacy.universe import RECORDS, TWO_SPLITS, Laws, label_pairs, multisets

SEQUENTIAL = {"assignment": "sequential"}


def planned(slug: str, schema: Schema, epsilon: str = "1", **parameters: object) -> Plan:
    """A plan of production code for an account of labels."""
    wanted = {"n_estimators": 1, "max_depth": 1, **parameters}
    return plan(PlanRequest(slug, wanted, Fraction(epsilon), None, adjacency=Adjacency.LABEL), schema)


def claim(laws: Laws) -> float:
    return float(pure.loss(laws.plan.event, adjacency=Adjacency.LABEL))


@pytest.mark.parametrize("slug", ["mrf", "srt", "spe", "rdt-ta"])
def test_a_mechanism_for_rows_loses_no_more_on_labels_than_its_two_steps_cost(slug: str) -> None:
    laws = Laws(planned(slug, TWO_SPLITS, **SEQUENTIAL), TWO_SPLITS)
    records = sorted({(*record[:2], label) for record in RECORDS[:2] for label in (0, 1)})
    worst = laws.worst(label_pairs(multisets(3, tuple(records))))

    assert 1.0 - 1e-6 < claim(laws) <= 1.0
    assert 0.4 <= worst <= 1.0 + TOLERANCE
