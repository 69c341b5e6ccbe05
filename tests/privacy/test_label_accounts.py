"""T1 on accounts that protect labels: the exact loss over one changed label, for
mechanisms of every adjacency.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.contract.plan import Plan, PlanInvalid
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import tree_histograms
from tests.privacy.enumeration import TOLERANCE, EnumeratingRandomness, loss
from tests.privacy.test_delta_accounts import share_of_charge
from tests.privacy.universe import (
    TWO_SPLITS,
    Laws,
    datasets,
    label_pairs,
    multisets,
    production,
)

SEQUENTIAL = {"assignment": "sequential"}
UNKNOWN = -1
TWO_TEACHERS = {**SEQUENTIAL, "n_estimators": 3, "n_teachers": 2}
STOPS_NOWHERE = {"min_rows": 2}
FEATURES = ((0, 0.0), (0, 1.0), (1, 1.0))


def records(
    labels: tuple[int, ...] = (UNKNOWN, 0, 1),
    features: tuple[tuple[int, float], ...] = FEATURES,
) -> tuple:
    """Every combination of the given features with the given labels."""
    return tuple(sorted((*feature, label) for feature in features for label in labels))


def planned(
    slug: str,
    schema: Schema,
    epsilon: str = "1",
    accountant: str = "pure",
    **parameters: object,
) -> Plan:
    """A plan of production code for an account of labels."""
    body = {"n_estimators": 1, "max_depth": 1, **parameters}
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    return plan(
        PlanRequest(
            slug, body, Terms(Fraction(epsilon), accountant, delta, Adjacency.LABEL)
        ),
        schema,
    )


def claim(laws: Laws) -> float:
    return float(pure.loss(laws.plan.event, adjacency=Adjacency.LABEL))


@pytest.mark.parametrize(
    ("slug", "parameters", "n_rows"),
    [
        ("mrf", {}, 3),
        ("srt", {}, 3),
        ("spe", {}, 3),
        ("spe", {"max_depth": 2, "level_ratio": "1"}, 2),
        ("rdt-ta", {}, 3),
    ],
)
def test_a_mechanism_for_rows_loses_no_more_on_labels_than_its_two_steps_cost(
    slug: str, parameters: dict, n_rows: int
) -> None:
    laws = Laws(planned(slug, TWO_SPLITS, **SEQUENTIAL, **parameters), TWO_SPLITS)
    worst = laws.worst(label_pairs(multisets(n_rows, records((0, 1), FEATURES[:2]))))

    assert 1.0 - 1e-6 < claim(laws) <= 1.0
    assert 0.4 <= worst <= 1.0 + TOLERANCE


# (slug, parameters, ε, rows at most, kinds of features, share of the claim that must be
# reached)
CASES = [
    pytest.param("sspe-2", SEQUENTIAL, "1", 3, 3, 1.0, id="sspe-2"),
    pytest.param(
        "sspe-2",
        {**SEQUENTIAL, "max_depth": 2},
        "2",
        2,
        3,
        1.0,
        id="sspe-2-depth-2",
        marks=pytest.mark.long,
    ),
    pytest.param(
        "sspe-2",
        {**SEQUENTIAL, "n_estimators": 2},
        "1",
        2,
        2,
        1.0,
        id="sspe-2-two-trees",
        marks=pytest.mark.long,
    ),
    pytest.param(
        "sspe-2", {**SEQUENTIAL, "leaf": "label"}, "1", 4, 3, 0.75, id="sspe-2-label"
    ),
    pytest.param(
        "sspe-2",
        {**SEQUENTIAL, "leaf": "label", "n_estimators": 2},
        "2",
        3,
        2,
        0.75,
        id="sspe-2-labels",
    ),
    pytest.param(
        "pte",
        {**SEQUENTIAL, "n_estimators": 2, "n_teachers": 1},
        "1",
        2,
        2,
        1.0,
        id="pte",
    ),
    pytest.param(
        "pte",
        TWO_TEACHERS,
        "1",
        2,
        1,
        1.0,
        id="pte-two-teachers",
        marks=pytest.mark.long,
    ),
    pytest.param(
        "pte", {**SEQUENTIAL, "n_teachers": 1}, "1", 3, 3, 1.0, id="pte-no-pupils"
    ),
]


@pytest.mark.parametrize(
    ("slug", "parameters", "epsilon", "n_rows", "n_features", "reached"), CASES
)
def test_label_mechanism_loses_what_was_charged_and_no_more(
    slug: str,
    parameters: dict,
    epsilon: str,
    n_rows: int,
    n_features: int,
    reached: float,
) -> None:
    """Over every change of one label, also to and from unknown; both datasets have
    equal features.
    """
    laws = Laws(
        planned(slug, TWO_SPLITS, epsilon, **STOPS_NOWHERE, **parameters), TWO_SPLITS
    )
    every = list(multisets(n_rows, records(features=FEATURES[:n_features])))
    worst = laws.worst(label_pairs(every, (UNKNOWN, 0, 1)))

    assert claim(laws) == float(epsilon)
    assert reached * claim(laws) - TOLERANCE <= worst <= claim(laws) + TOLERANCE


TOGETHER, APART = b"\x00" * 32, b"\x01" * 32
"""Keys that put ids 0 and 1 into one of two shards, and into both: see
test_exact_loss.py.
"""


@pytest.mark.covering("slug, parameters", "key")
@pytest.mark.parametrize("key", [TOGETHER, APART], ids=["together", "apart"])
@pytest.mark.parametrize(
    ("slug", "parameters"),
    [
        ("sspe-2", {"n_estimators": 2}),
        ("pte", {"n_estimators": 2, "n_teachers": 2}),
        # with a pupil
        pytest.param(
            "pte", {"n_estimators": 3, "n_teachers": 2}, marks=pytest.mark.long
        ),
    ],
)
def test_labels_on_shards_cost_what_the_largest_tree_was_charged(
    slug: str, parameters: dict, key: bytes
) -> None:
    laws = Laws(
        planned(slug, TWO_SPLITS, **STOPS_NOWHERE, **parameters), TWO_SPLITS, key=key
    )
    every = list(datasets(2, records(features=FEATURES[:1])))

    assert claim(laws) == 1.0
    assert laws.worst(label_pairs(every, (UNKNOWN, 0, 1))) == pytest.approx(
        1.0, abs=TOLERANCE
    )


@pytest.mark.covering("slug, parameters", "accountant")
@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize(
    ("slug", "parameters"),
    [
        ("sspe-2", {"n_estimators": 2}),
        ("sspe-2", {"leaf": "label"}),
        ("pte", {"n_estimators": 2, "n_teachers": 1}),
    ],
)
def test_where_rho_or_mu_is_counted_the_whole_curve_stays_within_the_charge(
    slug: str, parameters: dict, accountant: str
) -> None:
    """The charge is that of a changed label, and counts have normal noise."""
    laws = Laws(
        planned(
            slug,
            TWO_SPLITS,
            accountant=accountant,
            **SEQUENTIAL,
            **STOPS_NOWHERE,
            **parameters,
        ),
        TWO_SPLITS,
    )
    few = records(features=FEATURES[:2])

    assert (
        0.3
        < share_of_charge(laws, label_pairs(multisets(2, few), (UNKNOWN, 0, 1)))
        <= 1.0 + TOLERANCE
    )


@pytest.mark.parametrize("slug", ["sspe-2", "pte"])
def test_what_can_be_released_does_not_depend_on_labels(slug: str) -> None:
    """T2: given the features, all labels, also none known, give an equal set of
    possible releases.
    """
    few = {"n_estimators": 2, "n_teachers": 1} if slug == "pte" else {}
    laws = Laws(
        planned(slug, TWO_SPLITS, **SEQUENTIAL, **STOPS_NOWHERE, **few), TWO_SPLITS
    )
    unlabelled = {row_id: (*own, UNKNOWN) for row_id, own in enumerate(FEATURES[:2])}
    support = laws.of(unlabelled).keys()

    assert len(support) > 1
    for labels in itertools.product((UNKNOWN, 0, 1), repeat=2):
        other = {
            row_id: (*own, label)
            for (row_id, own), label in zip(enumerate(FEATURES), labels, strict=False)
        }
        assert laws.of(other).keys() == support


def test_structure_is_the_same_whatever_the_labels_are() -> None:
    """Without the counts no output depends on a label; the features alone decide."""
    laws = Laws(
        planned("sspe-2", TWO_SPLITS, max_depth=2, **SEQUENTIAL, **STOPS_NOWHERE),
        TWO_SPLITS,
        window=(0, 0),
    )

    assert laws.worst(label_pairs(multisets(3, records()), (UNKNOWN, 0, 1))) == 0.0
    assert (
        len({frozenset(laws.of(dataset)) for dataset in multisets(3, records((0,)))})
        > 1
    )


def halved(event: Event) -> Event:
    """The event of the paper's Lap(1/ε): sensitivity 1, although a changed label has
    sensitivity 2.
    """
    if isinstance(event, Sequential | Parallel):
        return replace(
            event,
            parts=tuple(Part(part.times, halved(part.event)) for part in event.parts),
        )
    if isinstance(event, DiscreteLaplace):
        return replace(
            event, l1_sensitivity=Fraction(1), inverse_scale=2 * event.inverse_scale
        )
    assert isinstance(event, PermuteAndFlip)
    return replace(
        event, range_sensitivity=Fraction(1), inverse_scale=2 * event.inverse_scale
    )


def with_true_sensitivity(event: Event) -> Event:
    """The noise of a :func:`halved` event, beside the sensitivity that it leaves out:
    the draw refuses a table whose sensitivity is not that of its adjacency.
    """
    if isinstance(event, Sequential | Parallel):
        parts = tuple(
            Part(part.times, with_true_sensitivity(part.event)) for part in event.parts
        )
        return replace(event, parts=parts)
    if isinstance(event, DiscreteLaplace):
        return replace(event, l1_sensitivity=Fraction(2))
    return event


def with_half_the_noise(
    plan: Plan, schema: Schema, rows: SanitisedRows, randomness: EnumeratingRandomness
) -> Hashable:
    """Draws with the noise that a halved event claims."""
    drawn = replace(plan, event=with_true_sensitivity(plan.event))
    return production(drawn, schema, rows, randomness)


@pytest.mark.parametrize(
    ("slug", "parameters", "least"),
    [
        ("sspe-2", {}, 2.0),
        ("sspe-2", {"leaf": "label"}, 1.5),
        ("pte", {"n_estimators": 2, "n_teachers": 1}, 2.0),
    ],
)
def test_noise_for_sensitivity_one_loses_twice_what_the_paper_claims(
    slug: str, parameters: dict, least: float
) -> None:
    """A16: Lap(1/ε) under a changed label."""
    settled = planned(slug, TWO_SPLITS, **SEQUENTIAL, **STOPS_NOWHERE, **parameters)
    flawed = Laws(
        replace(settled, event=halved(settled.event)),
        TWO_SPLITS,
        grow=with_half_the_noise,
    )

    assert claim(flawed) == 1.0, "by its own arithmetic the paper claims ε"
    assert (
        flawed.worst(label_pairs(multisets(2, records()), (UNKNOWN, 0, 1)))
        >= least - TOLERANCE
    )
    with pytest.raises(PlanInvalid):
        forest_price.require_priced(flawed.plan, TWO_SPLITS)


@pytest.mark.parametrize("slug", ["sspe-2", "pte"])
def test_portions_of_fixed_sizes_cost_more_where_a_label_is_added(
    monkeypatch: pytest.MonkeyPatch, slug: str
) -> None:
    """A6: portions of the labelled rows, of sizes that follow from their number. All
    such partitions are equally likely; noise and adjacency are the paper's.
    """
    settled = planned(slug, TWO_SPLITS, n_estimators=2, **STOPS_NOWHERE)
    plan = replace(settled, event=halved(settled.event))

    def law(n_old: int, new: int) -> dict[Hashable, float]:
        """Of old rows with one label, and a row whose label is new."""
        dataset = dict.fromkeys(range(n_old), (*FEATURES[0], 0))
        dataset[n_old] = (*FEATURES[0], new)
        known = range(n_old + (new != UNKNOWN))
        firsts = list(itertools.combinations(known, (len(known) + 1) // 2))
        mean: dict[Hashable, float] = defaultdict(float)
        for first in firsts:
            # for the labelled rows alone
            portions = np.array([int(row_id not in first) for row_id in known])
            monkeypatch.setattr(
                tree_histograms, "shards", lambda *_, portions=portions, **__: portions
            )
            laws = Laws(plan, TWO_SPLITS, grow=with_half_the_noise, key=TOGETHER)
            for outcome, probability in laws.of(dataset).items():
                mean[outcome] += probability / len(firsts)
        return mean

    worst = max(loss(law(n_old, UNKNOWN), law(n_old, 1)) for n_old in range(1, 6))

    assert worst == pytest.approx(2.434, abs=0.001)


def dropping(
    plan: Plan, schema: Schema, rows: SanitisedRows, randomness: EnumeratingRandomness
) -> Hashable:
    """Rows without a known label are dropped before the structure is built."""
    indices = np.flatnonzero(rows.y >= 0)
    columns = SanitisedColumns(
        tuple(column[indices] for column in rows.features.columns), len(indices)
    )
    return production(
        plan,
        schema,
        SanitisedRows(columns, rows.y[indices], rows.row_ids[indices]),
        randomness,
    )


def test_dropping_rows_of_unknown_label_reveals_which_rows_they_are() -> None:
    settled = planned("sspe-2", TWO_SPLITS, **SEQUENTIAL, **STOPS_NOWHERE)
    flawed = Laws(settled, TWO_SPLITS, grow=dropping)

    assert (
        flawed.worst(label_pairs(multisets(2, records()), (UNKNOWN, 0, 1))) == math.inf
    )
