"""T1 and T2: the exact output law of the forests' production code, over every dataset
of a tiny universe.

Every mode of `rdt-ta`, `rdt-mv`, `rdt-pa`, `mrf`, `maxtree`, `srt`, `rdt-jagannathan`
and `spe`, on all neighbours.
"""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    ExponentialMechanism,
    PermuteAndFlip,
)
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import tree_histograms
from grovekeeper_forests.trees.tree_price import TreePrice
from tests.privacy.enumeration import TOLERANCE
from tests.privacy.stated_losses import stated
from tests.privacy.universe import (
    EMPTY,
    RECORDS,
    SWAPPED,
    THREE_SPLITS,
    TWO_SPLITS,
    Laws,
    add_remove_pairs,
    datasets,
    multisets,
    planned,
    replace_one_pairs,
)

HALF = {"structure_share": "0.5"}
TWO_STAGE = {**HALF, "selection": "two_stage"}
LITERAL = {**HALF, "utility": "normalised", "leaf": "shares"}
SEQUENTIAL = {"assignment": "sequential"}
LONG = pytest.mark.long
"""For cases that take seconds and whose every part is in another case: a second level,
a second tree, a second kind.
"""


def claim(laws: Laws) -> float:
    return float(pure.loss(laws.plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))


# (slug, schema, parameters, ε, rows at most, kinds of record, share of the claim that
# must be reached)
CASES = [
    pytest.param("rdt-ta", TWO_SPLITS, {}, "1", 4, 4, 1.0, id="rdt"),
    pytest.param(
        "rdt-ta", THREE_SPLITS, {"max_depth": 2}, "1", 2, 2, 1.0, id="rdt-depth-2"
    ),
    pytest.param(
        "rdt-mv", TWO_SPLITS, {"n_estimators": 2}, "0.5", 2, 2, 1.0, id="rdt-two-trees"
    ),
    pytest.param("rdt-pa", TWO_SPLITS, {}, "1", 3, 4, 1.0, id="rdt-pa"),
    pytest.param("mrf", TWO_SPLITS, HALF, "1", 4, 4, 0.8, id="mrf"),
    pytest.param(
        "mrf",
        THREE_SPLITS,
        {"structure_share": "0.9"},
        "4",
        3,
        4,
        0.6,
        id="mrf-large-epsilon",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**HALF, "max_depth": 2},
        "1",
        2,
        4,
        0.6,
        id="mrf-depth-2",
        marks=LONG,
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**HALF, "n_estimators": 2},
        "1",
        2,
        4,
        0.7,
        id="mrf-two-trees",
        marks=LONG,
    ),
    pytest.param("mrf", THREE_SPLITS, TWO_STAGE, "1", 3, 4, 0.75, id="mrf-two-stage"),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**TWO_STAGE, "max_depth": 2},
        "1",
        2,
        4,
        0.55,
        id="mrf-two-stage-depth-2",
        marks=LONG,
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**HALF, "utility": "miscount"},
        "1",
        3,
        4,
        0.99,
        id="mrf-miscount",
    ),
    pytest.param(
        "mrf", TWO_SPLITS, {**HALF, "leaf": "label"}, "1", 4, 4, 0.65, id="mrf-label"
    ),
    pytest.param(
        "mrf",
        THREE_SPLITS,
        {**HALF, "utility": "normalised"},
        "1",
        3,
        4,
        0.74,
        id="mrf-normalised",
    ),
    pytest.param(
        "mrf",
        THREE_SPLITS,
        {**TWO_STAGE, "utility": "normalised"},
        "1",
        3,
        4,
        0.73,
        id="mrf-two-stage-normalised",
    ),
    pytest.param(
        "mrf", TWO_SPLITS, {**HALF, "leaf": "shares"}, "1", 4, 4, 0.66, id="mrf-shares"
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**LITERAL, "max_depth": 2},
        "1",
        2,
        4,
        0.6,
        id="mrf-literal-depth-2",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**LITERAL, "n_estimators": 2},
        "1",
        2,
        4,
        0.64,
        id="mrf-literal-two-trees",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**HALF, "leaf": "label", "max_depth": 2},
        "2",
        2,
        4,
        0.6,
        id="mrf-label-depth-2",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**HALF, "exploration": "0.25"},
        "1",
        3,
        4,
        0.7,
        id="mrf-exploration",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {**TWO_STAGE, "exploration": "1"},
        "1",
        2,
        4,
        0.49,
        id="mrf-exploration-only",
    ),
    pytest.param("maxtree", TWO_SPLITS, {}, "1", 4, 4, 0.99, id="maxtree"),
    pytest.param(
        "maxtree",
        TWO_SPLITS,
        {"max_depth": 2, "level_ratio": "1.5"},
        "1",
        2,
        4,
        0.65,
        id="maxtree-depth-2",
    ),
    pytest.param(
        "maxtree",
        TWO_SPLITS,
        {"n_estimators": 2},
        "1",
        2,
        4,
        0.99,
        id="maxtree-two-trees",
        marks=LONG,
    ),
    pytest.param("srt", TWO_SPLITS, SEQUENTIAL, "1", 4, 4, 1.0, id="srt"),
    pytest.param(
        "srt",
        THREE_SPLITS,
        {**SEQUENTIAL, "max_depth": 2},
        "1",
        3,
        4,
        1.0,
        id="srt-depth-2",
    ),
    pytest.param(
        "srt",
        TWO_SPLITS,
        {**SEQUENTIAL, "n_estimators": 2},
        "1",
        3,
        2,
        1.0,
        id="srt-two-trees",
    ),
    pytest.param(
        "rdt-jagannathan", TWO_SPLITS, {}, "1", 3, 4, 1.0, id="rdt-jagannathan"
    ),
    pytest.param("spe", THREE_SPLITS, SEQUENTIAL, "1", 4, 4, 0.99, id="spe"),
    pytest.param(
        "spe",
        TWO_SPLITS,
        {**SEQUENTIAL, "max_depth": 2},
        "1",
        2,
        4,
        0.5,
        id="spe-depth-2",
        marks=LONG,
    ),
    pytest.param(
        "spe",
        TWO_SPLITS,
        {**SEQUENTIAL, "max_depth": 2, "level_ratio": "1"},
        "1",
        2,
        3,
        0.5,
        id="spe-even-levels",
    ),
]


