"""Every path of a reweighted tree spends what the event states: its selections, then
the noise of its leaf.

Selections are random here, and the noise of a leaf is a number that names its scale. So
a released tree shows what each path spent, which is compared with a walk over all
values that a row of the small schema can have.
"""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from grovekeeper_forests.algorithms.rpf import price
from grovekeeper_forests.algorithms.rpf.price import PathScales, events_of, stages
from grovekeeper_forests.algorithms.rpf.read import UNREACHED
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.encoding import NO_SPLIT
from grovekeeper_forests.kernels import fourth_roots
from grovekeeper_forests.kernels.boosting import UNIT
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Event,
    Parallel,
    Part,
    PermuteAndFlip,
    Sequential,
)
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.trees import tree_parameters
from tests.privacy.plain_walks import (
    N_ROWS,
    SCHEMA,
    UNIVERSE,
    Split,
    goes_left,
    leaf_of,
    rows,
    split_at,
    splits_of,
)
from tests.privacy.recorder import leaves

N_TREES = 20
BLOCKS = (1, 2**22)
"""Cells of a block of features: blocks of one feature, or one block."""


class Chooser:
    """Selects at random, and adds to each number one more than the place of its scale
    among those of the leaves.
    """

    def __init__(self, scales: PathScales, seed: int) -> None:
        self._scales, self._chance = scales, np.random.default_rng(seed)
        self.selected = list[tuple[Fraction, list[int], int]]()

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        self.selected.append(
            (
                inverse_scale,
                utilities.tolist(),
                int(self._chance.integers(len(utilities))),
            )
        )
        return self.selected[-1][-1]

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> np.ndarray:
        return np.full(shape, 1 + self._scales.leaves.index(inverse_scale))


def planned(**parameters: object) -> Plan:
    return plan(
        PlanRequest(
            "rpf",
            {"n_estimators": 1, "pairs": "none", **parameters},
            Terms(Fraction(4)),
            1_000,
        ),
        SCHEMA,
    )


def utility(
    groups: np.ndarray, splits: tuple[Split, ...], *, within: np.ndarray | None = None
) -> int:
    """The sum of the norms of the parts into which splits divide every group of rows,
    or some of the rows.
    """
    codes, table = rows()
    parts = groups.copy()
    for split in splits:
        parts = 2 * parts + goes_left(codes, split)
    counted = np.ones(N_ROWS, dtype=bool) if within is None else within
    sums = np.zeros((int(parts.max()) + 1, 2), dtype=np.int64)
    np.add.at(sums, (parts[counted], table.y[counted]), UNIT)
    return int(fourth_roots.norms(sums).sum())


def walked(
    tree: dict[str, np.ndarray], depth: int
) -> tuple[dict[int, int], list[tuple[int, list[int], int]]]:
    """The number of selections on the path to each leaf in reach; level, utilities and
    choice of each selection.
    """
    spent, selected = dict[int, int](), list[tuple[int, list[int], int]]()
    pending = [(0, 0, UNIVERSE, 0)]
    while pending:
        level, place, values, before = pending.pop(0)
        node, splits = (1 << level) - 1 + place, splits_of(values)
        if level == depth or not splits:
            spent[place << (depth - level)] = before
            continue
        everywhere, here = (
            np.zeros(N_ROWS, dtype=np.int64),
            leaf_of(rows()[0], tree, level) == place,
        )
        utilities = [utility(everywhere, (split,), within=here) for split in splits]
        if level > 0:
            utilities.append(utility(everywhere, (), within=here))
        if tree["threshold"][node] == NO_SPLIT:
            selected.append((level, utilities, len(splits)))
            spent[place << (depth - level)] = before + 1
            continue
        selected.append((level, utilities, splits.index(split_at(tree, node))))
        is_left = goes_left(values, split_at(tree, node))
        pending += [(level + 1, 2 * place, values[is_left], before + 1)]
        pending += [(level + 1, 2 * place + 1, values[~is_left], before + 1)]
    return spent, selected


def leaf_of_level(tree: dict[str, np.ndarray]) -> Callable[[int], np.ndarray]:
    return cache(lambda level: leaf_of(rows()[0], tree, level))


def check_leaves(
    tree: dict[str, np.ndarray], depth: int, spent: dict[int, int]
) -> None:
    """Leaves that no row can reach tell nothing; the others are exact sums, and noise
    at what their path left over.
    """
    codes, table = rows()
    exact = np.zeros((1 << depth, 2), dtype=np.int64)
    np.add.at(exact, (leaf_of(codes, tree, depth), table.y), UNIT)
    assert tree["selections"].tolist() == [
        spent.get(leaf, UNREACHED) for leaf in range(1 << depth)
    ]
    noise = [spent[leaf] + 1 if leaf in spent else 0 for leaf in range(1 << depth)]
    assert (tree["counts"] - exact).tolist() == [[mark, mark] for mark in noise]


