"""Walks trees over a small schema in plain Python: which splits a node has, and which
rows reach it.
"""

from functools import cache
from itertools import product
from typing import TypeAlias

import numpy as np

from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from tests.support.schemas import schema_of

SIZES, IS_ORDERED = (3, 2, 1, 3), (True, False, False, False)
SCHEMA = schema_of(
    {"name": "grade", "type": "integer", "lower": 0, "upper": 2},
    {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    {"name": "planet", "type": "categorical", "categories": ["earth"]},
    {"name": "colour", "type": "categorical", "categories": ["red", "green", "blue"]},
    classes=["no", "yes"],
)
UNIVERSE = np.array(list(product(*map(range, SIZES))))
N_ROWS = 60
Split: TypeAlias = tuple[int, int, bool]
"""Feature, threshold, and whether the left side equals the threshold."""


@cache
def rows(seed: int = 5) -> tuple[np.ndarray, SanitisedRows]:
    """Values of rows as codes, and the rows."""
    generator = np.random.default_rng(seed)
    codes = UNIVERSE[generator.integers(0, len(UNIVERSE), N_ROWS)]
    y = generator.integers(0, 2, N_ROWS).astype(np.int32)
    columns = (
        codes[:, 0].astype(float),
        *(codes[:, feature].astype(np.int32) for feature in (1, 2, 3)),
    )
    ids = generator.integers(0, 256, (N_ROWS, 16), dtype=np.uint8)
    return codes, SanitisedRows(SanitisedColumns(columns, N_ROWS), y, ids)


def splits_of(values: np.ndarray) -> list[Split]:
    """The ways to part the values that reach a node by one feature."""
    found = list[Split]()
    for feature, is_ordered in enumerate(IS_ORDERED):
        left = np.unique(values[:, feature]).tolist()
        found += [
            (feature, code, not is_ordered)
            for code in (left[:-1] if is_ordered or len(left) <= 2 else left)
        ]
    return found


def goes_left(codes: np.ndarray, split: Split) -> np.ndarray:
    """Which rows go left at a split."""
    feature, threshold, equals = split
    return codes[:, feature] == threshold if equals else codes[:, feature] <= threshold


def split_at(tree: dict[str, np.ndarray], node: int) -> Split:
    """The released split of a node; the threshold is above every code where the node
    has none.
    """
    return (
        int(tree["feature"][node]),
        int(tree["threshold"][node]),
        bool(tree["equals"][node]),
    )


def leaf_of(codes: np.ndarray, tree: dict[str, np.ndarray], depth: int) -> np.ndarray:
    """The node of a level that each row reaches."""
    place = np.zeros(len(codes), dtype=np.int64)
    for level in range(depth):
        at = [split_at(tree, (1 << level) - 1 + int(node)) for node in place]
        left = [goes_left(codes[[row]], split)[0] for row, split in enumerate(at)]
        place = 2 * place + ~np.array(left)
    return place
