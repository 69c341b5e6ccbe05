"""T1 on accounts in ρ or μ²: the exact law of every forest against the whole curve of
its charge.

The loss of one outcome is not informative there, so neighbours are compared as the
accounts compare them: on `zcdp` by Rényi divergences, at most αρ at every order α; on
`gdp` by hockey-stick divergences, at most δ(ε, μ) at every ε.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pytest

from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.contract.plan import Forest, Plan, PlanInvalid
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import gdp
from grovekeeper_forests.privacy.calibration import Budget, Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    RoundedGaussian,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import leaf_read_out, tree_growth
from grovekeeper_forests.trees.tree_histograms import LocalHistograms, structure_rows
from grovekeeper_forests.trees.tree_price import TreePrice
from tests.privacy.enumeration import (
    TOLERANCE,
    EnumeratingRandomness,
    aligned,
    divergence,
    draw_unpaid,
    renyi,
)
from tests.privacy.universe import (
    EMPTY,
    RECORDS,
    SWAPPED,
    THREE_SPLITS,
    TWO_SPLITS,
    Dataset,
    Laws,
    add_remove_pairs,
    datasets,
    multisets,
    rows_of,
)
from tests.support.stored_plans import read_priced

Law: TypeAlias = Mapping[Hashable, float]
DELTA = Fraction(1, 10**6)
SEQUENTIAL = {"assignment": "sequential"}
ORDERS = (1.001, 1.5, 2.0, 4.0, 16.0, 100.0)
EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0)


def planned(
    slug: str,
    accountant: str,
    epsilon: str,
    schema: Schema = TWO_SPLITS,
    **parameters: object,
) -> Plan:
    shape = {"n_estimators": 1, "max_depth": 1, **parameters}
    return plan(
        PlanRequest(slug, shape, Terms(Fraction(epsilon), accountant, DELTA)), schema
    )


def charged(settled: Plan) -> Fraction:
    return accountants.by_name(settled.terms.accountant).loss(
        settled.event, adjacency=settled.terms.adjacency
    )


def share_of_charge(laws: Laws, pairs: Iterable[tuple[Dataset, Dataset]]) -> float:
    """The largest share of its limit that any pair, order and point of the curve
    reaches; above 1 is a broken claim.
    """
    result = ((laws.of(less), laws.of(more)) for less, more in pairs)
    return share_of_curve(
        result, charged(laws.plan), accountant=laws.plan.terms.accountant
    )


def share_of_curve(
    pairs: Iterable[tuple[Law, Law]], loss: Fraction, *, accountant: str
) -> float:
    """The largest share of the curve of one account's charge that pairs of output laws
    reach.
    """
    worst, limits = 0.0, {}
    if accountant == "gdp":
        limits = {
            epsilon: float(gdp.delta_of(Fraction(epsilon), loss).upper())
            for epsilon in EPSILONS
        }
    for pair in pairs:
        less, more = aligned(*pair)
        for one, other in ((less, more), (more, less)):
            if accountant == "zcdp":
                worst = max(
                    worst,
                    *(
                        renyi(one, other, order) / (order * float(loss))
                        for order in ORDERS
                    ),
                )
            else:
                shares = [
                    (divergence(one, other, epsilon) - TOLERANCE)
                    / max(limit, TOLERANCE)
                    for epsilon, limit in limits.items()
                ]
                worst = max(worst, *shares)
    return worst


# (slug, schema, parameters, ε, rows at most, kinds of record)
CASES = [
    pytest.param("mrf", TWO_SPLITS, {}, "3", 3, 4, id="mrf"),
    pytest.param(
        "mrf",
        THREE_SPLITS,
        {"selection": "two_stage", "leaf": "label"},
        "3",
        2,
        4,
        id="mrf-two-stage-label",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {"utility": "miscount", "leaf": "label"},
        "3",
        3,
        4,
        id="mrf-miscount-label",
    ),
    pytest.param(
        "mrf",
        THREE_SPLITS,
        {"utility": "normalised", "leaf": "shares"},
        "3",
        3,
        4,
        id="mrf-literal",
    ),
    pytest.param(
        "mrf",
        THREE_SPLITS,
        {"selection": "two_stage", "utility": "normalised", "leaf": "label"},
        "3",
        3,
        4,
        id="mrf-normalised",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {"n_estimators": 2, "leaf": "label"},
        "3",
        2,
        4,
        id="mrf-two-trees",
    ),
    pytest.param(
        "mrf",
        TWO_SPLITS,
        {"max_depth": 2, "leaf": "label"},
        "3",
        2,
        4,
        id="mrf-depth-2",
    ),
    pytest.param("maxtree", TWO_SPLITS, {}, "3", 3, 4, id="maxtree"),
    pytest.param("spe", THREE_SPLITS, SEQUENTIAL, "3", 3, 4, id="spe"),
    pytest.param(
        "spe",
        TWO_SPLITS,
        {**SEQUENTIAL, "max_depth": 2, "level_ratio": "1"},
        "3",
        2,
        2,
        id="spe-even-levels",
    ),
    pytest.param("srt", TWO_SPLITS, SEQUENTIAL, "3", 4, 4, id="srt"),
    pytest.param("rdt-mv", TWO_SPLITS, {}, "3", 2, 4, id="rdt-mv"),
    pytest.param(
        "rdt-ta",
        TWO_SPLITS,
        {"max_depth": 0, "n_estimators": 2},
        "3",
        3,
        2,
        id="rdt-ta-two-trees",
    ),
    pytest.param("rdt-jagannathan", TWO_SPLITS, {}, "3", 2, 4, id="rdt-jagannathan"),
]


@pytest.mark.covering("slug, schema, parameters, epsilon, n_rows", "accountant")
@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize(
    ("slug", "schema", "parameters", "epsilon", "n_rows", "n_kinds"), CASES
)
def test_forest_stays_below_the_curve_of_its_charge(
    accountant: str,
    slug: str,
    schema: Schema,
    parameters: dict,
    epsilon: str,
    n_rows: int,
    n_kinds: int,
) -> None:
    laws = Laws(planned(slug, accountant, epsilon, schema, **parameters), schema)
    share = share_of_charge(
        laws, list(add_remove_pairs(multisets(n_rows, RECORDS[:n_kinds])))
    )

    assert 0.3 < share <= 1.0 + TOLERANCE


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_a_row_that_swaps_the_best_and_the_worst_normalised_split_uses_up_the_charge(
    accountant: str,
) -> None:
    parameters = {"utility": "normalised", "structure_share": "0.99", "leaf": "label"}
    laws = Laws(planned("mrf", accountant, "3", **parameters), TWO_SPLITS)

    assert 0.9 < share_of_charge(laws, [SWAPPED]) <= 1.0 + TOLERANCE


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize("key", [b"\x00" * 32, b"\x01" * 32], ids=["together", "apart"])
def test_sharded_forest_stays_below_the_curve_of_one_tree(
    accountant: str, key: bytes
) -> None:
    shape = {"n_estimators": 2, "assignment": "sharded", "max_depth": 0}
    laws = Laws(planned("rdt-ta", accountant, "3", **shape), TWO_SPLITS, key=key)

    assert (
        0.5
        < share_of_charge(laws, list(add_remove_pairs(datasets(2, RECORDS[:2]))))
        <= 1.0 + TOLERANCE
    )


def key_with_parts(parts_of_rows: list[bool]) -> bytes:
    """The first simple key that puts the first ids into the given parts of tree 0."""

    def parts(key: bytes) -> list[bool]:
        ids = b"".join(number.to_bytes(16) for number in range(len(parts_of_rows)))
        rows = np.frombuffer(ids, np.uint8).reshape(-1, 16)
        return structure_rows(key, rows, tree=0, share=Fraction(1, 2)).tolist()

    return next(
        key
        for key in (bytes([byte]) * 32 for byte in range(256))
        if parts(key) == parts_of_rows
    )


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize(
    "parts_of_rows",
    [[True, True], [False, False], [True, False]],
    ids=["structure", "leaves", "both"],
)
def test_parted_rows_stay_below_the_curve_of_the_larger_part(
    accountant: str, parts_of_rows: list[bool]
) -> None:
    """Both parts have the whole of ρ or μ², and each row is in one part."""
    laws = Laws(
        planned("mrf", accountant, "3", se="hash"),
        TWO_SPLITS,
        key=key_with_parts(parts_of_rows),
    )

    assert (
        0.05
        < share_of_charge(laws, list(add_remove_pairs(datasets(2))))
        <= 1.0 + TOLERANCE
    )


# --- selections: bounded range


def structure_only(
    plan: Plan, schema: Schema, rows: SanitisedRows, randomness: EnumeratingRandomness
) -> object:
    forest = grow(plan, schema, rows, randomness, on_tree_done=lambda: None)
    return forest.arrays["feature"].tobytes(), forest.arrays["threshold"].tobytes()


def widest_range(settled: Plan, n_rows: int) -> float:
    """The longest interval that the log-ratios of a node's selection span, over all
    neighbours.
    """
    laws = Laws(settled, THREE_SPLITS, grow=structure_only, window=(0, 0))
    widest = 0.0
    for less, more in add_remove_pairs(multisets(n_rows)):
        ratios = [
            math.log(p / laws.of(more)[split]) for split, p in laws.of(less).items()
        ]
        assert min(ratios) <= TOLERANCE
        assert max(ratios) >= -TOLERANCE
        widest = max(widest, max(ratios) - min(ratios))
    return widest


SELECTING = [
    pytest.param("mrf", {"utility": "miscount"}, id="mrf-miscount"),
    pytest.param("mrf", {"utility": "gini"}, id="mrf-gini"),
    pytest.param("maxtree", {}, id="maxtree"),
    pytest.param("spe", SEQUENTIAL, id="spe"),
]


@pytest.mark.parametrize(("slug", "parameters"), SELECTING)
def test_selections_are_of_the_bounded_range_that_is_charged(
    slug: str, parameters: dict
) -> None:
    """Lemma L1: the reason that a selection costs ε²/8 and not ε²/2."""
    settled = planned(slug, "zcdp", "8", THREE_SPLITS, **parameters)
    (selection,) = TreePrice.of(settled.event).levels[0]
    epsilon = float(selection.range_sensitivity * selection.inverse_scale)

    assert 0.4 * epsilon < widest_range(settled, 3) <= epsilon + TOLERANCE


def test_permute_and_flip_at_the_price_of_a_bounded_range_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log-ratios of permute-and-flip can span half as much again, so ε²/8 is not
    its price.
    """
    settled = planned("maxtree", "zcdp", "8", THREE_SPLITS)
    (own,) = TreePrice.of(settled.event).levels[0]

    def flipping(selection, utilities, randomness):
        return randomness.permute_and_flip(
            utilities, inverse_scale=selection.inverse_scale
        )

    monkeypatch.setattr(tree_growth, "select", flipping)
    draw_unpaid(monkeypatch)

    assert widest_range(settled, 3) > 1.05 * float(
        own.range_sensitivity * own.inverse_scale
    )


