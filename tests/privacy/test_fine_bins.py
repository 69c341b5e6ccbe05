"""T1 and T2 on private bins of the fine grid: the exact law of the production code over
every small dataset.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.privacy import accountants, events
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
)
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_verifier import events as verifier_events
from tests.privacy.enumeration import (
    TOLERANCE,
    EnumeratingRandomness,
    aligned,
    loss,
    output_law,
)
from tests.privacy.test_quantiles_exact_loss import used_share
from tests.support.schemas import schema_of

MANY = 10**9
"""A public size at which the fine grid is used."""

SCHEMA = schema_of(
    {"name": "f", "type": "numeric", "lower": 0.25, "upper": 6.25},
    classes=["a", "b"],
    label="y",
)
(FEATURE,) = SCHEMA.features
VALUES = (0.5, 2.0, 3.0, 3.5, 5.0, 6.0)
"""One in each cell; the coarse edge is in the middle."""

Rows = tuple[float, ...]
Law = dict[bytes, float]


@pytest.fixture(autouse=True)
def small_grids(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One coarse edge and four others, cut two levels deep."""
    for name, value in (
        ("_EQUAL_STEPS", 2),
        ("_GEOMETRIC_STEPS", range(0)),
        ("_FINE_STEPS", 6),
        ("_COARSE_MASS", 1),
        ("_FREE_CELLS", 1),
        ("LEVELS", 2),
        ("MAX_CUTS", 3),
    ):
        monkeypatch.setattr(quantile_bins, name, value)
    quantile_bins._cached_edges.cache_clear()
    yield
    quantile_bins._cached_edges.cache_clear()


def law(event: Event, rows: Rows) -> Law:
    def run(randomness: EnumeratingRandomness) -> bytes:
        return releases.release_cuts(
            SCHEMA,
            event,
            cell_counts=lambda index, grid: releases.cell_counts(
                SCHEMA.features[index], np.array(rows, dtype=np.float64), grid
            ),
            randomness=randomness,  # type: ignore[arg-type]
        ).tobytes()

    return output_law(run)


def priced(
    epsilon: Fraction = Fraction(1),
    selection: type = PermuteAndFlip,
) -> Event:
    return quantile_bins.event(SCHEMA, epsilon, size=MANY, selection=selection)


def pairs(
    event: Event,
    *,
    n_rows: int = 3,
) -> Iterator[tuple[Law, Law]]:
    """The laws of datasets of which one has a row more."""

    @cache
    def law_of(rows: Rows) -> Law:
        return law(event, rows)

    for size in range(n_rows):
        for rows in itertools.combinations_with_replacement(VALUES, size):
            for value in VALUES:
                yield law_of(rows), law_of(tuple(sorted((*rows, value))))


def worst(event: Event) -> float:
    return max(loss(*pair) for pair in pairs(event))


def first_cuts(event: Event) -> dict[int, float]:
    """The law of a single cut where there is no row."""
    return {
        int(np.frombuffer(cuts, dtype=np.uint16)[0]): chance
        for cuts, chance in law(event, ()).items()
    }


def test_the_prior_is_a_handicap_of_fine_edges() -> None:
    edges = quantile_bins.grid_edges(FEATURE, Grid.FINE)
    scale = Fraction(1, 100)

    assert edges.tolist() == pytest.approx([1.25, 2.25, 3.25, 4.25, 5.25])
    fine = quantile_bins.handicaps(FEATURE, Grid.FINE, scale)
    assert fine.tolist() == [139, 139, 0, 139, 139]  # 100 · log 4
    assert quantile_bins.handicaps(FEATURE, Grid.COARSE, scale).tolist() == [0]


def test_the_exponential_mechanism_follows_the_prior_where_no_row_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quantile_bins, "LEVELS", 1)
    event = priced(Fraction(1, 500), ExponentialMechanism)

    assert first_cuts(event) == pytest.approx(
        {1: 1 / 8, 2: 1 / 8, 3: 4 / 8, 4: 1 / 8, 5: 1 / 8}, rel=0.01
    )


