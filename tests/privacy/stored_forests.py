"""Grows forests of every algorithm, account and way to grow with fixed draws:
``python -m tests.privacy.stored_forests``.

The command writes a digest of each forest to ``tests/golden/forests.json``, where a
change of one bit shows. It is run again only where a change is meant.
"""

import hashlib
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from grovekeeper_forests import catalogue
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest.draw import code_request, grow
from tests.privacy.noiseless import coded
from tests.privacy.test_recorded_draws import (
    MANY,
    NUMBERS,
    SCHEMA,
    numbered,
    planned,
    rows_of,
)
from tests.support.schemas import schema_of

FILE = Path(__file__).parents[1] / "golden" / "forests.json"
SHAPE = {"n_estimators": 4, "max_depth": 3}
_NUMBERS: dict[str, Any] = {
    "at_once": 1,
    "bins_share": "0.3",
    "exploration": "0.3",
    "feature_share": "0.3",
    "kept_features": "0.5",
    "kept_splits": "0.5",
    "labelled_share": "0.01",
    "level_ratio": "0.8",
    "max_depth": 0,
    "min_rows": 100,
    "n_bins": 5,
    "n_estimators": 2,
    "n_layers": 3,
    "n_teachers": 3,
    "shift": "0.6",
    "structure_rows": "0.3",
    "structure_share": "0.3",
}
"""Of each parameter that is a number, a value that differs from those of other cases."""


WIDE = schema_of(
    *({"name": f"x{n}", "type": "numeric", "lower": -n, "upper": 9} for n in range(60)),
    {"name": "age", "type": "integer", "lower": 0, "upper": 5},
    {"name": "year", "type": "integer", "lower": 0, "upper": 2000, "missing": True},
    {"name": "ward", "type": "categorical", "categories": [f"w{n}" for n in range(200)]},
    *({"name": f"c{n}", "type": "categorical", "categories": ["a", "b"]} for n in range(9)),
    classes=["no", "yes"],
)  # fmt: skip
"""More columns than one block, and columns of few, many and missing values."""


def wide_rows(seed: int) -> SanitisedRows:
    """Rows of :data:`WIDE`, whose label follows from the first, a late and the last
    column.
    """
    generator = np.random.default_rng(seed)
    numbers = [generator.uniform(-n, 9, 500) for n in range(60)]
    age, year = generator.integers(0, 6, 500), generator.integers(0, 2001, 500)
    codes = [generator.integers(0, n, 500).astype(np.int32) for n in (200, *[2] * 9)]
    year = np.where(generator.random(500) < 0.1, np.nan, year)
    score = (numbers[0] > 4) + (numbers[55] > 0) + codes[-1]
    columns = (*numbers, age.astype(float), year, *codes)
    return SanitisedRows(
        SanitisedColumns(columns, 500),
        (score > 1).astype(np.int32),
        generator.integers(0, 256, (500, 16), dtype=np.uint8),
    )


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Algorithm, accountant and parameters: every account, both protections, and on one
    account every choice of each parameter, or another value of a number, with the
    choices that the parameter needs.
    """
    for slug in catalogue.BY_SLUG:
        algorithm = catalogue.algorithm(slug)
        for accountant in algorithm.accountants:
            for adjacency in dict.fromkeys((algorithm.adjacency, Adjacency.LABEL)):
                yield slug, accountant, {"adjacency": adjacency}
            yield slug, accountant, {"size": MANY, "max_rows": 2}
            yield slug, accountant, {"schema": WIDE, "size": MANY, "strength": 40}
        for parameter in algorithm.parameters:
            needed = dict([parameter.only_with] if parameter.only_with else [])
            if parameter.name == "labelled_share":  # from which the depth follows
                needed["max_depth"] = None
            values = getattr(parameter, "choices", None) or [_NUMBERS[parameter.name]]
            for value in values:
                given = {**needed, parameter.name: value}
                yield slug, algorithm.accountants[0], given
        if algorithm.predicts_numbers:
            yield slug, algorithm.accountants[0], {"schema": NUMBERS}


def name_of(slug: str, accountant: str, parameters: dict[str, Any]) -> str:
    """The name of a case."""
    words = [
        f"label={value.label.name}" if isinstance(value, Schema) else f"{name}={value}"
        for name, value in parameters.items()
    ]
    return " ".join([slug, accountant, *words])


def digests(slug: str, accountant: str, parameters: dict[str, Any]) -> list[str]:
    """Digests of the forest of a case, grown from values and, if it reads codes, from
    codes.
    """
    schema = parameters.get("schema", SCHEMA)
    plan = planned(slug, accountant, **{**SHAPE, **parameters})
    asked = code_request(plan, schema)
    forms = [lambda values: values]
    if asked is not None:
        forms.append(lambda values: coded(values, asked))
    return [_digest(plan, schema, form) for form in forms]


def _digest(plan: Plan, schema: Schema, form: Any) -> str:
    rows, second = rows_of(), rows_of(seed=1)
    if schema is NUMBERS:
        rows, second = numbered(rows), numbered(second)
    if schema is WIDE:
        rows, second = wide_rows(0), wide_rows(1)
    numbers = count()

    def key_of_draws(n_bytes: int) -> bytes:
        return hashlib.shake_256(f"draw {next(numbers)}".encode()).digest(n_bytes)

    progress = list[int]()
    with patch("grovekeeper_forests.noise.randomness.urandom", key_of_draws):
        forest = grow(
            plan,
            schema,
            form(rows),
            SystemRandomness(),
            on_tree_done=lambda: progress.append(next(numbers)),
            unlabelled=None if plan.unlabelled is None else form(second),
        )
    digest = hashlib.sha256(repr(progress).encode())
    for name, array in sorted(forest.arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def main() -> None:
    """Writes the file."""
    found = {name_of(*case): digests(*case)[0] for case in cases()}
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
