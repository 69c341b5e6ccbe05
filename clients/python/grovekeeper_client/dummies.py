"""Draws dummy rows from the public declaration of a dataset. They mean nothing: a
program that reads the dataset is developed with them.
"""

import io
import math
import random
import sys
from collections.abc import Container, Iterator, Sequence
from datetime import date, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from grovekeeper_client import uploads
from grovekeeper_client.rows import Feature, Scalar
from grovekeeper_common.durable_files import new_file
from grovekeeper_common.json_types import JsonMapping, JsonObject

NOTE = "Dummy rows, drawn from the declaration alone. They mean nothing."
ENDINGS = ".csv, .parquet, .arrow or .feather"
MAX_ROWS = 1_000_000
"""Which the command line draws: they are all held in memory."""
_ENDINGS = (".csv", ".parquet", ".arrow", ".feather")
_MISSING_SHARE = 0.1
_LARGEST = sys.float_info.max
_FIRST_INEXACT = 2**53
"""From here on, not every integer is a float."""


class DummyRows:
    """Rows that a dataset would accept. They mean nothing: no row was read, and each
    cell is drawn by itself, every declared value with the same probability.

    Args:
        facts: answer of ``GET /datasets/{id}``, or a declaration that has them.
        n_rows: number of rows.
        seed: the same facts and seed give the same rows.
    """

    def __init__(self, facts: JsonMapping, n_rows: int, *, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - not private, and repeatable
        self._declared = uploads.declared_columns(facts)
        self._marks = facts["schema"].get("missing_values") or ()
        self.columns: uploads.Columns = {
            column["name"]: [_cell(column, chance) for _ in range(n_rows)]
            for column in self._declared
        }
        """Cells by column, in declared order; ``None`` is an empty cell."""
        unit = facts["privacy_unit"]
        if unit["column"] is not None:
            names = islice(_units(unit, self._marks, chance), n_rows)
            self.columns[unit["column"]] = list(names)

    def __repr__(self) -> str:
        return f"DummyRows({', '.join(self.columns)})"

    def frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        import pandas as pd

        frame = pd.DataFrame(self.columns)
        frame.attrs["note"] = NOTE
        return frame

    def table(self) -> Any:
        """The rows as an Arrow table, whose metadata says that they mean nothing."""
        import pyarrow

        kinds = {column["name"]: _arrow_kind(column) for column in self._declared}
        arrays = {
            name: pyarrow.array(cells, kinds.get(name))
            for name, cells in self.columns.items()
        }
        return pyarrow.table(arrays).replace_schema_metadata({"note": NOTE})

    def write(self, file: Path) -> None:
        """Writes the rows to a file, in the form that its ending names: CSV, Parquet, or
        Arrow (Feather). The file gets its name when it is complete.

        Raises:
            ValueError: another ending.
            ModuleNotFoundError: Parquet or Arrow, and pyarrow is not installed.
        """
        check_form(file)
        with new_file(file, existing="replace") as target:
            if file.suffix == ".csv":
                stream = io.TextIOWrapper(target, encoding="utf-8", newline="")
                self.write_csv(stream)
                # flushes, and leaves the file open for its owner
                stream.detach()
                return
            table = self.table()
            import pyarrow.parquet

            if file.suffix == ".parquet":
                pyarrow.parquet.write_table(table, target)
                return
            with pyarrow.ipc.new_file(target, table.schema) as writer:
                writer.write_table(table)

    def write_csv(self, stream: TextIO) -> None:
        """Writes the rows as CSV; an empty cell has the first text that the declaration
        has for it.
        """
        spelled = dict(self.columns)
        for column in self._declared:
            declared = column.get("categories", ())
            marks = (mark for mark in self._marks if mark not in declared)
            mark = next(marks, "")
            cells = self.columns[column["name"]]
            spelled[column["name"]] = [mark if cell is None else cell for cell in cells]
        uploads.write(spelled, stream)


def check_form(file: Path) -> None:
    """Checks that :meth:`DummyRows.write` can write the form that an ending names.

    Raises:
        ValueError: another ending.
        ModuleNotFoundError: Parquet or Arrow, and pyarrow is not installed.
    """
    if file.suffix not in _ENDINGS:
        raise ValueError(f"a file of dummy rows ends in {ENDINGS}")
    if file.suffix != ".csv":
        import pyarrow  # noqa: F401 - whether it is installed


def declaration_like(facts: JsonMapping, balance: JsonMapping) -> JsonObject:
    """A declaration with the public facts of a dataset, to declare it on a service of
    one's own and to upload dummy rows there. :func:`not_alike` says what it lacks.

    Args:
        facts: answer of ``GET /datasets/{id}``.
        balance: answer of ``GET /ledger/{account}`` for its account.
    """
    account = facts["account"]
    budget = {"accountant": account["accountant"], "epsilon": account["cap"]}
    if account["accountant"] != "pure":
        terms = balance["guarantee"][facts["adjacency"]]
        budget |= {"epsilon": terms["epsilon"], "delta": terms["delta"]}
    # prices are converted at the rest of δ
    if (part := balance.get("delta_set_aside")) is not None:
        budget["delta_set_aside"] = part["set_aside"]
    unit = {name: facts["privacy_unit"].get(name) for name in ("column", "max_rows")}
    if facts["privacy_unit"].get("form") == "integer":
        unit["form"] = "integer"
    return {
        "name": facts["name"],
        "schema": facts["schema"],
        "budget": budget,
        "privacy_unit": unit,
        "protects": facts["protects"],
        "partitions": [declared_partition(part) for part in facts["partitions"]],
        "public_size": facts["public_size"],
    }


def not_alike(facts: JsonMapping) -> list[str]:
    """Sentences about what a like declaration cannot state. It changes what fits, and
    no price.

    Args:
        facts: answer of ``GET /datasets/{id}``.
    """
    sentences = []
    account = facts["account"]
    if account["accountant"] != "pure":
        sentences.append(
            "The like declaration has the ε of the guarantee, which is that of the highest cap since the first charge: "
            f"where the cap was lowered (now {account['cap']} {account['unit']}), more fits in the like dataset."
        )
    if facts["population"] is not None:
        sentences.append(
            "The like declaration names no population: the population's cap does not limit the like dataset."
        )
    return sentences


def declared_partition(partition: JsonMapping) -> JsonObject:
    """A partition as a declaration states it."""
    declared = dict(partition)
    if partition["kind"] != "column":
        return declared
    cells = declared.pop("cells")
    sizes = declared.pop("sizes")
    if not declared.pop("feature"):
        declared["categories"] = uploads.categories_of(cells)
    if sizes is not None:
        pairs = zip(cells, sizes, strict=True)
        declared["sizes"] = [{"cell": cell, "rows": rows} for cell, rows in pairs]
    return declared


def _units(
    unit: JsonMapping, marks: Container[str], chance: random.Random
) -> Iterator[Scalar]:
    """Names of units without end, each as often as a unit may have rows, or less
    often. No name is a text for a missing value.
    """
    number = 0
    while True:
        number += 1
        name = number if unit.get("form") == "integer" else f"unit-{number}"
        if name in marks:
            continue
        for _ in range(1 + int(chance.random() * unit["max_rows"])):
            yield name


def _cell(column: Feature, chance: random.Random) -> Scalar | date:
    share = chance.random()
    if column.get("missing") and chance.random() < _MISSING_SHARE:
        return None
    if column["type"] == "categorical":
        categories = column["categories"]
        return str(categories[int(share * len(categories))])
    if column["type"] == "date":
        first = date.fromisoformat(column["lower"])
        last = date.fromisoformat(column["upper"])
        width = last - first
        n_days = width.days + 1
        days = math.floor(share * n_days)
        return first + timedelta(days)
    if "cuts" in column:
        return _of_a_class(column["cuts"], share, chance)
    lower = float(column["lower"])
    upper = float(column["upper"])
    is_integer = column["type"] == "integer"
    value = lower * (1 - share) + (upper + is_integer) * share
    if is_integer:
        value = float(math.floor(value))
    value = min(max(value, lower), upper)
    return int(value) if _is_exact(column) else value


def _of_a_class(
    cuts: Sequence[float], share: float, chance: random.Random
) -> int | float:
    """A number that points cut into one of the classes, each with the same probability:
    a whole number where all points are.
    """
    first = cuts[0]
    last = cuts[-1]
    # most numbers that are cut, such as days and counts, are not negative
    lowest = 0 if first > 0 else max(first - max(1, -first), -_LARGEST)
    highest = min(last + max(1, last - first), _LARGEST)
    ends = [lowest, *cuts, highest]
    place = int(share * (len(cuts) + 1))
    low = ends[place]
    high = ends[place + 1]
    value = low + (high - low) * chance.random()
    if _are_whole(cuts):
        return math.floor(value)
    # rounding may reach the next class
    return value if value < high else low


def _are_whole(numbers: Sequence[float]) -> bool:
    """Whether numbers are integers that are exact as floats."""
    return all(
        float(number).is_integer() and -_FIRST_INEXACT < number < _FIRST_INEXACT
        for number in numbers
    )


def _is_exact(column: Feature) -> bool:
    """Whether a column has integers alone that are exact as floats."""
    if "cuts" in column:
        return _are_whole(column["cuts"])
    if column["type"] != "integer":
        return False
    return _are_whole((column["lower"], column["upper"]))


def _arrow_kind(column: Feature) -> Any:
    import pyarrow

    if column["type"] == "categorical":
        return pyarrow.string()
    if column["type"] == "date":
        return pyarrow.date32()
    return pyarrow.int64() if _is_exact(column) else pyarrow.float64()
