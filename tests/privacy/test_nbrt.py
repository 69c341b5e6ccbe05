"""Noise-matched boosting: the sensitivity of production code on any transcript, and
flaws that break it.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from grovekeeper_forests.algorithms.nbrt import boosted_rows, read
from grovekeeper_forests.algorithms.nbrt import boosted_rows as rows_module
from grovekeeper_forests.algorithms.nbrt.boosted_rows import LocalBoostedRows
from grovekeeper_forests.algorithms.nbrt.grow import boost
from grovekeeper_forests.algorithms.nbrt.random_trees import random_tree
from grovekeeper_forests.algorithms.nbrt.read import leaf_scores
from grovekeeper_forests.algorithms.nbrt.scales import Scales
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.kernels import boosting as kernels
from grovekeeper_forests.kernels import node_rows
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases import contract
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest
from grovekeeper_forests.releases.profile import draw as profile_draw
from grovekeeper_forests.releases.profile import price as profile_price
from tests.privacy.boosting_worlds import Transcript, check_neighbours, plan_of, run
from tests.support.schemas import schema_of


def world(
    n_rows: int, n_classes: int, *, seed: int
) -> tuple[Encoding, NDArray[np.uint8], NDArray[np.int32]]:
    """Random rows whose class depends on their features."""
    rng = np.random.default_rng(seed)
    schema = schema_of(
        {"name": "a", "type": "integer", "lower": 0, "upper": 9},
        {"name": "b", "type": "categorical", "categories": ["x", "y", "z"]},
        {"name": "c", "type": "integer", "lower": 0, "upper": 3},
        classes=[str(k) for k in range(n_classes)],
        label="k",
    )
    encoding = Encoding.of(schema, 32)
    X = np.stack(
        [rng.integers(0, n, n_rows) for n in encoding.n_codes.tolist()], axis=1
    ).astype(np.uint8)
    y = ((X[:, 0] // 4 + X[:, 1] + rng.integers(0, 2, n_rows)) % n_classes).astype(
        np.int32
    )
    return encoding, X, y


def real(n_classes: int) -> tuple[Encoding, NDArray[np.uint8], NDArray[np.int32]]:
    """A bundled table, in sixteen equal bins per column."""
    table = load_breast_cancer() if n_classes == 2 else load_digits()
    low, high = table.data.min(axis=0), table.data.max(axis=0)
    X = np.floor((table.data - low) / np.maximum(high - low, 1e-9) * 15.999).astype(
        np.uint8
    )
    features = [
        {"name": f"f{i}", "type": "integer", "lower": 0, "upper": 15}
        for i in range(X.shape[1])
    ]
    classes = [str(k) for k in range(n_classes)]
    schema = schema_of(*features, classes=classes, label="k")
    return Encoding.of(schema, 32), X, table.target.astype(np.int32)


# --- sensitivity --------------------------------------------------------------------------------------------------


def worst_share(
    n_classes: int,
    *,
    seed: int,
    mu_squared: float = 0.05,
    split: Fraction = Fraction(0),
) -> float:
    encoding, X, y = world(40, n_classes, seed=seed)
    plan = plan_of(
        n_trees=10, depth=2, mu_squared=mu_squared, tally_share=0.02, split=split
    )
    whole = run(plan, encoding, X, y, Transcript(seed))
    largest = 0.0
    for row in range(0, 40, 3):
        is_kept = np.arange(40) != row
        fewer = run(
            plan,
            encoding,
            X[is_kept],
            y[is_kept],
            Transcript(seed, whole.released, whole.selected),
        )
        largest = max(largest, check_neighbours(plan, whole, fewer))
    return largest


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("mu_squared", [1e-5, 0.05, 2.0])
@pytest.mark.parametrize("split", [Fraction(0), Fraction(1, 8)])
def test_a_row_adds_what_was_priced_and_no_more_on_any_transcript(
    n_classes: int, mu_squared: float, split: Fraction
) -> None:
    assert (
        0.99
        < worst_share(n_classes, seed=n_classes, mu_squared=mu_squared, split=split)
        <= 1.0
    )


def test_sensitivities_hold_after_unlikely_earlier_releases() -> None:
    """The sensitivities hold after any earlier releases, even after releases that no
    dataset is likely to give.
    """
    for n_classes in (2, 3):
        encoding, X, y = world(12, n_classes, seed=1)
        plan = plan_of(n_trees=8, depth=2, tally_share=0.02)
        shapes = [
            release.shape
            for release in run(plan, encoding, X, y, Transcript(1)).released
        ]
        rng = np.random.default_rng(5)
        script = [
            (rng.choice([-1, 1], shape) * np.exp2(rng.uniform(0, 50, shape))).astype(
                np.int64
            )
            for shape in shapes
        ]
        whole = run(plan, encoding, X, y, Transcript(1, replay=script))
        for row in range(12):
            is_kept = np.arange(12) != row
            check_neighbours(
                plan,
                whole,
                run(
                    plan, encoding, X[is_kept], y[is_kept], Transcript(1, replay=script)
                ),
            )


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize("with_profile", [False, True])
def test_a_whole_job_on_one_transcript(accountant: str, with_profile: bool) -> None:
    """From the plan to the forest, with private bins: every query of every release,
    with and without each row.
    """
    schema = schema_of(
        *(
            {"name": f"f{i}", "type": "numeric", "lower": -1, "upper": 1}
            for i in range(2)
        ),
        classes=["a", "b", "c"],
        label="k",
    )
    body = {"n_estimators": 8, "max_depth": 2}
    request = PlanRequest(
        "nbrt", body, Terms(Fraction(2), accountant, Fraction(1, 10**6)), 60
    )
    rng = np.random.default_rng(8)
    X, y = rng.normal(0, 0.4, (30, 2)).clip(-1, 1), rng.integers(0, 3, 30)

    def rows_of(is_kept: NDArray[np.bool_]) -> SanitisedRows:
        columns = SanitisedColumns(
            tuple(np.ascontiguousarray(column) for column in X[is_kept].T),
            int(is_kept.sum()),
        )
        return SanitisedRows(
            columns,
            y[is_kept].astype(np.int32),
            np.zeros((int(is_kept.sum()), 16), dtype=np.uint8),
        )

    every = np.ones(30, dtype=np.bool_)
    if with_profile:
        facts = contract.public_facts(
            request.terms, request.public_size, schema, Adjacency.ADD_REMOVE_ONE
        )
        released = profile_draw.release(
            profile_price.plan({}, facts), schema, rows_of(every), SystemRandomness()
        )
        request = replace(request, profile=released.reused("pf_a"))
    plan = forest_price.plan(request, schema)

    def grown(is_kept: NDArray[np.bool_], transcript: Transcript) -> Transcript:
        grow(plan, schema, rows_of(is_kept), transcript, on_tree_done=lambda: None)
        return transcript

    whole = grown(every, Transcript(8))
    assert with_profile or len(whole.selected) > 8
    for row in range(0, 30, 4):
        fewer = grown(
            np.arange(30) != row, Transcript(8, whole.released, whole.selected)
        )
        check_neighbours(plan, whole, fewer)
        moved = [
            one - other
            for one, other in zip(whole.utilities, fewer.utilities, strict=True)
        ]
        ranges = [
            int(moves.max(initial=0) - moves.min(initial=0))
            for moves in moved
            if moves.any()
        ]
        assert len(ranges) <= 2 * 4  # one interval per feature and level
        assert max(ranges, default=0) <= 2
    assert plan.terms.covers(plan.event)


# --- flaws that would break it ------------------------------------------------------------------------------------


_honest = kernels.gradients


def _unclipped(
    scores: NDArray[np.int64], y: NDArray[np.int32], scales: Scales
) -> NDArray[np.int32]:
    """Gradients without clipping: the price does not bound the contribution of a
    confidently wrong row.
    """
    exact = _honest(
        scores,
        y,
        Scales(
            **{**vars(scales), "clip": 2**24, "length": 2**22, "squared_length": 2**46}
        ),
    )
    return (exact.astype(np.int64) * scales.length * 4 // scales.clip).astype(np.int32)


def _float_batch(
    scores: NDArray[np.int64], y: NDArray[np.int32], scales: Scales
) -> NDArray[np.int32]:
    """Softmax in single precision, stabilised by the mean of the batch: correct up to
    rounding, and not private.
    """
    real_scores = (scores / 2**16).astype(np.float32)
    powers = np.exp(real_scores - real_scores.mean(dtype=np.float32))
    p = powers / powers.sum(axis=1, keepdims=True)
    raw = np.eye(scales.n_scores, dtype=np.float32)[y] - p
    long = np.maximum(
        np.sqrt((raw**2).sum(axis=1, keepdims=True)), np.float32(scales.clip / 2**24)
    )
    return np.trunc(raw / long * np.float32(scales.length)).astype(np.int32)


@pytest.mark.parametrize("flaw", [_unclipped, _float_batch])
def test_a_flawed_gradient_is_seen(
    flaw: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst_share(3, seed=2, mu_squared=0.2)
    monkeypatch.setattr(rows_module.kernels, "gradients", flaw)
    with pytest.raises(AssertionError):
        worst_share(3, seed=2, mu_squared=0.2)


def test_utilities_of_another_scale_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts in another unit than the price of the selection: twice the sensitivity."""
    honest = boosted_rows.first_split_utilities
    monkeypatch.setattr(
        boosted_rows,
        "first_split_utilities",
        lambda encoding, counts: honest(encoding, lambda some: 2 * counts(some)),
    )
    with pytest.raises(AssertionError):
        worst_share(2, seed=2, split=Fraction(1, 8))