STATED = {
    "mrf": ("mrf.md", "one tree of depth 1"),
    "mrf-depth-2": ("mrf.md", "one tree of depth 2"),
    "mrf-two-trees": ("mrf.md", "two trees of depth 1 on the same rows"),
    "mrf-two-stage": ("mrf.md", "two-stage, depth 1, three splits"),
    "mrf-two-stage-depth-2": ("mrf.md", "two-stage, depth 2"),
    "mrf-miscount": ("mrf.md", "miscount, depth 1"),
    "mrf-label": ("mrf.md", "labels, depth 1"),
    "mrf-normalised": ("mrf.md", "normalised, depth 1, three splits"),
    "mrf-two-stage-normalised": (
        "mrf.md",
        "two-stage and normalised, depth 1, three splits",
    ),
    "mrf-shares": ("mrf.md", "class shares, depth 1"),
    "mrf-literal-depth-2": ("mrf.md", "normalised and class shares, depth 2"),
    "mrf-literal-two-trees": (
        "mrf.md",
        "normalised and class shares, two trees of depth 1",
    ),
    "mrf-exploration": ("mrf.md", "exploration ¼, depth 1"),
    "maxtree": ("maxtree.md", "one tree of depth 1"),
    "maxtree-depth-2": ("maxtree.md", "one tree of depth 2, ratio 1.5"),
    "maxtree-two-trees": ("maxtree.md", "two trees of depth 1 on the same rows"),
    "spe": ("spe.md", "one tree of depth 1, three splits"),
    "spe-depth-2": ("spe.md", "one tree of depth 2"),
    "spe-even-levels": ("spe.md", "one tree of depth 2, `level_ratio` 1"),
}
"""Page and row of the proofs that state the losses of a case."""


@pytest.mark.parametrize(
    ("slug", "schema", "parameters", "epsilon", "n_rows", "n_kinds", "reached"), CASES
)
def test_forest_loses_what_was_charged_and_no_more(
    request: pytest.FixtureRequest,
    slug: str,
    schema: object,
    parameters: dict,
    epsilon: str,
    n_rows: int,
    n_kinds: int,
    reached: float,
) -> None:
    laws = Laws(planned(slug, schema, epsilon, **parameters), schema)
    records = RECORDS[:n_kinds]
    add_remove = laws.worst(add_remove_pairs(multisets(n_rows, records)))
    replace_one = laws.worst(replace_one_pairs(multisets(n_rows, records), records))

    assert claim(laws) <= Fraction(epsilon)
    assert reached * claim(laws) - TOLERANCE <= add_remove <= claim(laws) + TOLERANCE
    assert add_remove < replace_one <= 2 * claim(laws) + TOLERANCE
    if place := STATED.get(request.node.callspec.id):
        assert stated(*place) == (f"{add_remove:.3f}", f"{replace_one:.3f}")


TOGETHER, APART = b"\x00" * 32, b"\x01" * 32
"""Assignment keys that put ids 0 and 1 into one of two shards, and into both."""