def grown(settled: Plan, chooser: Chooser) -> dict[str, np.ndarray]:
    forest = grow(settled, SCHEMA, rows()[1], chooser, on_tree_done=lambda: None)  # type: ignore[arg-type]
    return {name: array[0] for name, array in forest.arrays.items() if len(array)}


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_path_with_a_split_for_each_node_spends_the_budget_of_the_event(
    monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    settled = planned(max_depth=depth, splits="node")
    _, scales = events_of(settled.event)
    for seed in range(N_TREES):
        monkeypatch.setattr(tree_parameters, "BLOCK_CELLS", BLOCKS[seed % 2])
        chooser = Chooser(scales, seed)
        tree = grown(settled, chooser)
        spent, selected = walked(tree, depth)
        assert chooser.selected == [
            (scales.levels[level], *what) for level, *what in selected
        ]
        check_leaves(tree, depth, spent)


@pytest.mark.parametrize(
    ("depth", "at_once", "joint"),
    [(1, 1, 4), (3, 1, 4), (4, 2, 4), (3, 2, 4), (4, 2, 2)],
)
def test_a_path_with_a_split_for_each_level_spends_the_budget_of_the_event(
    monkeypatch: pytest.MonkeyPatch, depth: int, at_once: int, joint: int
) -> None:
    """Where two splits are chosen at once, they are on the first columns; with one left
    there, one split is chosen.
    """
    monkeypatch.setattr(price, "n_joint_columns", lambda *_: joint)
    settled = planned(max_depth=depth, at_once=at_once)
    _, scales = events_of(settled.event)
    for seed in range(N_TREES):
        monkeypatch.setattr(tree_parameters, "BLOCK_CELLS", BLOCKS[seed % 2])
        chooser = Chooser(scales, seed)
        tree = grown(settled, chooser)
        chosen = [split_at(tree, (1 << level) - 1) for level in range(depth)]
        chosen = [split for split in chosen if split[1] != NO_SPLIT]
        padded = [*chosen, *[(0, NO_SPLIT, False)] * (depth - len(chosen))]
        nodes = [split for level, split in enumerate(padded) for _ in range(1 << level)]
        assert [split_at(tree, node) for node in range((1 << depth) - 1)] == nodes
        expected, left, groups = (
            list[tuple[Fraction, list[int], int]](),
            splits_of(UNIVERSE),
            leaf_of_level(tree),
        )
        for n_at_once, scale in zip(stages(depth, at_once), scales.levels, strict=True):
            at = len(splits_of(UNIVERSE)) - len(left)
            on_columns = [split for split in left if split[0] < joint]
            size = n_at_once if len(on_columns) >= 2 else 1
            sets = list(combinations(on_columns if size == 2 else left, size))
            utilities = [utility(groups(at), own) for own in sets]
            if at > 0:
                utilities.append(utility(groups(at), ()))
            picked = tuple(chosen[at : at + size])
            places = [place for place, own in enumerate(sets) if own == picked]
            expected.append((scale, utilities, places[0] if places else len(sets)))
            if not places:
                break
            left = [split for split in left if split not in picked]
            if size < n_at_once:
                break
        assert len(splits_of(UNIVERSE)) - len(left) == len(chosen), (
            "no split below a stop"
        )
        assert chooser.selected == expected
        check_leaves(
            tree,
            depth,
            {
                leaf: len(expected)
                for leaf in range(0, 1 << depth, 1 << (depth - len(chosen)))
            },
        )


def test_an_event_has_one_selection_for_each_node_or_level_and_every_leaf() -> None:
    """Levels of 1, 2, 4 nodes; leaves of 2 classes."""

    def counted(event: Event, times: int = 1) -> Counter[tuple[str, Fraction]]:
        if isinstance(event, Sequential | Parallel):
            parts = [counted(part.event, times * part.times) for part in event.parts]
            return sum(parts, Counter[tuple[str, Fraction]]())
        kind = "selections" if isinstance(event, PermuteAndFlip) else "numbers"
        return Counter(
            {
                (kind, event.inverse_scale): times
                * (1 if kind == "selections" else event.coordinates)
            }
        )  # type: ignore[union-attr]

    for splits, n_selections in (("node", [1, 2, 4]), ("level", [1, 1, 1])):
        settled = planned(max_depth=3, splits=splits, at_once=1)
        _, scales = events_of(settled.event)
        assert isinstance(settled.event, Sequential)
        numbers = zip(scales.leaves[1:], (4, 8, 16), strict=True)
        assert counted(settled.event) == {
            **{
                ("selections", scale): n
                for scale, n in zip(scales.levels, n_selections, strict=True)
            },
            **{("numbers", scale): n for scale, n in numbers},
        }
        assert settled.event.parts == (Part(1, settled.event.parts[0].event),)


@pytest.mark.parametrize(
    ("at_once", "joint", "candidates"),
    [(1, 4, [7, 7, 7]), (2, 4, [7, 16]), (2, 2, [7, 7])],
)
def test_an_event_states_the_most_candidates_of_a_selection_and_one_for_a_stop(
    monkeypatch: pytest.MonkeyPatch, at_once: int, joint: int, candidates: list[int]
) -> None:
    """Six splits, 15 pairs of them, or 3 pairs on the first two columns, where one
    split is chosen among all later.
    """
    monkeypatch.setattr(price, "n_joint_columns", lambda *_: joint)
    stated = [
        leaf.max_candidates
        for leaf in leaves(planned(max_depth=3, at_once=at_once).event)
        if isinstance(leaf, PermuteAndFlip)
    ]
    assert stated == candidates