def test_rows_in_two_cells_of_the_margins_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table of margins to every other class, instead of the next class alone, counts
    a row more than once.
    """
    honest = read.tally_margins

    def generous(scores: NDArray[np.int64], y: NDArray[np.int32]) -> NDArray[np.int64]:
        return honest(scores, y) + honest(scores[:, :2], y)

    monkeypatch.setattr(read, "tally_margins", generous)
    with pytest.raises(AssertionError):
        worst_share(3, seed=2)


def test_counts_without_their_share_of_the_price_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gradients that take all of C² + m² leave no share of the price for the counts."""
    honest = Scales.of

    def greedy(priced: int, *, n_trees: int, n_classes: int) -> Scales:
        scales = honest(priced, n_trees=n_trees, n_classes=n_classes)
        return Scales(
            **{**vars(scales), "squared_length": priced, "length": int(priced**0.5)}
        )

    monkeypatch.setattr(Scales, "of", greedy)
    with pytest.raises(AssertionError):
        worst_share(2, seed=2)


# --- every row on its own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 10])
@pytest.mark.parametrize(
    "make",
    [real, lambda n_classes: world(700, n_classes, seed=9)],
    ids=["real", "random"],
)
def test_the_integers_of_a_row_do_not_depend_on_other_rows_order_or_partition(
    make: object, n_classes: int
) -> None:
    """Dropping, permuting, re-batching and re-partitioning rows leaves every other
    row's integers identical.
    """
    encoding, X, y = make(n_classes)
    X, y = X[:700], y[:700]
    scales = Scales.of(2**36, n_trees=40, n_classes=n_classes)
    trees, scored = [], []
    randomness = SystemRandomness()
    whole = LocalBoostedRows(X, y, n_classes=n_classes)
    whole.start(np.zeros(scales.n_scores, dtype=np.int64), scales)
    for _ in range(20):
        trees.append(random_tree(encoding, depth=3, randomness=randomness))
        sums = whole.sums(trees[-1])
        scored.append(
            leaf_scores(
                sums + randomness.rounded_gaussian(sums.shape, scale_bits=24), scales
            )
        )
        whole.add_scores(trees[-1], scored[-1])

    def integers(
        index: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        rows = LocalBoostedRows(
            np.ascontiguousarray(X[index]), y[index], n_classes=n_classes
        )
        rows.start(np.zeros(scales.n_scores, dtype=np.int64), scales)
        for tree, own in zip(trees, scored, strict=True):
            sums = rows.sums(tree)
            rows.add_scores(tree, own)
        return rows._scores, kernels.gradients(rows._scores, rows._y, scales), sums

    every = np.arange(len(y))
    scores, gradients, sums = integers(every)
    assert len(np.unique(gradients)) > 3
    rng = np.random.default_rng(0)
    cuts = [
        every[1:],
        every[::-1].copy(),
        rng.permutation(every),
        *np.array_split(rng.permutation(every), 7),
        every[:1],
    ]
    for index in cuts:
        own_scores, own_gradients, _ = integers(index)
        assert np.array_equal(own_scores, scores[index])
        assert np.array_equal(own_gradients, gradients[index])
    assert np.array_equal(sum(integers(part)[2] for part in cuts[3:10]), sums)
    tallies = [read.tally_margins(scores[part], y[part]) for part in cuts[3:10]]
    assert np.array_equal(sum(tallies), read.tally_margins(scores, y))
    assert 0 < sum(tallies).sum() <= len(y)


# --- any rows at all ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [Fraction(0), Fraction(1, 8)])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_any_number_of_rows_gives_a_forest_of_the_planned_shape(
    n_rows: int, n_classes: int, split: Fraction
) -> None:
    encoding, X, y = world(n_rows, n_classes, seed=3)
    reports = []
    for labels in (y, np.zeros_like(y)):
        rows = LocalBoostedRows(X, labels, n_classes=n_classes)
        plan = plan_of(n_trees=6, depth=3, tally_share=0.02, split=split)
        result = boost(
            plan,
            encoding,
            rows,
            SystemRandomness(),
            on_tree_done=lambda: reports.append(None),
        )
        n_scores = 1 if n_classes == 2 else n_classes
        assert result.start.shape == (n_scores,)
        assert result.trees.feature.shape == (6, 7)
        assert result.trees.right.shape == (6, 7, 4)
        assert result.scores.shape == (6, 8, n_scores)
        # every leaf has noise, empty leaves included
        assert (result.scores[1 if split else 0 :] != 0).mean() > 0.9
        if split:
            assert not result.scores[0, [1, 2, 3, 5, 6, 7]].any()
        assert result.temperature is not None
        assert 0 < int(result.temperature[0]) < read.LARGEST_TEMPERATURE
    assert len(reports) == 2 * 6