# In a tree with a single row no split is better than another, so sharded rows show the
# loss of the counts only.
@pytest.mark.parametrize(
    ("slug", "key", "n_kinds", "reached"),
    [
        pytest.param("rdt-ta", TOGETHER, 2, 1.0, id="rdt-together"),
        pytest.param("rdt-ta", APART, 2, 1.0, id="rdt-apart"),
        pytest.param("mrf", TOGETHER, 2, 0.7, id="mrf-together", marks=LONG),
        pytest.param("mrf", APART, 2, 0.5, id="mrf-apart", marks=LONG),
        *(
            pytest.param(slug, key, 1, 0.5, id=f"{slug}-{name}-one-kind")
            for slug in ("mrf", "srt", "spe", "rdt-jagannathan", "maxtree")
            for key, name in ((TOGETHER, "together"), (APART, "apart"))
        ),
    ],
)
def test_sharded_forest_loses_what_its_largest_tree_was_charged(
    slug: str, key: bytes, n_kinds: int, reached: float
) -> None:
    laws = sharded(slug, key)
    add_remove = laws.worst(add_remove_pairs(datasets(2, RECORDS[:n_kinds])))

    assert claim(laws) == 1.0
    assert reached - TOLERANCE <= add_remove <= 1.0 + TOLERANCE


@pytest.mark.parametrize("key", [TOGETHER, APART])
def test_sharded_forest_loses_up_to_twice_its_charge_if_a_row_is_replaced(
    key: bytes,
) -> None:
    records = RECORDS[:2]
    worst = sharded("rdt-ta", key).worst(
        replace_one_pairs(datasets(2, records), records)
    )

    assert 1.0 < worst <= 2.0 + TOLERANCE


@cache
def sharded(slug: str, key: bytes) -> Laws:
    """Laws of two trees on shards."""
    share = HALF if slug == "mrf" else {}
    return Laws(
        planned(slug, TWO_SPLITS, n_estimators=2, assignment="sharded", **share),
        TWO_SPLITS,
        key=key,
    )


def row_ids(n_ids: int) -> np.ndarray:
    return np.frombuffer(
        b"".join(number.to_bytes(16) for number in range(n_ids)), np.uint8
    ).reshape(n_ids, 16)


def test_the_two_keys_cover_both_cases_of_the_assignment() -> None:
    ids = row_ids(2)
    shard = {
        key: tree_histograms.shards(key, ids, n_shards=2).tolist()
        for key in (TOGETHER, APART)
    }

    assert shard[TOGETHER][0] == shard[TOGETHER][1]
    assert shard[APART][0] != shard[APART][1]


def test_a_sharded_forest_on_four_rows_loses_its_charge() -> None:
    settled = planned(
        "rdt-ta", TWO_SPLITS, n_estimators=2, assignment="sharded", max_depth=0
    )
    laws = Laws(settled, TWO_SPLITS, key=APART)
    worst = laws.worst(add_remove_pairs(datasets(4, RECORDS[:2])))

    assert 1.0 - TOLERANCE <= worst <= 1.0 + TOLERANCE


@pytest.mark.parametrize("slug", ["rdt-ta", pytest.param("mrf", marks=LONG)])
def test_wider_window_on_noisy_counts_shows_no_more_loss(slug: str) -> None:
    narrow = Laws(planned(slug, TWO_SPLITS), TWO_SPLITS)
    wide = Laws(planned(slug, TWO_SPLITS), TWO_SPLITS, window=(-1, 2))
    pairs = list(add_remove_pairs(multisets(2)))

    assert wide.worst(pairs) == pytest.approx(narrow.worst(pairs), abs=TOLERANCE)


def parts(key: bytes, n_ids: int) -> list[bool]:
    return tree_histograms.structure_rows(
        key, row_ids(n_ids), tree=0, share=Fraction(1, 2)
    ).tolist()


def key_with(parts_of_rows: list[bool]) -> bytes:
    """The first simple key that puts the listed ids into the given parts of tree 0."""
    return next(
        key
        for key in (bytes([byte]) * 32 for byte in range(256))
        if parts(key, len(parts_of_rows)) == parts_of_rows
    )


