"""Leaf scores that the reader of a reweighted forest computes from released weights."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests.algorithms.rpf import read
from grovekeeper_forests.algorithms.rpf.read import UNREACHED

SCALES = (Fraction(1, 2), Fraction(1, 64))


def test_scores_shrink_toward_the_prior_by_the_noise_of_the_leaf() -> None:
    counts = np.array([[25_600, 0], [0, 25_600]])
    exact = read.scores_of_tree(
        counts, np.array([0, 0], dtype=np.uint8), SCALES, is_first=True
    )
    noisy = read.scores_of_tree(
        counts, np.array([1, 1], dtype=np.uint8), SCALES, is_first=True
    )

    assert exact[0, 0] > noisy[0, 0] > 0 > noisy[0, 1] > exact[0, 1]
    assert np.all(exact.sum(axis=1) == 0)


def test_scores_follow_the_formula() -> None:
    counts, selections = (
        np.array([[2_560, 512], [256, -300], [0, 0]]),
        np.array([0, 1, UNREACHED], dtype=np.uint8),
    )
    scores = read.scores_of_tree(counts, selections, SCALES, is_first=False)
    b = np.array([1 / 128, 1 / 4])
    prior = np.array([11.0, 2 - 300 / 256]) + np.sqrt(2 * (b**2).sum())
    prior /= prior.sum()
    for leaf, evidence in enumerate([(10.0, 2.0), (1.0, 0.0)]):
        a = 1 + 2.5 * np.sqrt(2) * b[leaf]
        shares = (np.array(evidence) + a * prior) / (sum(evidence) + a)
        g = np.log(shares) - np.log(prior)
        assert scores[leaf] == pytest.approx(0.8 * (g - g.mean()) * 2**16, abs=0.51)
    assert not scores[2].any()


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_scores_are_finite_for_any_released_numbers(data: st.DataObject) -> None:
    extreme = st.sampled_from([-(2**62), -1, 0, 1, 256, 2**62])
    counts = np.array(
        data.draw(
            st.lists(st.lists(extreme, min_size=2, max_size=2), min_size=2, max_size=2)
        )
    )
    scores = read.scores_of_tree(
        counts,
        np.array([0, 1], dtype=np.uint8),
        SCALES,
        is_first=data.draw(st.booleans()),
    )

    assert np.all(np.abs(scores) < 2**16 * 100)


def test_leaves_are_shrunk_toward_leaves_that_differ_in_few_splits() -> None:
    """The score of an empty leaf follows its neighbours and not the opposite corner."""
    counts = np.array([[0, 0], [25_600, 0], [25_600, 0], [0, 102_400]])
    selections = np.full(4, 1, dtype=np.uint8)

    def empty_leaf(*, by_level: bool) -> int:
        scores = read.scores_of_tree(
            counts, selections, SCALES, is_first=True, by_level=by_level
        )
        return int(scores[0, 0])

    assert empty_leaf(by_level=False) < 0 < empty_leaf(by_level=True)
