"""T12 and T13: no rows, however unusual, make a job fail or change the shape of its
release.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    sanitise_codes,
    sanitise_numbers,
)
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import plan
from grovekeeper_forests.trees.leaf_read_out import leaves_of
from tests.privacy.laws import SIGNIFICANCE
from tests.support.plans import request_for
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {
        "name": "income",
        "type": "numeric",
        "lower": -1e300,
        "upper": 1e300,
        "missing": True,
    },
    {"name": "age", "type": "integer", "lower": 0, "upper": 9},
    {
        "name": "city",
        "type": "categorical",
        "categories": [f"c{i}" for i in range(255)],
        "missing": True,
    },
    {"name": "fixed", "type": "numeric", "lower": 2.5, "upper": 2.5},
    {"name": "rank", "type": "categorical", "categories": ["one"], "ordered": True},
    classes=["a", "b", "c"],
)
PLANS = [
    ("mrf", {"n_estimators": 2, "max_depth": 3}),
    ("mrf", {"n_estimators": 3, "max_depth": 2, "assignment": "sharded"}),
    ("rdt-pa", {"n_estimators": 2, "max_depth": 4}),
    ("rdt-mv", {"n_estimators": 3, "max_depth": 0, "assignment": "sharded"}),
    (
        "mrf",
        {
            "n_estimators": 2,
            "max_depth": 3,
            "selection": "two_stage",
            "leaf": "label",
            "exploration": "0.3",
        },
    ),
    (
        "mrf",
        {
            "n_estimators": 2,
            "max_depth": 2,
            "assignment": "sharded",
            "se": "hash",
            "utility": "miscount",
        },
    ),
    (
        "mrf",
        {"n_estimators": 2, "max_depth": 3, "utility": "normalised", "leaf": "shares"},
    ),
    ("maxtree", {"n_estimators": 2, "max_depth": 3}),
    ("rdt-jagannathan", {"n_estimators": 2, "max_depth": 3}),
    ("spe", {"n_estimators": 3, "max_depth": 4}),
    ("srt", {"n_estimators": 3, "max_depth": 4}),
    ("bms-rf", {"n_estimators": 5, "n_layers": 3, "max_depth": 3}),
    (
        "bms-rf",
        {
            "n_estimators": 3,
            "max_depth": 2,
            "layer_assignment": "sharded",
            "se": "hash",
            "leaf": "label",
        },
    ),
    (
        "bms-rf",
        {
            "n_estimators": 4,
            "max_depth": 2,
            "assignment": "sharded",
            "selection": "two_stage",
            "shift": "1",
        },
    ),
    ("sspe-2", {"n_estimators": 3, "max_depth": 4, "min_rows": 2}),
    (
        "sspe-2",
        {
            "n_estimators": 3,
            "max_depth": 3,
            "min_rows": 2,
            "leaf": "label",
            "assignment": "sequential",
        },
    ),
    ("pte", {"n_estimators": 4, "n_teachers": 2, "max_depth": 3, "min_rows": 2}),
    ("sspe-1", {"n_estimators": 3, "max_depth": 4}),
    ("sspe-1@gdp", {"n_estimators": 2, "max_depth": 3, "assignment": "sequential"}),
    ("nbrt@gdp", {"n_estimators": 6, "max_depth": 3}),
    ("rpf", {"n_estimators": 2, "max_depth": 3}),
    ("mrf@gdp", {"n_estimators": 3, "max_depth": 3}),
    ("rdt-ta@zcdp", {"n_estimators": 3, "max_depth": 3}),
    ("spe@gdp", {"n_estimators": 3, "max_depth": 3}),
    ("bms-rf@gdp", {"n_estimators": 3, "n_layers": 3, "max_depth": 2}),
    ("sspe-2@gdp", {"n_estimators": 3, "max_depth": 3, "min_rows": 2}),
]
"""Slug, or slug@accountant for accounts in ρ or μ²; and parameters."""
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.just(1.7e308), st.just(-0.0)
)
RECORD = st.tuples(
    NUMBERS,
    NUMBERS,
    st.integers(-1, 300),
    NUMBERS,
    st.integers(0, 5),
    st.integers(-1, 2),
)


def planned(
    slug: str, parameters: dict, schema: Schema = SCHEMA, epsilon: int = 1
) -> Plan:
    slug, _, account = slug.partition("@")
    paying = {"accountant": account, "delta": Fraction(1, 10**6)} if account else {}
    return plan(
        request_for(slug, parameters, Fraction(epsilon), 1_000, **paying), schema
    )


def rows_from(records: list[tuple], row_ids: np.ndarray) -> SanitisedRows:
    columns = []
    for index, feature in enumerate(SCHEMA.features):
        values = [record[index] for record in records]
        if feature.is_categorical:
            columns.append(sanitise_codes(feature, np.array(values, dtype=np.int32)))
        else:
            columns.append(
                sanitise_numbers(feature, np.array(values, dtype=np.float64))
            )
    y = np.array([record[-1] for record in records], dtype=np.int32)
    return SanitisedRows(SanitisedColumns(tuple(columns), len(records)), y, row_ids)


def grown(plan: Plan, rows: SanitisedRows) -> Forest:
    done: list[None] = []
    others = (
        None
        if plan.unlabelled is None
        else SanitisedRows(rows.features, -np.ones_like(rows.y), rows.row_ids)
    )
    forest = grow(
        plan,
        SCHEMA,
        rows,
        SystemRandomness(),
        on_tree_done=lambda: done.append(None),
        unlabelled=others,
    )
    assert len(done) == plan.n_trees
    return forest


def shape(forest: Forest) -> list[tuple]:
    return [
        (name, array.shape, array.dtype)
        for name, array in sorted(forest.arrays.items())
    ]


@pytest.mark.parametrize(("slug", "parameters"), PLANS)
@given(records=st.lists(RECORD, max_size=20), same_id=st.booleans())
@settings(max_examples=12, deadline=None)
def test_any_rows_give_a_model_of_the_planned_shape(
    slug: str, parameters: dict, records: list[tuple], same_id: bool
) -> None:
    settled = planned(slug, parameters)
    # only label mechanisms receive rows with an unknown label
    if settled.terms.adjacency is not Adjacency.LABEL:
        records = [record for record in records if record[-1] >= 0]
    ids = np.zeros((len(records), 16), dtype=np.uint8)
    if not same_id:
        ids[:, 0] = np.arange(len(records))
    empty = grown(settled, rows_from([], ids[:0]))
    forest = grown(settled, rows_from(records, ids))

    assert shape(forest) == shape(empty)
    artifact = released_forest.loads(
        released_forest.dumps(forest, {"schema": SCHEMA.to_json()})
    )
    probabilities = artifact.predictor.probabilities(rows_from(records, ids).features)
    assert probabilities.shape == (len(records), 3)
    assert np.all((probabilities >= 0) & (probabilities <= 1)), (
        "finite, so a score has a cell in an evaluation"
    )
    assert np.allclose(probabilities.sum(axis=1), 1.0)


def test_one_class_only_is_legal_data() -> None:
    records = [(0.0, 3.0, 7, 2.5, 0, 1)] * 50
    forest = grown(
        planned("mrf", {"max_depth": 2}),
        rows_from(records, np.zeros((50, 16), dtype=np.uint8)),
    )

    assert forest.arrays["counts"].shape[2] == 3


def test_schema_without_any_split_still_trains() -> None:
    schema = schema_of(
        {"name": "fixed", "type": "numeric", "lower": 1, "upper": 1}, classes=["a", "b"]
    )
    columns = SanitisedColumns((np.ones(300),), 300)
    row_ids = np.random.default_rng(2).integers(0, 256, (300, 16), dtype=np.uint8)
    rows = SanitisedRows(columns, np.ones(300, dtype=np.int32), row_ids)
    for slug in (
        "mrf",
        "rdt-ta",
        "maxtree",
        "rdt-jagannathan",
        "spe",
        "srt",
        "bms-rf",
        "sspe-2",
        "pte",
    ):
        settled = planned(slug, {}, schema)
        forest = grow(
            settled, schema, rows, SystemRandomness(), on_tree_done=lambda: None
        )
        probabilities = Predictor(forest, schema).probabilities(columns)

        assert settled.parameters["max_depth"] == 0
        assert settled.warnings == (
            "The public schema allows no split: every row lies in one leaf.",
        )
        assert forest.arrays["feature"].shape == (settled.n_trees, 0)
        assert np.all(probabilities.argmax(axis=1) == 1)


@pytest.mark.parametrize("slug", ["mrf", "rdt-ta", "maxtree", "spe", "sspe-2"])
def test_every_leaf_and_class_of_an_empty_dataset_carries_the_stated_noise(
    slug: str,
) -> None:
    """A χ² test of the pooled counts against the exact law."""
    settled = planned(
        slug,
        {"n_estimators": 64, "max_depth": 5, "assignment": "sequential"},
        epsilon=64,
    )
    counts = grown(settled, rows_from([], np.empty((0, 16), dtype=np.uint8))).arrays[
        "counts"
    ]
    q = float(np.exp(-float(leaves_of(settled.event).inverse_scale)))
    law = np.array([(1 - q) / (1 + q) * q ** abs(z) for z in range(-3, 4)])
    observed = np.array([np.sum(counts == z) for z in range(-3, 4)])
    rest, expected_rest = counts.size - observed.sum(), (1 - law.sum()) * counts.size

    assert counts.size == 64 * 32 * 3
    result = stats.chisquare([*observed, rest], [*(law * counts.size), expected_rest])
    assert result.pvalue > SIGNIFICANCE
    touched = np.any(counts != 0, axis=0)
    assert np.all(touched)  # no leaf and no class is left without noise


def test_labels_of_an_empty_dataset_are_uniform() -> None:
    """A χ² test over all leaves of all trees."""
    for slug, parameters in (
        ("srt", {}),
        ("mrf", {"leaf": "label"}),
        ("sspe-2", {"leaf": "label"}),
    ):
        settled = planned(
            slug, {"n_estimators": 64, "max_depth": 5, **parameters}, epsilon=64
        )
        labels = grown(
            settled, rows_from([], np.empty((0, 16), dtype=np.uint8))
        ).arrays["labels"]

        assert labels.shape == (64, 32)
        assert (
            stats.chisquare(np.bincount(labels.ravel(), minlength=3)).pvalue
            > SIGNIFICANCE
        )