# --- normal leaf counts


def leaf_noise(
    accountant: str, epsilon: Fraction
) -> tuple[DiscreteLaplace, object, Budget]:
    unit = accountants.by_name(accountant)
    delta = DELTA if unit.TAKES_DELTA else None
    budget = Budget(
        accountant, unit.price(Fraction(1), delta), Adjacency.ADD_REMOVE_ONE
    )
    laplace = DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), epsilon, 8)
    return laplace, noisy_counts.at_price_of(laplace, budget), budget


@pytest.mark.parametrize(
    ("accountant", "gain"), [("zcdp", math.sqrt(2)), ("gdp", math.sqrt(math.pi))]
)
def test_normal_noise_costs_no_more_than_what_it_replaces_and_is_smaller(
    accountant: str, gain: float
) -> None:
    """√2 and √π times smaller at small ε; at large ε Laplace noise is smaller and stays
    in use.
    """
    for denominator in (2, 10, 100, 1_000):
        laplace, chosen, budget = leaf_noise(accountant, Fraction(1, denominator))
        ratio = noisy_counts.noise_sd(laplace) / noisy_counts.noise_sd(chosen)

        assert isinstance(chosen, RoundedGaussian)
        assert (
            budget.loss(laplace) * Fraction(99_99, 100_00)
            < budget.loss(chosen)
            <= budget.loss(laplace)
        )
        assert 0.9 * gain < ratio < 1.001 * gain
    for epsilon in (10, 20, 64):
        laplace, chosen, _ = leaf_noise(accountant, Fraction(epsilon))
        assert chosen is laplace


