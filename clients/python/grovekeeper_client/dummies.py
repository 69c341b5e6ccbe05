"""Writes dummy rows as frames, tables and files, and a declaration like that of their
dataset.
"""

import io
from pathlib import Path
from typing import Any

from grovekeeper_common import dummy_rows
from grovekeeper_common.declared_columns import Feature, categories_of
from grovekeeper_common.dummy_rows import NOTE, is_exact
from grovekeeper_common.durable_files import new_file
from grovekeeper_common.json_types import JsonMapping, JsonObject

ENDINGS = ".csv, .parquet, .arrow or .feather"
MAX_ROWS = 1_000_000
"""Which the command line draws: they are all held in memory."""
_ENDINGS = (".csv", ".parquet", ".arrow", ".feather")


class DummyRows(dummy_rows.DummyRows):
    """Dummy rows as a frame, a table or a file."""

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
        declared["categories"] = categories_of(cells)
    if sizes is not None:
        pairs = zip(cells, sizes, strict=True)
        declared["sizes"] = [{"cell": cell, "rows": rows} for cell, rows in pairs]
    return declared


def _arrow_kind(column: Feature) -> Any:
    import pyarrow

    if column["type"] == "categorical":
        return pyarrow.string()
    if column["type"] == "date":
        return pyarrow.date32()
    return pyarrow.int64() if is_exact(column) else pyarrow.float64()
