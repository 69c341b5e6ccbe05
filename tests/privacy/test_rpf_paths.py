"""Every path of a reweighted tree spends what the event states: its selections, then the noise of its leaf.

Selections are random here, and the noise of a leaf is a number that names its scale. So a released tree shows what each
path spent, which is compared with a walk over all values that a row of the small schema can have.
"""

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from app.forests.algorithms.rpf.leaf_scores import UNREACHED
from app.forests.algorithms.rpf.path_event import PathScales, events_of, stages
from app.forests.contract.plan import Plan
from app.forests.data.encoding import Encoding
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.grow import grow
from app.forests.kernels.reweighting import UNIT
from app.forests.planning import PlanRequest, plan
from app.forests.trees import boxes
from app.privacy.events import Event, Parallel, Part, PermuteAndFlip, Sequential
from tests.support.schemas import schema_of

SIZES, IS_ORDERED = (3, 2, 3), (True, False, False)
SCHEMA = schema_of(
    {"name": "grade", "type": "integer", "lower": 0, "upper": 2},
    {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    {"name": "colour", "type": "categorical", "categories": ["red", "green", "blue"]},
    classes=["no", "yes"],
)
UNIVERSE = np.array(list(product(*map(range, SIZES))))
N_ROWS, N_TREES = 60, 40


class Chooser:
    """Selects at random, and adds to each number one more than the place of its scale among those of the leaves."""

    def __init__(self, scales: PathScales, seed: int) -> None:
        self._scales, self._chance = scales, np.random.default_rng(seed)
        self.selected = list[tuple[Fraction, int]]()

    def permute_and_flip(self, utilities: np.ndarray, *, inverse_scale: Fraction) -> int:
        self.selected.append((inverse_scale, len(utilities)))
        return int(self._chance.integers(len(utilities)))

    def discrete_laplace(self, shape: tuple[int, ...], *, inverse_scale: Fraction) -> np.ndarray:
        return np.full(shape, 1 + self._scales.leaves.index(inverse_scale))


def rows() -> tuple[np.ndarray, SanitisedRows]:
    generator = np.random.default_rng(5)
    codes = UNIVERSE[generator.integers(0, len(UNIVERSE), N_ROWS)]
    y = generator.integers(0, 2, N_ROWS).astype(np.int32)
    columns = (codes[:, 0].astype(float), codes[:, 1].astype(np.int32), codes[:, 2].astype(np.int32))
    return codes, SanitisedRows(SanitisedColumns(columns, N_ROWS), y, np.zeros((N_ROWS, 16), dtype=np.uint8))


def planned(**parameters: object) -> Plan:
    return plan(PlanRequest("rpf", {"n_estimators": 1, "pairs": "none", **parameters}, Fraction(4), 1_000), SCHEMA)


def n_splits(values: np.ndarray) -> int:
    """Number of ways to part the values that reach a node by one feature."""
    left = [len(np.unique(column)) for column in values.T]
    return sum(n - 1 if is_ordered or n == 2 else n * (n > 1) for n, is_ordered in zip(left, IS_ORDERED, strict=True))


def goes_left(codes: np.ndarray, tree: dict[str, np.ndarray], node: int) -> np.ndarray:
    column, threshold = codes[:, tree["feature"][node]], tree["threshold"][node]
    return column == threshold if tree["equals"][node] else column <= threshold


def walked(tree: dict[str, np.ndarray], depth: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The number of selections on the path to each leaf in reach; level and number of candidates of each selection."""
    spent, selected = dict[int, int](), list[tuple[int, int]]()
    pending = [(0, 0, UNIVERSE, 0)]
    while pending:
        level, place, values, before = pending.pop(0)
        node = (1 << level) - 1 + place
        if level == depth or n_splits(values) == 0:
            spent[place << (depth - level)] = before
            continue
        selected.append((level, n_splits(values) + (level > 0)))
        if tree["threshold"][node] == boxes.NO_SPLIT:
            spent[place << (depth - level)] = before + 1
            continue
        is_left = goes_left(values, tree, node)
        assert 0 < is_left.sum() < len(values), "a split that parts nothing"
        pending += [(level + 1, 2 * place, values[is_left], before + 1)]
        pending += [(level + 1, 2 * place + 1, values[~is_left], before + 1)]
    return spent, selected


def leaf_of(codes: np.ndarray, tree: dict[str, np.ndarray], depth: int) -> np.ndarray:
    place = np.zeros(len(codes), dtype=np.int64)
    for level in range(depth):
        left = [goes_left(codes[[row]], tree, (1 << level) - 1 + int(at))[0] for row, at in enumerate(place)]
        place = 2 * place + ~np.array(left)
    return place


def check_leaves(tree: dict[str, np.ndarray], depth: int, spent: dict[int, int]) -> None:
    """Leaves that no row can reach tell nothing; the others are exact sums, and noise at what their path left over."""
    codes, table = rows()
    exact = np.zeros((1 << depth, 2), dtype=np.int64)
    np.add.at(exact, (leaf_of(codes, tree, depth), table.y), UNIT)
    assert tree["selections"].tolist() == [spent.get(leaf, UNREACHED) for leaf in range(1 << depth)]
    noise = [spent[leaf] + 1 if leaf in spent else 0 for leaf in range(1 << depth)]
    assert (tree["counts"] - exact).tolist() == [[mark, mark] for mark in noise]


def grown(settled: Plan, chooser: Chooser) -> dict[str, np.ndarray]:
    forest = grow(settled, SCHEMA, rows()[1], chooser, on_tree_done=lambda: None)  # type: ignore[arg-type]
    return {name: array[0] for name, array in forest.arrays.items() if len(array)}


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_path_with_a_split_for_each_node_spends_the_budget_of_the_event(depth: int) -> None:
    settled = planned(max_depth=depth, splits="node")
    _, scales = events_of(settled.event)
    for seed in range(N_TREES):
        chooser = Chooser(scales, seed)
        tree = grown(settled, chooser)
        spent, selected = walked(tree, depth)
        assert chooser.selected == [(scales.levels[level], n_candidates) for level, n_candidates in selected]
        check_leaves(tree, depth, spent)


@pytest.mark.parametrize(("depth", "at_once"), [(1, 1), (3, 1), (4, 2), (3, 2)])
def test_a_path_with_a_split_for_each_level_spends_the_budget_of_the_event(depth: int, at_once: int) -> None:
    settled, n_all = planned(max_depth=depth, at_once=at_once), len(Encoding.of(SCHEMA, 3).candidates)
    _, scales = events_of(settled.event)
    for seed in range(N_TREES):
        chooser = Chooser(scales, seed)
        tree = grown(settled, chooser)
        firsts = [(1 << level) - 1 for level in range(depth)]
        chosen = [node for node in firsts if tree["threshold"][node] != boxes.NO_SPLIT]
        assert chosen == firsts[: len(chosen)], "no split below a stop"
        for node in firsts:
            nodes = slice(node, 2 * node + 1)
            assert all((tree[name][nodes] == tree[name][node]).all() for name in ("feature", "threshold", "equals"))
        split = {(int(tree["feature"][node]), int(tree["threshold"][node])) for node in chosen}
        assert len(split) == len(chosen), "no split twice"
        expected, at = list[tuple[Fraction, int]](), 0
        for n_at_once, scale in zip(stages(depth, at_once), scales.levels, strict=True):
            expected.append((scale, math.comb(n_all - at, n_at_once) + (at > 0)))
            if at + n_at_once > len(chosen):
                break
            at += n_at_once
        assert at == len(chosen), "a selection chooses all of its splits or stops the tree"
        assert chooser.selected == expected
        check_leaves(tree, depth, {leaf: len(expected) for leaf in range(0, 1 << depth, 1 << (depth - len(chosen)))})


def test_an_event_has_one_selection_for_each_node_or_level_and_every_leaf() -> None:
    """Levels of 1, 2, 4 nodes; leaves of 2 classes."""

    def counted(event: Event, times: int = 1) -> Counter[tuple[str, Fraction]]:
        if isinstance(event, Sequential | Parallel):
            parts = [counted(part.event, times * part.times) for part in event.parts]
            return sum(parts, Counter[tuple[str, Fraction]]())
        kind = "selections" if isinstance(event, PermuteAndFlip) else "numbers"
        return Counter({(kind, event.inverse_scale): times * (1 if kind == "selections" else event.coordinates)})  # type: ignore[union-attr]

    for splits, n_selections in (("node", [1, 2, 4]), ("level", [1, 1, 1])):
        settled = planned(max_depth=3, splits=splits, at_once=1)
        _, scales = events_of(settled.event)
        assert isinstance(settled.event, Sequential)
        numbers = zip(scales.leaves[1:], (4, 8, 16), strict=True)
        assert counted(settled.event) == {
            **{("selections", scale): n for scale, n in zip(scales.levels, n_selections, strict=True)},
            **{("numbers", scale): n for scale, n in numbers},
        }
        assert settled.event.parts == (Part(1, settled.event.parts[0].event),)