def test_permute_and_flip_prefers_the_coarse_edge_where_no_row_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quantile_bins, "LEVELS", 1)
    chances = first_cuts(priced(Fraction(1, 500)))

    assert chances[3] > 1 / 2
    assert all(chances[other] == pytest.approx(chances[1]) for other in (2, 4, 5))


@pytest.mark.parametrize("epsilon", ["0.2", "1", "4"])
@pytest.mark.parametrize("selection", [PermuteAndFlip, ExponentialMechanism])
def test_cuts_of_the_fine_grid_lose_at_most_the_claim(
    epsilon: str, selection: type
) -> None:
    event = priced(Fraction(epsilon), selection)
    claim = float(pure.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE))

    assert quantile_bins.grid_of(event) is Grid.FINE
    assert claim <= float(Fraction(epsilon))
    assert 0.4 * claim < worst(event) <= claim + TOLERANCE


def test_every_level_follows_the_prior() -> None:
    """Where no row is, of the cuts that follow one at the lowest edge."""
    chances = law(priced(Fraction(1, 500), ExponentialMechanism), ())

    def chance(*cuts: int) -> float:
        return chances[np.array(cuts, dtype=np.uint16).tobytes()]

    at_the_coarse_edge = chance(1, 3, 0)
    for fine in (2, 4):
        assert at_the_coarse_edge == pytest.approx(
            4 * chance(1, fine, 0),
            rel=0.02,
        )


@pytest.mark.parametrize("accountant", [zcdp.NAME, gdp.NAME])
@pytest.mark.parametrize("selection", [PermuteAndFlip, ExponentialMechanism])
def test_cuts_of_the_fine_grid_lose_their_price_in_rho_and_mu(
    accountant: str, selection: type
) -> None:
    event = priced(Fraction(2), selection)
    accounting = accountants.by_name(accountant)
    claim = float(accounting.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE))
    used = max(
        used_share(accountant, claim, *order)
        for pair in pairs(event)
        for order in itertools.permutations(aligned(*pair))
    )

    assert 0.1 < used <= 1 + TOLERANCE


@pytest.mark.parametrize(
    "accountant",
    [pure.NAME, zcdp.NAME, gdp.NAME],
)
@pytest.mark.parametrize("max_rows", [2, 3])
def test_a_unit_of_several_rows_loses_at_most_the_price_of_its_terms(
    accountant: str, max_rows: int
) -> None:
    """At the price that a profile of a unit's account pays, by its own mechanism."""
    delta = None if accountant == pure.NAME else Fraction(1, 10**6)
    terms = Terms(Fraction(2), accountant, delta, max_rows=max_rows)
    facts = public_facts(terms, MANY, SCHEMA)
    event = quantile_bins.price_bins(SCHEMA, facts.epsilon, facts.budget, size=MANY)
    accounting = accountants.by_name(accountant)
    of_a_row = accounting.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE)
    claim = float(accounting.group(max_rows) * of_a_row)
    assert quantile_bins.grid_of(event) is Grid.FINE
    facts.require_covered(event)

    found = []
    for others in ((), (0.5,), (3.0, 3.5)):
        for value in VALUES:
            unit = (*others, *[value] * max_rows)
            pair = law(event, others), law(event, unit)
            if accountant == pure.NAME:
                found.append(loss(*pair) / claim)
                continue
            for order in itertools.permutations(aligned(*pair)):
                found.append(used_share(accountant, claim, *order))
    assert 0.1 < max(found) <= 1 + TOLERANCE


def test_a_replaced_row_loses_at_most_twice_the_claim() -> None:
    event = priced()
    found = max(
        loss(
            law(event, (*rows, one)),
            law(event, (*rows, other)),
        )
        for rows in ((), (0.5,), (3.0, 3.5))
        for one, other in itertools.combinations(VALUES, 2)
    )

    assert 0.9 < found <= 2 + TOLERANCE


def test_every_set_of_cuts_can_come_from_every_dataset() -> None:
    event = priced(Fraction(3))
    support = law(event, ()).keys()

    assert len(support) > 4
    for rows in ((0.5,), (6.0,) * 5, VALUES, (3.0,) * 9):
        assert law(event, rows).keys() == support