@pytest.mark.covering("leaf", "parts_of_rows")
@pytest.mark.parametrize("leaf", ["counts", "label", "shares"])
@pytest.mark.parametrize(
    ("parts_of_rows", "reached"),
    [
        ([True, True, True], 0.65),
        ([False, False, False], 0.99),
        ([True, False, True], 0.99),
    ],
    ids=["structure", "estimation", "both"],
)
def test_parted_rows_pay_for_one_part_only(
    leaf: str, parts_of_rows: list[bool], reached: float
) -> None:
    """Both parts have the whole of ε, and a row loses no more than that in either part."""
    settled = planned(
        "mrf", TWO_SPLITS, "1", se="hash", leaf=leaf, structure_share="0.01"
    )
    laws = Laws(settled, TWO_SPLITS, key=key_with(parts_of_rows))
    price = TreePrice.of(settled.event)
    every = list(datasets(3))
    add_remove = laws.worst(add_remove_pairs(every))

    assert price.apart
    assert claim(laws) == 1.0
    assert (
        float(
            sum(
                event.range_sensitivity * event.inverse_scale
                for level in price.levels
                for event in level
            )
        )
        == 1.0
    )
    assert reached <= add_remove <= 1.0 + TOLERANCE
    assert laws.worst(replace_one_pairs(every)) <= 2.0 + TOLERANCE


MODES = {"selection": "two_stage", "utility": "miscount", "exploration": "0.5"}


@pytest.mark.parametrize(
    ("slug", "parameters", "n_leaf_outputs"),
    [
        ("rdt-ta", {}, 2**4),
        ("mrf", {}, 2**4),
        ("mrf", MODES, 2**4),
        ("mrf", {**MODES, "leaf": "label"}, 2**2),
        ("mrf", {**LITERAL, "selection": "two_stage"}, 2**2),
        ("maxtree", {}, 2**4),
        ("srt", SEQUENTIAL, 2**2),
        ("rdt-jagannathan", {}, 2**4),
        ("spe", SEQUENTIAL, 2**4),
    ],
)
def test_every_output_can_come_from_every_dataset(
    slug: str, parameters: dict, n_leaf_outputs: int
) -> None:
    """T2: the set of possible releases, and so the model's shape, does not depend on
    rows.
    """
    laws = Laws(planned(slug, THREE_SPLITS, **parameters), THREE_SPLITS)
    support = laws.of(EMPTY).keys()

    assert len(support) == 3 * n_leaf_outputs
    for dataset in multisets(3):
        assert laws.of(dataset).keys() == support


@pytest.mark.parametrize("selection", ["joint", "two_stage"])
def test_a_row_that_swaps_the_best_and_the_worst_normalised_split_loses_more_than_half(
    selection: str,
) -> None:
    """A sensitivity of 2^q, the range of the values, would be half of what the claim
    needs.
    """
    settled = planned(
        "mrf",
        TWO_SPLITS,
        utility="normalised",
        selection=selection,
        **HALF,
        feature_share="0.99",
    )
    laws = Laws(settled, TWO_SPLITS, window=(0, 0))

    assert 0.44 < laws.worst([SWAPPED]) <= 0.5 + TOLERANCE


def test_selection_alone_loses_at_most_its_share() -> None:
    """Without the counts, only the loss of the selections remains."""
    settled = planned("mrf", THREE_SPLITS, structure_share="0.5")
    laws = Laws(settled, THREE_SPLITS, window=(0, 0))
    worst = laws.worst(add_remove_pairs(multisets(4)))

    assert 0.2 < worst <= 0.5 + TOLERANCE
    assert not math.isclose(worst, 0.0)


def test_exploration_alone_tells_nothing_about_rows_and_half_of_it_tells_less() -> None:
    """The loss of the structure alone: zero with full exploration, and less with half
    of it than with none.
    """
    result = [
        Laws(
            planned("mrf", THREE_SPLITS, exploration=p), THREE_SPLITS, window=(0, 0)
        ).worst(add_remove_pairs(multisets(3)))
        for p in ("1", "0.5", "0")
    ]

    assert result[0] == 0.0
    assert 0.0 < result[1] < result[2] <= 0.6 + TOLERANCE


@pytest.mark.parametrize("slug", ["mrf", "maxtree", "spe", "srt"])
def test_selections_follow_the_unit_of_the_account(slug: str) -> None:
    """Accounts in ρ use the exponential mechanism (its law: test_delta_accounts.py),
    accounts in ε permute-and-flip.
    """
    for accountant, delta, kind in (
        ("pure", None, PermuteAndFlip),
        ("zcdp", Fraction(1, 10**6), ExponentialMechanism),
    ):
        settled = planned_on(slug, accountant, delta)
        price = TreePrice.of(settled.event)
        drawn = [event for level in price.levels for event in level] or [
            price.leaves.parts[0].event
        ]

        assert all(type(event) is kind for event in drawn)


def planned_on(slug: str, accountant: str, delta: Fraction | None) -> Plan:
    shape = {"n_estimators": 1, "max_depth": 1, **SEQUENTIAL}
    return plan(
        PlanRequest(slug, shape, Terms(Fraction(1), accountant, delta)), TWO_SPLITS
    )
