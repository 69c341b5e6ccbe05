"""Grows forests without privacy on the rows of PUBLIC datasets. Only the child process of a job imports this module."""

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from app.forests.algorithms.bms_rf_plain import grow as bms_rf_plain
from app.forests.algorithms.breiman import grow as breiman
from app.forests.algorithms.cart import grow as cart
from app.forests.algorithms.comparison import grow as comparison
from app.forests.algorithms.consistent import grow as consistent
from app.forests.algorithms.oblique import grow as oblique
from app.forests.algorithms.rdt_plain import grow as rdt_plain
from app.forests.contract.forest import Forest
from app.forests.contract.plan import Plan
from app.forests.data.rows import PublicRows, SanitisedColumns
from app.forests.data.schema import Schema

_SEED_BITS = 32


class GrowReference(Protocol):
    """Growth of a whole forest without privacy."""

    def __call__(
        self, plan: Plan, schema: Schema, rows: PublicRows, *, seed: int, on_tree_done: Callable[[], None]
    ) -> Forest:
        """Grows the forest from at least one row. ``on_tree_done`` is called once per planned tree."""


REFERENCES: Mapping[str, GrowReference] = MappingProxyType(
    {
        "breiman": breiman.grow_forest,
        "cart": cart.grow_forest,
        "rpart": cart.grow_forest,
        "mrf-plain": consistent.grow_forest,
        "breiman-se": consistent.grow_forest,
        "breiman-m": consistent.grow_forest,
        "denil14": consistent.grow_forest,
        "brf": consistent.grow_forest,
        "comprf-c": comparison.grow_forest,
        "comprf-i": comparison.grow_forest,
        "rdt-plain-mv": rdt_plain.grow_forest,
        "rdt-plain-ta": rdt_plain.grow_forest,
        "rdt-plain-pa": rdt_plain.grow_forest,
        "bms-rf-plain": bms_rf_plain.grow_forest,
        "rof-pca": oblique.grow_forest,
        "rof-lda": oblique.grow_forest,
        "mpsvm-t": oblique.grow_forest,
        "mpsvm-p": oblique.grow_forest,
        "mpsvm-n": oblique.grow_forest,
        "hobraf": oblique.grow_forest,
    }
)
"""Growth by slug of the algorithm."""


def grow(
    plan: Plan,
    schema: Schema,
    rows: PublicRows,
    *,
    on_tree_done: Callable[[], None],
    seed: int | None = None,
) -> Forest:
    """Runs the plan of an algorithm without privacy.

    Args:
        plan: of a reference.
        schema: public.
        rows: of a dataset that its owner declared public. Without a row, the forest is grown on one row of the first
            class at the lower bounds: a file without rows is legal, and every upload is followed by a model.
        on_tree_done: called after each tree.
        seed: of the pseudo-random generator; ``None``: a random one.
    """
    if not len(rows.y):
        rows = _one_row(schema)
    seed = secrets.randbits(_SEED_BITS) if seed is None else seed
    return REFERENCES[plan.algorithm](plan, schema, rows, seed=seed, on_tree_done=on_tree_done)


def _one_row(schema: Schema) -> PublicRows:
    columns = tuple(
        np.zeros(1, dtype=np.int32) if feature.is_categorical else np.full(1, feature.lower)
        for feature in schema.features
    )
    return PublicRows(SanitisedColumns(columns, 1), np.zeros(1, dtype=np.int32), np.zeros((1, 16), dtype=np.uint8))