def test_pure_accounts_and_budgets_too_small_for_integers_keep_laplace_noise() -> None:
    laplace, chosen, _ = leaf_noise("pure", Fraction(1, 10))
    tiny, kept, _ = leaf_noise("gdp", Fraction(1, 2**32))

    assert chosen is laplace
    assert kept is tiny


@pytest.mark.parametrize("slug", ["rdt-ta", "mrf", "maxtree", "spe"])
def test_leaves_of_an_empty_dataset_carry_normal_noise_of_the_stated_deviation(
    slug: str,
) -> None:
    """T13 on a gdp account: mean and deviation of all released counts, each within 6.5
    standard errors.
    """
    settled = planned(slug, "gdp", "1", n_estimators=64, max_depth=2, **SEQUENTIAL)
    leaf_event = leaf_read_out.leaves_of(settled.event)
    forest = grow(
        settled,
        TWO_SPLITS,
        rows_of(EMPTY),
        SystemRandomness(),
        on_tree_done=lambda: None,
    )
    counts, deviation = forest.arrays["counts"], noisy_counts.noise_sd(leaf_event)
    n = counts.size

    assert isinstance(leaf_event, RoundedGaussian)
    assert n == 64 * 4 * 2
    assert abs(counts.mean()) < 6.5 * deviation / math.sqrt(n)
    assert abs(counts.std() / deviation - 1) < 6.5 / math.sqrt(2 * n)
    assert np.any(counts != 0, axis=0).all()


