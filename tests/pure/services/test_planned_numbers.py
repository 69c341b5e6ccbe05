"""Plans of profiles and statistics: of the label that is asked for, and by what the
account protects.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from app.datasets.catalog import Dataset, DatasetRow
from app.services.releases.contract import Named, StoredPlan
from app.services.releases.profiles import ProfileRequest
from app.services.releases.statistics import StatisticsKind
from app.services.spending.asked import AskedDataset
from app.wire.profiles import ProfileIn
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import price

DECLARED: dict[str, Any] = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 99}],
    "labels": [
        {"name": "ill", "classes": ["no", "yes"]},
        {"name": "stage", "classes": ["a", "b", "c"]},
    ],
}


@pytest.mark.parametrize("label", ["ill", "stage"])
def test_a_profile_is_planned_for_the_label_that_is_asked_for(label: str) -> None:
    unit = {"column": None, "max_rows": 1}
    row = DatasetRow(
        id="ds_a", schema=DECLARED, partitions=[], privacy_unit=unit, protects="row"
    )
    source = AskedDataset(Dataset(row), ["ep_a"], "pure", None)
    body = ProfileIn.model_validate({"epsilon": "1", "label": label})
    asked: Any = ProfileRequest(dataset="ds_a", body=body)
    [priced] = asked.plan(None, Named(["ds_a"]), [source]).parts
    assert priced.asked.label == label
    assert (
        priced.asked.schema.labels
        == Schema.from_json(DECLARED).with_label(label).labels
    )


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
def test_statistics_are_planned_by_what_the_account_protects(
    adjacency: Adjacency,
) -> None:
    schema = Schema.from_json(DECLARED)
    terms = replace(Terms(Fraction(1)), adjacency=adjacency)
    facts = public_facts(terms, None, schema, adjacency)
    table = {"statistic": "count", "by": ["stage"]}
    work = {"plan": price.plan([table], facts).to_json()}

    def is_planned(paid: Terms) -> bool:
        stored = StoredPlan("statistics", None, work, DECLARED, [paid])
        return StatisticsKind().is_planned(stored)

    assert is_planned(terms)
    assert not is_planned(replace(terms, epsilon=Fraction(2))), "another price"
    other = Adjacency.ADD_REMOVE_ONE
    if adjacency is other:
        other = Adjacency.LABEL
    assert not is_planned(replace(terms, adjacency=other))