def _cuts_with(
    change: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Callable[..., list[int]]:
    """The cuts with handicaps that are computed from counts of rows, too."""
    honest = releases._cuts_of

    def changed(
        counts: np.ndarray, of_edges: np.ndarray, select: object, depth: int
    ) -> list[int]:
        return honest(counts, change(counts, of_edges), select, depth)  # type: ignore[arg-type]

    return changed


def _less_beside_rows(counts: np.ndarray, of_edges: np.ndarray) -> np.ndarray:
    return of_edges - 2 * (counts[1:] + counts[:-1])


def _by_an_exact_test(counts: np.ndarray, of_edges: np.ndarray) -> np.ndarray:
    """A handicap where the cells on both sides are empty."""
    return np.where(
        counts[1:] + counts[:-1] > 0,
        0,
        20,
    )


@pytest.mark.parametrize("flaw", [_less_beside_rows, _by_an_exact_test])
def test_handicaps_that_follow_the_rows_lose_more(
    monkeypatch: pytest.MonkeyPatch, flaw: Callable[..., np.ndarray]
) -> None:
    monkeypatch.setattr(releases, "_cuts_of", _cuts_with(flaw))

    assert worst(priced()) > 1.1


def test_a_grid_that_follows_the_rows_is_an_infinite_loss() -> None:
    event, coarse = (
        priced(),
        quantile_bins.event(
            SCHEMA,
            Fraction(1),
            size=0,
        ),
    )

    def of_rows(rows: Rows) -> Law:
        return law(event if len(rows) > 1 else coarse, rows)

    assert loss(of_rows((0.5,)), of_rows((0.5, 0.5))) == math.inf


def test_half_of_the_range_would_be_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantile_bins, "RANGE_SENSITIVITY", 1)

    assert worst(priced()) > 1.1


@pytest.mark.parametrize(
    "accountant",
    [pure.NAME, zcdp.NAME, gdp.NAME],
)
@pytest.mark.parametrize("selection", [PermuteAndFlip, ExponentialMechanism])
def test_a_verifier_computes_the_same_price(accountant: str, selection: type) -> None:
    event = priced(Fraction(1, 8), selection)
    charged = accountants.by_name(accountant).loss(
        event, adjacency=Adjacency.ADD_REMOVE_ONE
    )
    verified = verifier_events.total(
        event.to_json(), adjacency="add_remove", accountant=accountant
    )

    assert float(verified) == pytest.approx(float(charged), rel=1e-9)
    assert verified <= charged
    assert events.from_json(event.to_json()) == event


def test_many_features_are_cut_on_the_coarse_grid() -> None:
    features = [
        {"name": f"f{number}", "type": "numeric", "lower": 0.25, "upper": 6.25}
        for number in range(51)
    ]
    for n_features, grid in ((50, Grid.FINE), (51, Grid.COARSE)):
        of = schema_of(
            *features[:n_features],
            classes=["a", "b"],
            label="y",
        )
        event = quantile_bins.event(of, Fraction(100), size=MANY)
        assert quantile_bins.grid_of(event) is grid


def test_the_grid_is_named_by_the_event_and_follows_from_public_numbers() -> None:
    fine = priced()
    coarse = quantile_bins.event(SCHEMA, Fraction(1), size=999)
    at_the_border = quantile_bins.event(SCHEMA, Fraction(1), size=1_000)

    assert quantile_bins.grid_of(fine) is Grid.FINE
    assert quantile_bins.grid_of(coarse) is Grid.COARSE
    assert quantile_bins.grid_of(at_the_border) is Grid.FINE
    for size, grid in ((1_279, Grid.COARSE), (1_280, Grid.FINE)):  # 20 at ε₀ = 1/64
        weak = quantile_bins.event(SCHEMA, Fraction(1, 32), size=size)
        assert quantile_bins.grid_of(weak) is grid
    (part,) = fine.parts  # type: ignore[union-attr]
    assert isinstance(part, Part)
    assert isinstance(part.event, Sequential)
    level = part.event.parts[0].event
    assert isinstance(level, Parallel)
    assert level.over == "intervals of fine cells"
