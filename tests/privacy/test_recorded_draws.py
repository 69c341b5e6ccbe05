"""T4 for whole jobs: given equal releases, the exact numbers of a job move with one row by what was charged for it.

A job is recorded with real noise. Then it runs on a neighbour, and every draw answers what it answered before. Each
draw must have the scale of a leaf of the event and move by at most the sensitivity of that leaf; the event of all
moves together must cost no more than the charge.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.forests import catalogue, planning
from app.forests.contract.plan import Plan
from app.forests.data.coded_rows import TrainingRows
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.grow import FROM_VALUES, code_request, grow
from app.forests.noise.randomness import SystemRandomness
from app.forests.trees import row_parts
from app.privacy import accountants
from app.privacy.adjacency import Adjacency
from app.privacy.events import (
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
)
from tests.privacy.enumeration import Noise
from tests.privacy.noiseless import coded
from tests.support.plans import request_for
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "size", "type": "numeric", "lower": 0, "upper": 9, "missing": True},
    {"name": "age", "type": "numeric", "lower": 0, "upper": 9},
    {"name": "colour", "type": "categorical", "categories": ["red", "blue", "green"]},
    classes=["no", "maybe", "yes"],
)
N_ROWS = 240
Leaf = PermuteAndFlip | ExponentialMechanism | DiscreteLaplace | RoundedGaussian


class Draw(NamedTuple):
    kind: type[Leaf] | str
    scale: object
    exact: np.ndarray | None
    released: Any


class Recorder:
    """A ``Randomness`` that records every draw, and repeats the releases of an earlier record."""

    def __init__(self, replayed: list[Draw] | None = None) -> None:
        self._source, self._replayed, self.draws = SystemRandomness(), replayed, list[Draw]()

    def uniform(self, n: int) -> int:
        return self.answered("uniform", n, None, lambda: self._source.uniform(n))

    def bernoulli(self, p: Fraction) -> bool:
        return self.answered("bernoulli", p, None, lambda: self._source.bernoulli(p))

    def permute_and_flip(self, utilities: np.ndarray, *, inverse_scale: Fraction) -> int:
        def draw() -> int:
            return self._source.permute_and_flip(utilities, inverse_scale=inverse_scale)

        return self.answered(PermuteAndFlip, inverse_scale, utilities, draw)

    def select_exponential(self, utilities: np.ndarray, *, inverse_scale: Fraction) -> int:
        def draw() -> int:
            return self._source.select_exponential(utilities, inverse_scale=inverse_scale)

        return self.answered(ExponentialMechanism, inverse_scale, utilities, draw)

    def discrete_laplace(self, shape: tuple[int, ...], *, inverse_scale: Fraction) -> "_Added":
        noise = self._source.discrete_laplace(shape, inverse_scale=inverse_scale)
        return _Added(self, DiscreteLaplace, inverse_scale, noise)

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> "_Added":
        noise = self._source.rounded_gaussian(shape, scale_bits=scale_bits)
        return _Added(self, RoundedGaussian, Fraction(4**scale_bits), noise)

    def answered(self, kind: type[Leaf] | str, scale: object, exact: np.ndarray | None, draw: Any) -> Any:
        released = draw() if self._replayed is None else self._replayed[len(self.draws)].released
        self.draws.append(Draw(kind, scale, None if exact is None else exact.copy(), released))
        return released


class _Added(Noise):
    def __init__(self, recorder: Recorder, kind: type[Leaf], scale: Fraction, noise: np.ndarray) -> None:
        self._recorder, self._kind, self._scale, self._noise = recorder, kind, scale, noise

    def added_to(self, exact: np.ndarray) -> np.ndarray:
        assert exact.shape == self._noise.shape
        return self._recorder.answered(self._kind, self._scale, exact, lambda: exact + self._noise)


def leaves(event: Event) -> Iterator[Leaf]:
    for part in event.parts if isinstance(event, Sequential | Parallel) else ():
        yield from leaves(part.event)
    if isinstance(event, Leaf):
        yield event


def scale_of(leaf: Leaf) -> Fraction:
    return leaf.sigma_squared if isinstance(leaf, RoundedGaussian) else leaf.inverse_scale


def moved(leaf: Leaf, change: np.ndarray) -> Leaf:
    """The leaf with the sensitivity that one pair of neighbours shows."""
    numbers = change.astype(object)
    if isinstance(leaf, RoundedGaussian):
        return replace(leaf, l2_sensitivity_squared=Fraction(int((numbers**2).sum())))
    if isinstance(leaf, DiscreteLaplace):
        return replace(leaf, l1_sensitivity=Fraction(int(abs(numbers).sum())))
    return replace(leaf, range_sensitivity=Fraction(int(numbers.max() - numbers.min())))


def check(event: Event, one: list[Draw], other: list[Draw], *, accountant: str) -> float:
    """Asserts what the module states on two records; returns the share of the charge that the moves cost."""
    assert [draw[:2] for draw in one] == [draw[:2] for draw in other]
    declared, parts = list(leaves(event)), list[Part]()
    for mine, theirs in zip(one, other, strict=True):
        if mine.exact is None or theirs.exact is None or not (mine.exact != theirs.exact).any():
            continue
        paying = [leaf for leaf in declared if type(leaf) is mine.kind and scale_of(leaf) == mine.scale]
        assert paying, "a row moves a draw that no leaf of its event pays for"
        leaf = moved(paying[0], mine.exact - theirs.exact)
        assert max(_sensitivity(own) for own in paying) >= _sensitivity(leaf)
        parts.append(Part(1, leaf))
    if not parts:
        return 0.0
    loss = accountants.by_name(accountant).loss
    adjacency = declared[0].adjacency
    cost, charge = loss(Sequential(tuple(parts)), adjacency=adjacency), loss(event, adjacency=adjacency)
    assert cost <= charge
    return float(cost / charge)


def _sensitivity(leaf: Leaf) -> Fraction:
    if isinstance(leaf, RoundedGaussian):
        return leaf.l2_sensitivity_squared
    return leaf.l1_sensitivity if isinstance(leaf, DiscreteLaplace) else leaf.range_sensitivity


def rows_of(n_rows: int = N_ROWS, seed: int = 0) -> SanitisedRows:
    """Rows whose labels follow from their values; the first one alone misses a value, the second is an outlier."""
    generator = np.random.default_rng(seed)
    size, age = (generator.uniform(0, 9, n_rows) for _ in range(2))
    labels = np.where(size < 4.5, 0, np.where(age < 1, 1, 2)).astype(np.int32)
    size[0], (size[1], age[1], labels[1]) = np.nan, (1, 5, 2)
    columns = SanitisedColumns((size, age, generator.integers(0, 3, n_rows).astype(np.int32)), n_rows)
    return SanitisedRows(columns, labels, generator.integers(0, 256, (n_rows, 16), dtype=np.uint8))


def without(rows: SanitisedRows, gone: int) -> SanitisedRows:
    kept = np.arange(len(rows.y)) != gone
    columns = tuple(column[kept] for column in rows.features.columns)
    return SanitisedRows(SanitisedColumns(columns, int(kept.sum())), rows.y[kept], rows.row_ids[kept])


def relabelled(rows: SanitisedRows, changed: int) -> SanitisedRows:
    labels = rows.y.copy()
    labels[changed] = (labels[changed] + 1) % 3
    return replace(rows, y=labels)


def recorded(
    plan: Plan, rows: SanitisedRows, second: SanitisedRows, *, is_coded: bool, replayed: list[Draw] | None = None
) -> list[Draw]:
    def form(values: SanitisedRows) -> TrainingRows:
        asked = code_request(plan, SCHEMA) if is_coded else None
        return values if asked is None else coded(values, asked)

    recorder = Recorder(replayed)
    unlabelled = None if plan.unlabelled is None else form(second)
    grow(plan, SCHEMA, form(rows), recorder, on_tree_done=lambda: None, unlabelled=unlabelled)  # type: ignore[arg-type]
    return recorder.draws


CASES = [
    *((slug, name, {}) for slug in catalogue.BY_SLUG for name in catalogue.algorithm(slug).accountants),
    *(("mrf", name, {"selection": "two_stage"}) for name in ("pure", "zcdp", "gdp")),
    *(("mrf", name, {"assignment": "sharded", "se": "hash"}) for name in ("pure", "zcdp", "gdp")),
    *(("bms-rf", name, {"n_layers": 2, "selection": "two_stage"}) for name in ("pure", "gdp")),
    *(("nbrt", name, {"start": "split", "calibration": "measured"}) for name in ("zcdp", "gdp")),
]


FORMS = [
    *((*case, False) for case in CASES),
    *((*case, True) for case in CASES if case[0] not in FROM_VALUES),  # the others read values alone
]


@pytest.mark.parametrize(("slug", "accountant", "parameters", "is_coded"), FORMS)
def test_a_row_moves_the_exact_numbers_of_a_job_by_what_was_charged(
    monkeypatch: pytest.MonkeyPatch, slug: str, accountant: str, parameters: dict[str, object], is_coded: bool
) -> None:
    monkeypatch.setattr(row_parts, "PART_ROWS", 100)
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    shape = {"n_estimators": 3, "max_depth": 2, **parameters}
    request = request_for(slug, shape, Fraction(4), N_ROWS, accountant=accountant, delta=delta)
    plan = planning.plan(request, SCHEMA)
    rows, second, shares = rows_of(), rows_of(seed=1), list[float]()
    whole = recorded(plan, rows, second, is_coded=is_coded)
    neighbour = relabelled if plan.adjacency is Adjacency.LABEL else without
    for row in (0, 1, 120, N_ROWS - 1):
        seen = recorded(plan, neighbour(rows, row), second, is_coded=is_coded, replayed=whole)
        shares.append(check(plan.event, whole, seen, accountant=accountant))
        if plan.unlabelled is not None:
            seen = recorded(plan, rows, without(second, row), is_coded=is_coded, replayed=whole)
            shares.append(check(plan.unlabelled.event, whole, seen, accountant=accountant))
    assert max(shares) > 0
