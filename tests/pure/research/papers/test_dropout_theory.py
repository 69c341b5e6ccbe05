"""Lemma 2 of Song and Wang: two counterexamples to its bound, and the numbers of the
page.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from research.papers import dropout_theory, items
from research.papers.dropout_theory import least_size, promised
from research.reference.literal_rules import lower_bound, upper_bound

PAGE = Path(__file__).parents[4] / "docs" / "references.md"


@pytest.mark.parametrize("n_rows", [200, 2_000])
def test_one_split_leaves_more_than_the_bound_says(n_rows: int) -> None:
    """Splits are drawn near the border of the classes, which is near the border of the
    interval.
    """
    random = np.random.default_rng(n_rows)
    sizes = [dropout_theory.expected_size(n_rows, 200, random) for _ in range(5)]
    assert np.mean(sizes) == pytest.approx(_size_in_the_limit(), abs=0.032)
    assert np.mean(sizes) > promised(1, 1, 1) + 0.03


def _size_in_the_limit() -> float:
    """Expected size with infinitely many rows: splits have a density, and their gain
    falls on both sides of the border of the classes.
    """
    share = dropout_theory.POSITIVE
    cut = (np.arange(1_000_000) + 0.5) / 1_000_000
    left = np.minimum(cut, share)  # mass of the second class on the left
    right = share - left
    impurity = 2 * (left * (cut - left) / cut + right * (1 - cut - right) / (1 - cut))
    gain = 2 * share * (1 - share) - impurity
    scaled = (gain - gain.min()) / (gain.max() - gain.min())
    density = np.exp(dropout_theory.STRENGTH / 2 * scaled)
    return float(np.average(cut**2 + (1 - cut) ** 2, weights=density))


def test_the_least_size_is_that_of_all_choices_of_candidates() -> None:
    """By a sum over all subsets of kept features."""
    p1, n_features, drawn = 0.6, 5, 0.0
    for kept in product((False, True), repeat=n_features):
        chance = np.prod([p1 if one else 1 - p1 for one in kept])
        weights = np.exp(dropout_theory.STRENGTH / 2 * np.array([0, 1, 1, 1, 1]))
        if kept[0]:
            drawn += chance * weights[0] / weights[np.array(kept)].sum()
    assert least_size(p1, n_features) == pytest.approx(1 - drawn)


def test_the_page_has_the_numbers_of_the_counterexamples() -> None:
    """At the setting of Vehicle in table 5: d = 18, p1 = 0.6, p2 = 0.2."""
    kept, bound = least_size(0.6, 18), promised(0.6, 0.2, 18)
    assert kept > bound
    text = PAGE.read_text(encoding="utf-8")
    assert (
        f"at least {lower_bound(kept, 5)} of its size a level, where the bound is "
        f"{upper_bound(bound, 5)}." in text
    )
    assert (
        f"leaves an expected size of about {_size_in_the_limit():.2f}, the bound is "
        f"{promised(1, 1, 1):.2f}." in text
    )


def test_the_item_says_how_far_p1_d_is_from_the_root_of_d() -> None:
    ratios = [
        dropout_theory.kept_over_root(dataset) for dataset in dropout_theory.FEATURES
    ]
    (item,) = (item for item in items.items() if item.item == "Section 2.4")
    assert f"p1 d is {min(ratios):.1f} to {max(ratios):.1f} times √d" in item.remark
