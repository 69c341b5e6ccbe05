"""Selections, leaves and rows of every tree without reweighting, compared with a plain
walk over the rows.

Choices are random and noise is zero here. So a forest shows the exact numbers of its
leaves, and a record of the draws shows by which utilities, on which rows and at which
scale each split was selected, in order.
"""

import hmac
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.encoding import NO_SPLIT
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.privacy.events import ExponentialMechanism, PermuteAndFlip
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.trees import tree_histograms, tree_parameters
from tests.privacy.plain_walks import (
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
from tests.support.plans import request_for

DEPTH, N_TREES, N_FORESTS = 3, 3, 4
Tree = dict[str, np.ndarray]


class Chooser:
    """Records every draw; choices and public coins are random, and there is no noise."""

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        self.coins, self.selected = (
            list[tuple[int, int]](),
            list[tuple[type, Fraction, list[int], int]](),
        )

    def uniform(self, n: int) -> int:
        self.coins.append((n, int(self._chance.integers(n))))
        return self.coins[-1][1]

    def bernoulli(self, p: Fraction) -> bool:
        return bool(self._chance.random() < p)

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        return self._selected(PermuteAndFlip, utilities, inverse_scale)

    def select_exponential(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        return self._selected(ExponentialMechanism, utilities, inverse_scale)

    def _selected(self, kind: type, utilities: np.ndarray, scale: Fraction) -> int:
        self.selected.append(
            (
                kind,
                scale,
                utilities.tolist(),
                int(self._chance.integers(len(utilities))),
            )
        )
        return self.selected[-1][-1]

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


def grown(
    plan: Plan, seed: int, table: SanitisedRows | None = None
) -> tuple[list[Tree], Chooser]:
    chooser, second = Chooser(seed), None if plan.unlabelled is None else rows(9)[1]
    forest = grow(
        plan,
        SCHEMA,
        table or rows()[1],
        chooser,
        on_tree_done=lambda: None,
        unlabelled=second,
    )  # type: ignore[arg-type]
    names = [
        name for name, array in forest.arrays.items() if len(array) == plan.n_trees
    ]
    return [
        {name: forest.arrays[name][tree] for name in names}
        for tree in range(plan.n_trees)
    ], chooser


def parted(
    plan: Plan, table: SanitisedRows, chooser: Chooser, tree: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a tree that choose its splits, and the rows of its leaves, by the
    hash of their ids.
    """
    is_sharded, is_apart = (
        plan.parameters.get("assignment") == "sharded",
        plan.parameters.get("se") == "hash",
    )
    key = bytes(coin for n, coin in chooser.coins[:32] if n == 256)
    if is_sharded or is_apart:
        assert len(key) == 32
    in_tree, structure = (
        np.ones(len(table.y), dtype=bool),
        np.ones(len(table.y), dtype=bool),
    )
    for row, row_id in enumerate(table.row_ids):
        if is_sharded:
            digest = hmac.digest(
                key, tree_histograms._DOMAIN + row_id.tobytes(), "sha256"
            )
            in_tree[row] = int.from_bytes(digest) % plan.n_trees == tree
        if is_apart:
            digest = hmac.digest(
                key,
                tree_histograms._STRUCTURE_DOMAIN + tree.to_bytes(4) + row_id.tobytes(),
                "sha256",
            )
            structure[row] = (
                int.from_bytes(digest)
                < Fraction(str(plan.parameters["structure_rows"])) * 2**256
            )
    return in_tree & structure, in_tree & (~structure if is_apart else structure)


def counts(y: np.ndarray) -> list[int]:
    return np.bincount(y, minlength=2).tolist()


def gini(y: np.ndarray) -> int:
    """⌊2⁸(n² − Σ n_c²)/n⌋."""
    n = len(y)
    return (
        2**8 * n - ceil(Fraction(2**8 * sum(count**2 for count in counts(y)), n))
        if n
        else 0
    )


def miscount(y: np.ndarray) -> int:
    return len(y) - max(counts(y))


def normalised(utilities: list[int]) -> list[int]:
    """⌊2⁸(u − min u)/(max u − min u)⌋."""
    low, width = min(utilities), max(utilities) - min(utilities)
    return [2**8 * (utility - low) // width if width else 0 for utility in utilities]


def shares(of_leaf: list[int]) -> list[int]:
    """⌊2⁸n_c/n⌋."""
    return [2**8 * count // sum(of_leaf) if count else 0 for count in of_leaf]


def nodes(tree: Tree) -> Iterator[tuple[int, int, list[Split], Split]]:
    """Level, place, splits in reach and released split of every node, by level; a node
    has a split if one is left.
    """
    for level in range(DEPTH):
        reached = leaf_of(UNIVERSE, tree, level)
        for place in range(1 << level):
            splits, split = (
                splits_of(UNIVERSE[reached == place]),
                split_at(tree, (1 << level) - 1 + place),
            )
            assert split in splits if splits else split == (0, NO_SPLIT, False)
            yield level, place, splits, split


def greedy(
    tree: Tree, chosen_by: np.ndarray, cost: Any, *, stages: int
) -> Iterator[tuple[int, list[int], int]]:
    """Place of the scale, utilities and choice of each selection by a cost of both
    sides, in one or two stages.
    """
    codes, table = rows()
    for level, place, splits, split in nodes(tree):
        here = (leaf_of(codes, tree, level) == place) & chosen_by
        utilities = {
            own: -sum(
                cost(table.y[here & side])
                for side in (goes_left(codes, own), ~goes_left(codes, own))
            )
            for own in splits
        }
        if splits and stages == 1:
            yield level, list(utilities.values()), splits.index(split)
        elif splits:
            features = sorted({own[0] for own in splits})
            best = [
                max(utilities[own] for own in splits if own[0] == feature)
                for feature in features
            ]
            yield 2 * level, best, features.index(split[0])
            of_feature = [own for own in splits if own[0] == split[0]]
            yield (
                2 * level + 1,
                [utilities[own] for own in of_feature],
                of_feature.index(split),
            )


def medians(
    tree: Tree, chosen_by: np.ndarray, table: np.ndarray
) -> Iterator[tuple[int, list[int], int]]:
    """As :func:`greedy`, by how evenly the splits of one random feature divide the rows
    of a node.
    """
    for level, place, splits, split in nodes(tree):
        if splits:
            here = table[(leaf_of(table, tree, level) == place) & chosen_by]
            of_feature = [own for own in splits if own[0] == split[0]]
            evenness = [
                -abs(2 * int(goes_left(here, own).sum()) - len(here))
                for own in of_feature
            ]
            yield level, evenness, of_feature.index(split)


def check(
    plan: Plan,
    event: Any,
    chooser: Chooser,
    selections: list[Iterator[tuple[int, list[int], int]]],
    trees: list[Tree],
) -> None:
    """Compares the record with the selections of all trees, each followed by the labels
    of its leaves, if any.
    """
    by_shares, is_normalised = (
        plan.parameters.get(name) == mode
        for name, mode in (("leaf", "shares"), ("utility", "normalised"))
    )
    scales = [
        leaf.inverse_scale for leaf in leaves(event) if hasattr(leaf, "max_candidates")
    ]
    kind = PermuteAndFlip if plan.terms.accountant == "pure" else ExponentialMechanism
    expected, codes = list[tuple[type, Fraction, list[int], int]](), rows()[0]
    for number, (own, tree) in enumerate(zip(selections, trees, strict=True)):
        expected += [
            (
                kind,
                scales[at],
                normalised(utilities) if is_normalised else utilities,
                choice,
            )
            for at, utilities, choice in own
        ]
        _, counted = parted(plan, rows()[1], chooser, number)
        leaf, y = leaf_of(codes, tree, DEPTH), rows()[1].y
        exact = [counts(y[counted & (leaf == place)]) for place in range(1 << DEPTH)]
        if "labels" in tree:
            exact = [shares(own) for own in exact] if by_shares else exact
            expected += [
                (kind, scales[-1], own, int(label))
                for own, label in zip(exact, tree["labels"], strict=True)
            ]
        else:
            assert tree["counts"].tolist() == exact
    assert chooser.selected == expected


def planned(slug: str, accountant: str, **parameters: object) -> Plan:
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    shape = {"n_estimators": N_TREES, "max_depth": DEPTH, **parameters}
    return forest_price.plan(
        request_for(
            slug, shape, Fraction(4), 1_000, accountant=accountant, delta=delta
        ),
        SCHEMA,
    )


@pytest.mark.parametrize("accountant", ["pure", "gdp"])
@pytest.mark.parametrize(
    ("slug", "parameters"),
    [
        ("mrf", {}),
        ("mrf", {"selection": "two_stage", "leaf": "label"}),
        (
            "mrf",
            {
                "utility": "miscount",
                "assignment": "sharded",
                "se": "hash",
                "structure_rows": "0.4",
            },
        ),
        ("mrf", {"selection": "two_stage", "se": "hash"}),
        ("mrf", {"utility": "normalised", "leaf": "shares"}),
        (
            "mrf",
            {
                "utility": "normalised",
                "selection": "two_stage",
                "assignment": "sharded",
            },
        ),
        ("maxtree", {}),
        ("bms-rf", {"n_layers": 1, "kept_features": "1", "kept_splits": "1"}),
        (
            "bms-rf",
            {"n_layers": 1, "kept_features": "1", "kept_splits": "1", "leaf": "shares"},
        ),
    ],
)
def test_greedy_splits_are_selected_by_the_cost_of_both_sides(
    monkeypatch: pytest.MonkeyPatch,
    slug: str,
    parameters: dict[str, object],
    accountant: str,
) -> None:
    plan = planned(slug, accountant, **parameters)
    is_gini = slug != "maxtree" and plan.parameters["utility"] != "miscount"
    for seed in range(N_FORESTS):
        monkeypatch.setattr(tree_parameters, "BLOCK_CELLS", (1, 2**22)[seed % 2])
        trees, chooser = grown(plan, seed)
        selections = [
            greedy(
                tree,
                parted(plan, rows()[1], chooser, number)[0],
                gini if is_gini else miscount,
                stages=2 if plan.parameters.get("selection") == "two_stage" else 1,
            )
            for number, tree in enumerate(trees)
        ]
        check(plan, plan.event, chooser, selections, trees)


@pytest.mark.parametrize("accountant", ["pure", "gdp"])
@pytest.mark.parametrize("where", ["sharded", "sequential"])
@pytest.mark.parametrize("slug", ["spe", "sspe-1"])
def test_medians_are_selected_by_the_rows_on_both_sides(
    slug: str, where: str, accountant: str
) -> None:
    """Those of ``sspe-1`` on the rows of the second dataset, by its event."""
    plan = planned(slug, accountant, assignment=where)
    codes, table = rows(9) if slug == "sspe-1" else rows()
    event = plan.event if plan.unlabelled is None else plan.unlabelled.event
    for seed in range(N_FORESTS):
        trees, chooser = grown(plan, seed)
        selections = [
            medians(tree, parted(plan, table, chooser, number)[0], codes)
            for number, tree in enumerate(trees)
        ]
        check(plan, event, chooser, selections, trees)
        n_features = [
            len({own[0] for own in splits})
            for tree in trees
            for _, _, splits, _ in nodes(tree)
            if splits
        ]
        assert [n for n, _ in chooser.coins if n != 256] == n_features, (
            "one random feature for each node with a split"
        )


@pytest.mark.parametrize("accountant", ["pure", "gdp"])
@pytest.mark.parametrize("where", ["sharded", "sequential"])
@pytest.mark.parametrize("slug", ["rdt-ta", "rdt-jagannathan", "srt"])
def test_random_trees_read_no_row_above_their_leaves(
    slug: str, where: str, accountant: str
) -> None:
    plan = planned(slug, accountant, assignment=where)
    for seed in range(N_FORESTS):
        trees, chooser = grown(plan, seed)
        for tree in trees:
            assert len(list(nodes(tree))) == 2**DEPTH - 1
        check(plan, plan.event, chooser, [iter(()) for _ in trees], trees)


@pytest.mark.parametrize("where", ["sharded", "sequential"])
@pytest.mark.parametrize(("slug", "n_counted"), [("sspe-2", 3), ("pte", 2)])
def test_trees_over_labels_are_cut_at_the_medians_of_public_features(
    slug: str, n_counted: int, where: str
) -> None:
    """A random feature that separates rows, at its most even split, until few rows are
    left; labels in the leaves.
    """
    for seed, min_rows, n_rows in (
        (0, 4, 60),
        (1, 12, 60),
        (2, 2, 12),
        (3, 3, 12),
        (4, 4, 12),
        (5, 2, 12),
        (6, 2, 9),
    ):
        shape = {"assignment": where, "min_rows": min_rows} | (
            {"n_teachers": n_counted} if slug == "pte" else {}
        )
        plan, codes, whole = (
            planned(slug, "pure", **shape),
            rows()[0][:n_rows],
            rows()[1],
        )
        columns = SanitisedColumns(
            tuple(column[:n_rows] for column in whole.features.columns), n_rows
        )
        table = SanitisedRows(columns, whole.y[:n_rows], whole.row_ids[:n_rows])
        trees, chooser = grown(plan, seed, table)
        n_features = list[int]()
        for tree, level in product(trees, range(DEPTH)):
            reached, reachable = (
                leaf_of(codes, tree, level),
                leaf_of(UNIVERSE, tree, level),
            )
            for place in range(1 << level):
                here, split = (
                    codes[reached == place],
                    split_at(tree, (1 << level) - 1 + place),
                )
                evenness = {
                    own: abs(2 * int(goes_left(here, own).sum()) - len(here))
                    for own in splits_of(UNIVERSE[reachable == place])
                }
                parting = {
                    own: even for own, even in evenness.items() if even < len(here)
                }
                if len(here) < min_rows or not parting:
                    assert split == (0, NO_SPLIT, False)
                    continue
                assert parting[split] == min(
                    even for own, even in parting.items() if own[0] == split[0]
                )
                n_features.append(len({own[0] for own in parting}))
        assert [n for n, _ in chooser.coins if n != 256] == n_features
        for number, tree in enumerate(trees):
            leaf = leaf_of(codes, tree, DEPTH)
            mine = parted(replace(plan, n_trees=n_counted), table, chooser, number)[1]
            exact = [
                counts(table.y[mine & (leaf == place)]) for place in range(1 << DEPTH)
            ]
            if number < n_counted:
                assert tree["counts"].tolist() == exact
            else:  # a pupil, which counts the labels that the teachers predict for all rows
                assert tree["counts"].sum(axis=1).tolist() == [
                    int((leaf == place).sum()) for place in range(1 << DEPTH)
                ]
        assert not chooser.selected
