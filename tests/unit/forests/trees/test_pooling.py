"""Read-outs against values computed by hand: leaf scores from known counts, and their pooled sums."""

import numpy as np
import pytest

from app.forests.trees import pooling

COUNTS = np.array([[[6, 2], [-3, -1]], [[0, 5], [4, 4]]], dtype=np.int64)
"""Two trees of two leaves; noise made all counts of the first tree's second leaf negative."""


def test_a_vote_is_for_the_largest_count_and_the_first_of_equals() -> None:
    assert pooling.leaf_values(COUNTS, pooling.VOTE, noise_scale=1.0).tolist() == [
        [[0.5, 0.0], [0.0, 0.5]],
        [[0.0, 0.5], [0.5, 0.0]],
    ]


def test_averages_are_of_shares_without_what_is_negative() -> None:
    values = pooling.leaf_values(COUNTS, pooling.AVERAGE, noise_scale=1.0)

    assert values == pytest.approx(np.array([[[0.375, 0.125], [0.25, 0.25]], [[0.0, 0.5], [0.25, 0.25]]]))


def test_sums_are_of_whole_rows() -> None:
    values = pooling.leaf_values(COUNTS, pooling.SUM, noise_scale=1.0)

    assert values.tolist() == [[[6, 2], [0, 0]], [[0, 5], [4, 4]]]


def test_class_proportions_are_those_of_all_leaves_and_a_deviation_of_their_noise() -> None:
    """Sums of 7 and 10 over four cells; the noise deviation √(2 · 4) · 0.5 is added to each sum."""
    spread = np.sqrt(8.0) * 0.5

    assert pooling.class_proportions(COUNTS.astype(float), 0.5) == pytest.approx(
        np.array([7 + spread, 10 + spread]) / (17 + 2 * spread)
    )


def test_logarithms_are_of_shares_drawn_toward_the_class_proportions_by_the_noise() -> None:
    prior = pooling.class_proportions(COUNTS.astype(float), 3.0)
    values = pooling.leaf_values(COUNTS, pooling.LOGARITHMIC, noise_scale=3.0)

    assert values[0, 1] == pytest.approx(np.log(prior) / 2), "a leaf without counts says what the forest says"
    assert values[0, 0] == pytest.approx(np.log((np.array([6, 2]) + 3.0 * prior) / 11.0) / 2)
    assert values[1, 0] == pytest.approx(np.log((np.array([0, 5]) + 3.0 * prior) / 8.0) / 2)


def test_sums_become_probabilities() -> None:
    sums = np.array([[1.0, 3.0], [0.0, 0.0]])
    logs = np.log(np.array([[0.2, 0.6], [0.5, 0.5]])) - 700.0

    assert pooling.to_probabilities(sums, pooling.AVERAGE).tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert pooling.to_probabilities(logs, pooling.LOGARITHMIC) == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]))
