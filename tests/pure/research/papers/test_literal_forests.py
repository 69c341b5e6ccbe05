"""Forests as printed: depths and labels of SmoothRF, and ensembles of median trees for
private labels.
"""

import math

import numpy as np
import pytest

from research import bundled
from research.papers import literal_forests
from research.papers.literal_forests import PTE, SMOOTH, SSPE_2, smooth_powers
from research.runs import Task, predictions


@pytest.mark.parametrize(
    ("n_numbers", "n_categories", "depth"),
    [(0, 9, 4), (4, 0, 4), (1, 0, 2), (13, 0, 10), (6, 8, 9), (4, 30, 15)],
)
def test_depths_of_smooth_trees_follow_the_authors_code(
    n_numbers: int, n_categories: int, depth: int
) -> None:
    assert literal_forests.smooth_depth(n_numbers, n_categories) == depth


def test_labels_of_smooth_trees_jump_with_the_gap() -> None:
    """Exponent ε e^(jε) / 2 of the most frequent class: between gaps one and two, the
    odds rise by more than e^ε.
    """
    one, two = (smooth_powers(np.array([gap + 3, 3]), 1.0)[0] for gap in (1, 2))
    assert one == pytest.approx(math.e / 2)
    assert two == pytest.approx(math.e**2 / 2)
    assert two - one > 2.0
    assert smooth_powers(np.array([2, 2, 0]), 1.0).tolist() == [0.5, 0.5, 0.0]
    assert smooth_powers(np.array([900, 0]), 1.0).max() == 50.0


EVERY_LABEL = tuple(f"{slug}:labels=all" for slug in (SSPE_2, PTE))


@pytest.mark.parametrize("slug", [SSPE_2, PTE])
def test_trees_that_do_not_divide_labels_have_ten_times_as_many(
    slug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 of 120 rows have a label; a tree asks for the leaves of its labelled rows first."""
    counted: list[int] = []
    places_of = literal_forests.median_trees.leaf_places

    def counts(nodes: object, table: object, rows: np.ndarray) -> np.ndarray:
        counted.append(len(rows))
        return places_of(nodes, table, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(literal_forests.median_trees, "leaf_places", counts)
    dataset, rows = bundled.read("iris"), np.arange(150)
    for parameters, total in (({}, 24), ({"labels": "all"}, 240)):
        counted.clear()
        random = np.random.default_rng(4)
        literal_forests.labels(
            dataset, (rows[:120], rows[120:]), slug, parameters, 2.0, random
        )
        assert sum(counted[:20:2]) == total


@pytest.mark.parametrize(
    "slug", [f"{SMOOTH}:n_estimators=10", SSPE_2, PTE, *EVERY_LABEL]
)
def test_a_forest_as_printed_learns(slug: str) -> None:
    dataset = bundled.read("iris")
    train, test = np.split(np.random.default_rng(1).permutation(150), [120])
    task = Task("iris", slug, "50", "0", 0)
    right = [
        np.mean(predictions(dataset, task, train, test).labels == dataset.y[test])
        for _ in range(5)
    ]
    # Guessing is right in a third. The mean of five is 0.75 or more, with a standard
    # deviation of 0.04.
    assert np.mean(right) > 0.5


@pytest.mark.parametrize("slug", [f"{SMOOTH}:n_estimators=10", SSPE_2, PTE])
def test_without_budget_a_forest_as_printed_guesses(slug: str) -> None:
    dataset = bundled.read("iris")
    train, test = np.split(np.random.default_rng(1).permutation(150), [75])
    task = Task("iris", slug, "0.0001", "0", 0)
    right = [
        np.mean(predictions(dataset, task, train, test).labels == dataset.y[test])
        for _ in range(40)
    ]
    assert np.mean(right) == pytest.approx(1 / 3, abs=0.12)


def test_only_labels_of_the_labelled_rows_are_read() -> None:
    """Rows without a label may have any: four in five of them change nothing but
    chance.
    """
    dataset = bundled.read("iris")
    rows = np.random.default_rng(2).permutation(150)
    train, test = np.split(rows, [120])

    def answers(y: np.ndarray) -> list[int]:
        changed = type(dataset)(dataset.name, dataset.schema, dataset.columns, y)
        random = np.random.default_rng(3)
        return literal_forests.labels(
            changed, (train, test), SSPE_2, {}, 1e6, random
        ).tolist()

    labelled = np.random.default_rng(3).permutation(train)[: len(train) // 5]
    other = (dataset.y + 1) % 3
    other[labelled] = dataset.y[labelled]
    assert answers(other.astype(np.int32)) == answers(dataset.y)
    assert answers(((dataset.y + 1) % 3).astype(np.int32)) != answers(dataset.y)
