"""Stores rows in several row groups as a part of a job, to be read in this process or
on a Dask cluster.
"""

from dataclasses import replace
from pathlib import Path

from app.core.files import Store
from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.services.jobs.task import PartRows
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.coded_rows import CodedRows, CodeRequest
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.releases.forest.draw import code_request
from tests.support.uploads import (
    DATA_KEY,
    HEADER,
    SCHEMA,
    Ingestion,
    path_of,
    store_table,
    stored_table,
)

SCOPE = Scope({"shard": (0, 1, 3)})


def body(n_rows: int) -> str:
    """Rows of which the label depends on two features; one of eleven has no label that
    is known.
    """
    lines = (
        f"{index * 7 % 120},{0.5 + index % 9 / 5},{'Male' if index % 3 else 'Female'},0,{_label(index)}\n"
        for index in range(n_rows)
    )
    return HEADER + "".join(lines)


def _label(index: int) -> str:
    if index % 11 == 5:
        return "unknown"
    return ">50K" if index * 7 % 120 > 60 or index % 9 == 4 else "<=50K"


NUMBERS = Schema(SCHEMA.features, Label(SCHEMA.label.name, bounds=(0.0, 60.0)))
"""The same features beside a label that is a number."""


def body_of_numbers(n_rows: int) -> str:
    """Rows whose label is a number beyond its bounds for some, and empty for others."""
    lines = (
        f"{index * 7 % 120},{0.5 + index % 9 / 5},Male,0,{'' if index % 11 == 5 else index * 7 % 120 / 1.9}\n"
        for index in range(n_rows)
    )
    return HEADER + "".join(lines)


def codes_of(priced: Plan, schema: Schema = SCHEMA) -> CodeRequest:
    """The codes of a plan whose growth counts codes."""
    request = code_request(priced, schema)
    assert request is not None
    return request


def stored_part(
    home: Path,
    *,
    n_rows: int = 800,
    group_rows: int = 100,
    partitions: Partitions | None = None,
    schema: Schema = SCHEMA,
) -> PartRows:
    """A part of a job on one upload."""
    ingest = Ingestion(home, schema)
    ingest.partitions = partitions or ingest.partitions
    rows_of = body_of_numbers if schema.label.is_number else body
    ingest(rows_of(n_rows))
    store_table(
        stored_table(ingest.destination), ingest.destination, group_rows=group_rows
    )
    return PartRows(
        schema=schema.to_json(),
        row_files=(path_of(ingest.destination),),
        partitions=ingest.partitions.to_json(),
        scope=SCOPE,
        data_key=DATA_KEY,
    )


def in_store(part: PartRows, store: Store) -> PartRows:
    """The part with its files in a store that machines share, and their names there."""
    names = []
    for path in part.row_files:
        names.append(Path(*path.parts[-3:]))
        with store.new(names[-1].as_posix(), existing="refuse") as file:
            file.write(path.read_bytes())
    return replace(part, row_files=tuple(names))


def local_rows(part: PartRows, plan: Plan) -> CodedRows:
    """The rows of a part, read in this process."""
    codes = code_request(plan, SCHEMA)
    assert codes is not None
    ingest = Ingestion(part.row_files[0].parents[2])
    return private_rows.read(
        part.files, Selection(SCHEMA, ingest.partitions, SCOPE), codes=codes
    )