def test_a_row_moves_the_released_count_of_its_leaf_alone_by_what_was_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without noise: the query is unit · count, and unit² is the squared sensitivity in
    the event.
    """
    settled = planned("rdt-ta", "gdp", "1", max_depth=0)
    leaf_event = leaf_read_out.leaves_of(settled.event)
    queries: list[np.ndarray] = []
    honest = noisy_counts.in_whole_rows
    monkeypatch.setattr(
        noisy_counts,
        "in_whole_rows",
        lambda released, event: queries.append(released) or honest(released, event),
    )
    silent = SilentNormal()
    datasets_of_rows = [dict(enumerate(RECORDS[:n_rows])) for n_rows in range(4)]
    for dataset in datasets_of_rows:
        grow(settled, TWO_SPLITS, rows_of(dataset), silent, on_tree_done=lambda: None)

    for before, after in pairwise(queries):
        moved = (after - before).ravel()
        assert int((moved**2).sum()) == leaf_event.l2_sensitivity_squared
    assert [honest(query, leaf_event).sum() for query in queries] == [0, 1, 2, 3]


class SilentNormal(SystemRandomness):
    """Noise that is always zero."""

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


def test_a_row_that_counts_twice_breaks_the_curve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled = planned("rdt-ta", "gdp", "3", max_depth=0)
    pairs = list(add_remove_pairs(multisets(2)))
    assert share_of_charge(Laws(settled, TWO_SPLITS), pairs) <= 1.0 + TOLERANCE
    honest = LocalHistograms.of_tree

    class Twice:
        def __init__(self, rows: object) -> None:
            self._rows = rows

        def __getattr__(self, name: str) -> object:
            return getattr(self._rows, name)

        def leaf_histogram(self) -> np.ndarray:
            return 2 * self._rows.leaf_histogram()

    monkeypatch.setattr(
        LocalHistograms, "of_tree", lambda self, tree: Twice(honest(self, tree))
    )

    assert share_of_charge(Laws(settled, TWO_SPLITS), pairs) > 1.5


def test_released_counts_are_whole_rows_read_with_their_own_noise() -> None:
    settled = planned("rdt-ta", "gdp", "1", n_estimators=3)
    leaf_event = leaf_read_out.leaves_of(settled.event)
    laplace = DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1, 4), 8)
    unit = noisy_counts.per_row(leaf_event)
    near = np.array([0, unit // 2 - 1, unit // 2 + 1, -unit, 5 * unit - unit // 3])

    assert noisy_counts.in_whole_rows(near, leaf_event).tolist() == [0, 0, 1, -1, 5]
    assert noisy_counts.in_whole_rows(near, laplace).tolist() == near.tolist()
    assert leaf_read_out.noise_scale(laplace) == 4.0
    assert leaf_read_out.noise_scale(leaf_event) == pytest.approx(
        noisy_counts.noise_sd(leaf_event) / math.sqrt(2)
    )


def test_a_stored_plan_with_normal_noise_on_a_pure_account_is_refused() -> None:
    """Also a plan whose leaves have another unit than the events of this code."""
    settled = planned("rdt-ta", "gdp", "1")
    assert read_priced(settled.to_json(), TWO_SPLITS) == settled
    stored = settled.to_json()
    pure_account = {
        name: value
        for name, value in stored.items()
        if name not in ("accountant", "delta")
    }
    with pytest.raises(PlanInvalid):
        read_priced(pure_account, TWO_SPLITS)
    part = settled.event.parts[0]
    for square in (Fraction(2), Fraction(0), part.event.l2_sensitivity_squared - 1):
        odd = replace(part, event=replace(part.event, l2_sensitivity_squared=square))
        with pytest.raises(PlanInvalid):
            forest_price.require_priced(
                replace(settled, event=replace(settled.event, parts=(odd,))), TWO_SPLITS
            )


def test_artifacts_with_laplace_counts_of_an_account_with_a_delta_stay_readable() -> (
    None
):
    """Plans from before normal noise was introduced: the event states the noise that
    was drawn.
    """
    settled = planned("rdt-ta", "gdp", "1")
    part = settled.event.parts[0]
    laplace = DiscreteLaplace(
        Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1, 64), part.event.coordinates
    )
    stored = replace(
        settled, event=replace(settled.event, parts=(replace(part, event=laplace),))
    )
    read = forest_price.read_plan(stored.to_json())
    forest = grow(
        read, TWO_SPLITS, rows_of(EMPTY), SystemRandomness(), on_tree_done=lambda: None
    )

    assert isinstance(forest, Forest)
    assert forest.arrays["counts"].shape == (1, 2, 2)
