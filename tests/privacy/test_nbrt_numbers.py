"""Noise-matched boosting for a label that is a number: the sensitivity of production code
on any transcript, rows on their own, and flaws that break both.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from grovekeeper_forests.algorithms.nbrt import grow as grow_module
from grovekeeper_forests.algorithms.nbrt import targets
from grovekeeper_forests.algorithms.nbrt.boosted_rows import (
    BoostedRows,
    LocalNumberRows,
)
from grovekeeper_forests.algorithms.nbrt.grow import boost
from grovekeeper_forests.algorithms.nbrt.price import PricedDraws
from grovekeeper_forests.algorithms.nbrt.random_trees import random_tree
from grovekeeper_forests.algorithms.nbrt.read import leaf_scores
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.bins import number_targets
from grovekeeper_forests.data.coded_rows import RowParts
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import TARGET_STEPS
from grovekeeper_forests.kernels import boosting as kernels
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest
from tests.privacy.boosting_worlds import (
    Transcript,
    check_neighbours,
    number_plan_of,
    run,
)
from tests.support.schemas import number_schema

World = tuple[Encoding, NDArray[np.uint8], NDArray[np.int32]]


def world(
    n_rows: int,
    *,
    seed: int,
    width: int = TARGET_STEPS,
) -> World:
    """Random rows whose code depends on their features; the codes of every third row are
    anywhere, the others within ``width`` of each other.
    """
    rng = np.random.default_rng(seed)
    schema = number_schema(
        {"name": "a", "type": "integer", "lower": 0, "upper": 9},
        {"name": "b", "type": "categorical", "categories": ["x", "y", "z"]},
        lower=-5,
        upper=12,
    )
    encoding = Encoding.of(schema, 32)
    X = np.stack(
        [rng.integers(0, n, n_rows) for n in encoding.n_codes.tolist()], axis=1
    ).astype(np.uint8)
    near = TARGET_STEPS // 3 + X[:, 0].astype(np.int64) * width // 10
    far = rng.integers(0, TARGET_STEPS + 1, n_rows)
    y = np.where(
        np.arange(n_rows) % 3 == 0,
        far,
        np.minimum(near, TARGET_STEPS),
    )
    return encoding, X, y.astype(np.int32)


def worst_share(
    *,
    seed: int,
    mu_squared: float = 0.05,
    width: int = 2**20,
) -> float:
    """The largest share of the price of a tree that a row uses up, over neighbours."""
    encoding, X, y = world(40, seed=seed, width=width)
    plan = number_plan_of(n_trees=10, depth=2, mu_squared=mu_squared)
    whole = run(plan, encoding, X, y, Transcript(seed))
    largest = 0.0
    for row in range(0, 40, 3):
        is_kept = np.arange(40) != row
        script = Transcript(seed, whole.released, whole.selected)
        fewer = run(plan, encoding, X[is_kept], y[is_kept], script)
        largest = max(largest, check_neighbours(plan, whole, fewer))
    return largest


@pytest.mark.parametrize("mu_squared", [1e-5, 0.05, 2.0])
@pytest.mark.parametrize(
    "width",
    [2, 2**14, 2**23],
)
def test_a_row_adds_what_was_priced_and_no_more_on_any_transcript(
    mu_squared: float, width: int
) -> None:
    share = worst_share(seed=width % 7, mu_squared=mu_squared, width=width)
    assert 0.98 < share <= 1.0


def test_sensitivities_hold_after_unlikely_earlier_releases() -> None:
    """Whatever was released and selected before, for instance a spread of 2^-16 of the
    range and scores far beyond it.
    """
    encoding, X, y = world(12, seed=1)
    plan = number_plan_of(n_trees=8, depth=2)
    first = run(plan, encoding, X, y, Transcript(1))
    rng = np.random.default_rng(5)
    n_edges = len(number_targets.edges_of(encoding.schema.label))
    for chosen in (
        [0, 0],
        [n_edges - 1, 0],
        [n_edges // 2, number_targets.N_SPREADS - 1],
    ):
        script = [
            (
                rng.choice([-1, 1], each.shape)
                * np.exp2(rng.uniform(0, 50, each.shape))
            ).astype(np.int64)
            for each in first.released
        ]
        whole = run(
            plan,
            encoding,
            X,
            y,
            Transcript(1, script, chosen),
        )
        for row in range(12):
            is_kept = np.arange(12) != row
            replayed = Transcript(1, script, chosen)
            fewer = run(plan, encoding, X[is_kept], y[is_kept], replayed)
            check_neighbours(plan, whole, fewer)


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("max_rows", [1, 3])
def test_a_whole_job_on_one_transcript(
    accountant: str, depth: int, max_rows: int
) -> None:
    """From the plan to the forest, with private bins: every query of every release, with
    and without each row, and the price of a unit of several rows.
    """
    schema = number_schema(
        {"name": "f", "type": "numeric", "lower": -1, "upper": 1}, lower=0, upper=60
    )
    body = {"n_estimators": 8, "max_depth": depth}
    terms = Terms(
        Fraction(2),
        accountant,
        Fraction(1, 10**6),
        max_rows=max_rows,
    )
    plan = forest_price.plan(PlanRequest("auto", {}, terms, 60), schema)
    assert plan.algorithm == "nbrt"
    plan = forest_price.plan(PlanRequest("nbrt", body, terms, 60), schema)
    assert plan.terms.covers(plan.event)
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, 30)
    y = rng.integers(0, TARGET_STEPS + 1, 30).astype(np.int32)

    def grown(is_kept: NDArray[np.bool_], transcript: Transcript) -> Transcript:
        n_rows = int(is_kept.sum())
        columns = SanitisedColumns((X[is_kept],), n_rows)
        ids = np.zeros((n_rows, 16), dtype=np.uint8)
        rows = SanitisedRows(columns, y[is_kept], ids)
        grow(plan, schema, rows, transcript, on_tree_done=lambda: None)
        return transcript

    whole = grown(
        np.ones(30, dtype=np.bool_),
        Transcript(8),
    )
    n_medians = 0 if depth == 0 else 15
    assert len(whole.selected) >= 2
    assert len(whole.selected) <= n_medians + 2
    for row in range(0, 30, 4):
        script = Transcript(8, whole.released, whole.selected)
        fewer = grown(np.arange(30) != row, script)
        for one, other in zip(
            whole.utilities[:-2],
            fewer.utilities,
            strict=False,
        ):
            assert int(np.ptp(one - other)) <= 2
        del fewer.utilities[:-2]
        if depth:
            check_neighbours(
                plan, replace(whole, utilities=whole.utilities[-2:]), fewer
            )
            continue
        [mean], [other_mean] = whole.exact, fewer.exact
        squared = int(np.square((mean - other_mean).astype(object)).sum())
        assert 0 < squared <= PricedDraws.of(plan.event).start


def test_a_replaced_row_is_a_row_more_and_a_row_less() -> None:
    """A changed number moves sums by twice the length at most: four times the squared
    sensitivity, and twice the range.
    """
    encoding, X, y = world(20, seed=4, width=2**20)
    plan = number_plan_of(n_trees=6, depth=2)
    parts = PricedDraws.of(plan.event)
    priced = [parts.start, *[parts.tree] * 6, parts.tally]
    whole = run(plan, encoding, X, y, Transcript(4))
    largest = Fraction(0)
    for row in range(20):
        changed = y.copy()
        changed[row] = 0 if y[row] > TARGET_STEPS // 2 else TARGET_STEPS
        script = Transcript(4, whole.released, whole.selected)
        other = run(plan, encoding, X, changed, script)
        for one, two, square in zip(
            whole.exact,
            other.exact,
            priced,
            strict=True,
        ):
            moved = int(np.square((one - two).astype(object)).sum())
            assert moved <= 4 * square
            largest = max(largest, Fraction(moved, square))
        for mine, theirs, sensitivity in zip(
            whole.utilities,
            other.utilities,
            (number_targets.MIDDLE_SENSITIVITY, number_targets.SPREAD_SENSITIVITY),
            strict=True,
        ):
            assert int(np.ptp(mine - theirs)) <= 2 * sensitivity
    assert largest > 3


# --- flaws that would break it ------------------------------------------------------------------------------------


_honest = kernels.gradients_of_numbers


def _unclipped(
    scores: NDArray[np.int64],
    y: NDArray[np.int32],
    start: NDArray[np.int64],
    scales: Scales,
) -> NDArray[np.int32]:
    """Residuals of any length: the price does not bound that of a row far away."""
    z = (y - start[0]) / start[1] - scores[:, 0] / 2**16
    raw = z * scales.length / (scales.clip / 2**24)
    return np.clip(raw, -(2**30), 2**30).astype(np.int32)[:, np.newaxis]


def _in_spreads_of_the_rows(
    scores: NDArray[np.int64],
    y: NDArray[np.int32],
    start: NDArray[np.int64],
    scales: Scales,
) -> NDArray[np.int32]:
    """Residuals in the deviation of the rows at hand, in place of the released spread."""
    own = np.array(
        [start[0], max(int(y.std()), 1)],
        dtype=np.int64,
    )
    return _honest(scores, y, own, scales)


def _around_the_mean_of_the_rows(
    scores: NDArray[np.int64],
    y: NDArray[np.int32],
    start: NDArray[np.int64],
    scales: Scales,
) -> NDArray[np.int32]:
    """Residuals from the exact mean of the rows, in place of the released start."""
    own = np.array(
        [int(y.mean()), start[1]],
        dtype=np.int64,
    )
    return _honest(scores, y, own, scales)


@pytest.mark.parametrize(
    "flaw", [_unclipped, _in_spreads_of_the_rows, _around_the_mean_of_the_rows]
)
def test_a_flawed_residual_is_seen(
    flaw: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    worst_share(seed=2, width=2**20)
    monkeypatch.setattr(kernels, "gradients_of_numbers", flaw)
    with pytest.raises(AssertionError):
        worst_share(seed=2, width=2**20)


def test_counts_without_their_share_of_the_price_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gradients that take all of C² + m² leave no share of the price for the counts."""
    honest = Scales.for_loss

    def greedy(priced: int, loss: object, *, n_trees: int) -> Scales:
        scales = honest(priced, loss, n_trees=n_trees)
        return replace(scales, squared_length=priced, length=int(priced**0.5))

    monkeypatch.setattr(Scales, "for_loss", greedy)
    with pytest.raises(AssertionError):
        worst_share(seed=2)


