"""A tiny universe: a schema, a few possible records, and every dataset of at most a few
records.
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.privacy.enumeration import EnumeratingRandomness, loss, output_law
from tests.support.schemas import schema_of

Record: TypeAlias = tuple[int, float, int]
"""(category code, number, class)."""
Dataset: TypeAlias = Mapping[int, Record]
"""Stable id → record."""

TWO_SPLITS = schema_of(
    {"name": "colour", "type": "categorical", "categories": ["red", "blue"]},
    {"name": "size", "type": "integer", "lower": 0, "upper": 1},
    classes=["no", "yes"],
)
THREE_SPLITS = schema_of(
    {"name": "colour", "type": "categorical", "categories": ["red", "blue"]},
    {"name": "size", "type": "integer", "lower": 0, "upper": 2},
    classes=["no", "yes"],
)
RECORDS: tuple[Record, ...] = ((0, 0.0, 0), (0, 1.0, 1), (1, 1.0, 0), (1, 0.0, 1))
EMPTY: Dataset = {}
SWAPPED: tuple[Dataset, Dataset] = (
    {0: (0, 0.0, 0), 1: (0, 0.0, 1), 2: (0, 1.0, 0)},
    {0: (0, 0.0, 0), 1: (0, 0.0, 1), 2: (0, 1.0, 0), 3: (1, 1.0, 1)},
)
"""Neighbours: by the Gini, the better one of the two splits differs."""


def rows_of(dataset: Dataset) -> SanitisedRows:
    """The PRIVATE rows of a dataset, in order of id."""
    ids = sorted(dataset)
    columns = (
        np.array([dataset[row_id][0] for row_id in ids], dtype=np.int32),
        np.array([dataset[row_id][1] for row_id in ids], dtype=np.float64),
    )
    return SanitisedRows(
        SanitisedColumns(columns, len(ids)),
        np.array([dataset[row_id][2] for row_id in ids], dtype=np.int32),
        np.frombuffer(
            b"".join(row_id.to_bytes(16) for row_id in ids), dtype=np.uint8
        ).reshape(len(ids), 16),
    )


def planned(
    slug: str, schema: Schema, epsilon: str = "1", **parameters: object
) -> Plan:
    """A plan of production code with every default."""
    return plan(
        PlanRequest(
            slug,
            {"n_estimators": 1, "max_depth": 1, **parameters},
            Terms(Fraction(epsilon)),
        ),
        schema,
    )


def released(forest: Forest) -> Hashable:
    """All outputs of the mechanism."""
    return tuple(
        (name, array.shape, array.tobytes())
        for name, array in sorted(forest.arrays.items())
    )


Grow: TypeAlias = Callable[
    [Plan, Schema, SanitisedRows, EnumeratingRandomness], Hashable
]


def production(
    plan: Plan, schema: Schema, rows: SanitisedRows, randomness: EnumeratingRandomness
) -> Hashable:
    """Unchanged ``grow``, and all of its releases."""
    return released(grow(plan, schema, rows, randomness, on_tree_done=lambda: None))


class Laws:
    """Output laws of one plan on datasets, computed once per dataset."""

    def __init__(
        self,
        plan: Plan,
        schema: Schema,
        *,
        grow: Grow = production,
        window: tuple[int, int] = (0, 1),
        key: bytes | None = None,
    ) -> None:
        """Without a ``key`` no row is assigned by its id, so datasets that are equal up
        to ids have one law.
        """
        self.plan, self._schema, self._grow, self._window, self._key = (
            plan,
            schema,
            grow,
            window,
            key,
        )
        self._known: dict[object, dict[Hashable, float]] = {}

    def of(self, dataset: Dataset) -> dict[Hashable, float]:
        """The exact law of the release on ``dataset``."""
        name = tuple(sorted(dataset.values() if self._key is None else dataset.items()))
        if name not in self._known:
            rows = rows_of(dataset)
            self._known[name] = output_law(
                lambda randomness: self._grow(
                    self.plan, self._schema, rows, randomness
                ),
                window=self._window,
                key=self._key or b"",
            )
        return self._known[name]

    def worst(self, pairs: Iterable[tuple[Dataset, Dataset]]) -> float:
        """The largest loss over neighbours."""
        return max(loss(self.of(one), self.of(other)) for one, other in pairs)


def datasets(n_ids: int, records: tuple[Record, ...] = RECORDS) -> Iterator[Dataset]:
    """Every dataset over ids 0 … n_ids − 1: each id is absent or has one of the
    records.
    """
    for choice in itertools.product((None, *records), repeat=n_ids):
        yield {
            row_id: record for row_id, record in enumerate(choice) if record is not None
        }


def multisets(n_rows: int, records: tuple[Record, ...] = RECORDS) -> Iterator[Dataset]:
    """Datasets of up to n_rows records, up to a renaming of ids, for mechanisms that do
    not read ids.
    """
    for size in range(n_rows + 1):
        for choice in itertools.combinations_with_replacement(records, size):
            yield dict(enumerate(choice))


def add_remove_pairs(
    all_datasets: Iterable[Dataset],
) -> Iterator[tuple[Dataset, Dataset]]:
    """(D, D without one record)."""
    for dataset in all_datasets:
        for row_id in dataset:
            yield (
                dataset,
                {other: record for other, record in dataset.items() if other != row_id},
            )


def replace_one_pairs(
    all_datasets: Iterable[Dataset], records: tuple[Record, ...] = RECORDS
) -> Iterator[tuple[Dataset, Dataset]]:
    """(D, D with one record replaced by another of the same id)."""
    for dataset in all_datasets:
        for row_id, record in dataset.items():
            for other in records:
                if other > record:
                    yield dataset, {**dataset, row_id: other}


def label_pairs(
    all_datasets: Iterable[Dataset], labels: tuple[int, ...] = (0, 1)
) -> Iterator[tuple[Dataset, Dataset]]:
    """(D, D with the label of one record changed and its features kept)"""
    for dataset in all_datasets:
        for row_id, record in dataset.items():
            for other in labels:
                if other > record[2]:
                    yield dataset, {**dataset, row_id: (*record[:2], other)}