def test_leaves_of_no_rows_hold_noise_of_the_right_spread() -> None:
    encoding, X, y = world(0, 2, seed=0)
    plan = plan_of(n_trees=40, depth=3)
    seen = run(plan, encoding, X, y, Transcript(0))
    noise = np.concatenate([release.ravel() for release in seen.released]) / 2**24
    assert all(not exact.any() for exact in seen.exact)
    assert noise.size == 2 + 40 * 8 * 2
    assert abs(noise.mean()) < 6.5 / noise.size**0.5
    assert abs((noise**2).mean() - 1) < 6.5 * (2 / noise.size) ** 0.5


def test_noise_of_different_trees_and_leaves_is_independent() -> None:
    """Without rows, scores have the signs of their noise; the mean product of any two
    signs is near 0.
    """
    encoding, X, y = world(0, 2, seed=0)
    plan, n_jobs = plan_of(n_trees=4, depth=2), 400
    jobs = [
        boost(
            plan,
            encoding,
            LocalBoostedRows(X, y, n_classes=2),
            SystemRandomness(),
            on_tree_done=lambda: None,
        )
        for _ in range(n_jobs)
    ]
    signs = np.sign([[*job.start, *job.scores.ravel()] for job in jobs])
    assert signs.shape == (n_jobs, 1 + 4 * 4)
    products = signs.T @ signs / n_jobs
    assert np.diag(products).min() > 0.5
    # Hoeffding: by chance at most 136 · 2e-32 = 4e-12
    assert np.abs(products - np.diag(np.diag(products))).max() < 0.4


def test_a_vanishing_budget_learns_nothing() -> None:
    """T9: with a class that one feature determines, predictions are no better than coin
    flips.
    """
    encoding, _, _ = world(0, 2, seed=0)
    rng = np.random.default_rng(6)
    X = np.stack(
        [rng.integers(0, n, 400) for n in encoding.n_codes.tolist()], axis=1
    ).astype(np.uint8)
    y = (X[:, 0] > 4).astype(np.int32)

    def accuracy(mu_squared: float) -> float:
        plan = plan_of(n_trees=8, depth=3, mu_squared=mu_squared)
        results = []
        for _ in range(30):
            rows = LocalBoostedRows(X, y, n_classes=2)
            grown = boost(
                plan, encoding, rows, SystemRandomness(), on_tree_done=lambda: None
            )
            reached = kernels.leaves(
                X, feature=grown.trees.feature, right=grown.trees.right, depth=3
            )
            summed = np.tile(grown.start, (400, 1))
            node_rows.add_leaf_scores(summed, reached, grown.scores)
            results.append(float(((summed[:, 0] > 0) == y).mean()))
        return float(np.mean(results))

    assert abs(accuracy(1e-9) - 0.5) < 0.2
    assert accuracy(1.9) > 0.85