@pytest.mark.parametrize("name", ["middle_utilities", "spread_utilities"])
def test_utilities_of_another_scale_are_seen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = getattr(number_targets, name)
    monkeypatch.setattr(number_targets, name, lambda *given: 2 * honest(*given))
    with pytest.raises(AssertionError):
        worst_share(seed=2, width=2**20)


def test_a_handicap_that_follows_from_the_rows_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = number_targets.spread_utilities

    def biased(
        by_distance: NDArray[np.int64],
        scale: Fraction,
    ) -> NDArray[np.int64]:
        steps = np.arange(number_targets.N_SPREADS)
        return honest(by_distance, scale) - 10 * int(by_distance.sum()) * steps

    monkeypatch.setattr(number_targets, "spread_utilities", biased)
    with pytest.raises(AssertionError):
        worst_share(seed=2)


def test_a_start_from_exact_counts_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A middle that the rows choose without noise: neighbours leave the transcript."""
    honest = grow_module._start_of_number

    def exact(
        parts: object, label: object, rows: BoostedRows, randomness: object
    ) -> object:
        start = honest(parts, label, rows, randomness)
        edges = number_targets.edges_of(label)
        best = number_targets.middle_utilities(rows.target_counts(edges)).argmax()
        return np.array(
            [edges[best], start[1]],
            dtype=np.int64,
        )

    monkeypatch.setattr(grow_module, "_start_of_number", exact)
    encoding, X, y = world(9, seed=3)
    y = (np.arange(9) * (TARGET_STEPS // 9)).astype(np.int32)
    plan = number_plan_of(n_trees=6, depth=1)
    whole = run(plan, encoding, X, y, Transcript(3))
    with pytest.raises(AssertionError):
        for row in range(9):
            is_kept = np.arange(9) != row
            script = Transcript(3, whole.released, whole.selected)
            fewer = run(plan, encoding, X[is_kept], y[is_kept], script)
            check_neighbours(plan, whole, fewer)


# --- every row on its own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [1, 2**10, TARGET_STEPS])
def test_the_integers_of_a_row_do_not_depend_on_other_rows_order_or_partition(
    spread: int,
) -> None:
    """Dropping, permuting, re-batching and re-partitioning rows leaves every other row's
    integers identical, and sums over parts add up.
    """
    encoding, X, y = world(700, seed=9, width=2**20)
    scales = Scales.of(2**36, n_trees=40, n_classes=0)
    of_mean = targets.mean_scales(2**36)
    start = np.array([TARGET_STEPS // 3, spread], dtype=np.int64)
    randomness = SystemRandomness()
    edges = number_targets.edges_of(encoding.schema.label)
    whole = LocalNumberRows(X, y, n_classes=0)
    whole.start(start, scales)
    trees, scored = [], []
    for _ in range(20):
        trees.append(random_tree(encoding, depth=3, randomness=randomness))
        sums = whole.sums(trees[-1])
        noise = randomness.rounded_gaussian(sums.shape, scale_bits=24)
        scored.append(leaf_scores(sums + noise, scales))
        whole.add_scores(trees[-1], scored[-1])

    def rows_at(index: NDArray[np.int64]) -> LocalNumberRows:
        rows = LocalNumberRows(
            np.ascontiguousarray(X[index]),
            y[index],
            n_classes=0,
        )
        rows.start(start, scales)
        for tree, own in zip(trees, scored, strict=True):
            rows.add_scores(tree, own)
        return rows

    def totals(rows: LocalNumberRows | BoostedRows) -> list[NDArray[np.int64]]:
        return [
            rows.sums(trees[0]),
            rows.residual_sums(of_mean),
            rows.target_counts(edges),
            rows.target_counts(number_targets.distances(), int(start[0])),
        ]

    every = np.arange(len(y))
    gradients = whole._gradients()
    assert len(np.unique(gradients)) > 1
    rng = np.random.default_rng(0)
    parts = np.array_split(rng.permutation(every), 7)
    for index in (every[1:], every[::-1], rng.permutation(every), *parts, every[:1]):
        rows = rows_at(index)
        assert np.array_equal(rows._scores, whole._scores[index])
        assert np.array_equal(rows._gradients(), gradients[index])
    parted = BoostedRows(RowParts([rows_at(index) for index in parts]))
    for one, other in zip(
        totals(parted),
        totals(whole),
        strict=True,
    ):
        assert np.array_equal(one, other)
    assert whole.target_counts(edges).sum() == 700


# --- any rows at all ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [0, 1, 5])
@pytest.mark.parametrize("code", [None, 0, TARGET_STEPS])
def test_any_number_of_rows_gives_a_forest_of_the_planned_shape(
    n_rows: int, code: int | None
) -> None:
    encoding, X, y = world(n_rows, seed=3)
    if code is not None:
        y = np.full_like(y, code)
    plan = number_plan_of(n_trees=6, depth=3)
    reports = []
    result = boost(
        plan,
        encoding,
        LocalNumberRows(X, y, n_classes=0),
        SystemRandomness(),
        on_tree_done=lambda: reports.append(None),
    )
    assert result.start.shape == (2,)
    assert 0 <= result.start[0] <= TARGET_STEPS
    assert 1 <= result.start[1] <= TARGET_STEPS
    assert result.scores.shape == (6, 8, 1)
    assert (result.scores != 0).mean() > 0.9  # every leaf has noise
    assert result.temperature is None
    assert len(reports) == 6


def test_leaves_and_means_of_no_rows_hold_noise_of_the_right_spread() -> None:
    encoding, X, y = world(0, seed=0)
    plan = number_plan_of(n_trees=40, depth=3)
    seen = run(plan, encoding, X, y, Transcript(0))
    noise = np.concatenate([release.ravel() for release in seen.released]) / 2**24
    assert all(not exact.any() for exact in seen.exact)
    assert noise.size == 2 + 40 * 8 * 2 + 2
    assert abs(noise.mean()) < 6.5 / noise.size**0.5
    assert abs((noise**2).mean() - 1) < 6.5 * (2 / noise.size) ** 0.5
