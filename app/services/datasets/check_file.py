"""Checks a file of rows against a declaration on the owner's machine, as an upload would.

The file is ingested by the code of uploads into a temporary folder, under a key that
nobody keeps. No service, no database and no key of the service is needed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from pydantic import ValidationError

from app.core import json_text, limits
from app.core.errors import (
    ColumnProblem,
    RowsInvalid,
    TooLarge,
    UnreadColumn,
    UploadEmpty,
    stated_members,
)
from app.core.files import Directory
from app.core.sealed_files import DataKey
from app.datasets import admission, fingerprints, ingest, row_files, unit_names
from app.datasets.row_reading import RowRules
from app.datasets.upload_bodies import (
    MEDIA_TYPES,
    BodyForm,
    Dialect,
    whole_file_problem,
)
from app.services.datasets.declaration_rules import read_partitions
from app.services.datasets.upload import UploadTerms, unread_columns
from app.wire.datasets import DatasetIn
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.data.schema import Schema

_DATASET = "ds_check"
_EPOCH = "ep_check"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class OwnersFile:
    """A file of rows on the owner's machine.

    Attributes:
        headers: with which an upload would state the form of the file.
        options: of an upload, by name; an absent one takes its default.
    """

    path: Path
    headers: Mapping[str, str]
    options: Mapping[str, Any]

    @property
    def terms(self) -> UploadTerms:
        """How the file is read.

        Raises:
            InvalidRequest: an option has another value, or is not for the form.
        """
        form = MEDIA_TYPES[self.headers["Content-Type"]]
        if "Content-Encoding" in self.headers:
            form = BodyForm.GZIP
        return UploadTerms(
            form,
            Dialect.of(
                self.options.get("separator") or ",",
                self.options.get("decimal") or ".",
                self.options.get("encoding") or "utf-8",
                self.options.get("missing") or "",
            ),
            accept_unknown=bool(self.options.get("accept_unknown")),
            accept_empty=bool(self.options.get("accept_empty")),
        )


class NotADeclaration(ValueError):
    """A text is no declaration. Quotes nothing.

    Args:
        faults: of its members, as the library states them without the text.
    """

    def __init__(self, faults: Sequence[JsonMapping] = ()) -> None:
        super().__init__("the text is no declaration")
        self.faults = faults


def check_file(declaration: bytes, file: OwnersFile) -> JsonObject:
    """Finds all that an owner has to know of a file before its upload.

    Args:
        declaration: JSON, as it is sent to the service.

    Returns:
        PRIVATE, exact counts. ``problems``: why an upload would be refused, as the
        service states it; none if it would not. ``mapped``: cells that would be clamped,
        unknown (OTHER) or missing. ``dropped``: numbers of rows that would not be
        stored, by reason.

    Raises:
        NotADeclaration, ParameterInvalid: the declaration cannot be read.
        InvalidRequest: an option is not one of the upload, or the declaration breaks a
            rule.
        MalformedRequest, TooLarge: the file is cut off, or over a limit of uploads; the
            declaration is not JSON.
    """
    terms = file.terms
    schema, dataset = _declared(declaration)
    if file.path.stat().st_size > limits.MAX_UPLOAD_BODY_BYTES:
        raise TooLarge("the body", limits.MAX_UPLOAD_BODY_BYTES)
    unit = dataset.privacy_unit
    rules = RowRules(
        schema,
        read_partitions(dataset.partitions, schema, unit_column=unit.column),
        os.urandom(_DIGEST_BYTES),
        unit.column,
        unit.form or unit_names.TEXT,
        terms.dialect,
    )
    dropped: dict[str, int] = {}
    with TemporaryDirectory(prefix="grovekeeper-check-") as folder:
        try:
            with file.path.open("rb") as source:
                report = _ingest(Path(folder), source, rules, terms, unit.max_rows)
        except RowsInvalid as refusal:
            problems = [*refusal.columns]
            mapped = refusal.mapped
        else:
            problems = []
            mapped = report.mapped
            if not (report.n_read or terms.accept_empty):
                empty = whole_file_problem("empty", suspected=UploadEmpty.sentence)
                problems += empty.columns
            dropped |= vars(report.dropped) if report.dropped else {}
    if not terms.accept_unknown:
        problems += unread_columns(mapped)
    return {
        "problems": list(map(_members, problems)),
        "mapped": list(map(_members, mapped)),
        "dropped": dropped,
    }


def _declared(text: bytes) -> tuple[Schema, DatasetIn]:
    """A declaration and its schema."""
    most = limits.MAX_DECLARATION_BODY_NODES
    value = json_text.loads_exactly(text, max_nodes=most)
    dataset = None
    faults = []
    try:
        dataset = DatasetIn.model_validate(value)
    except ValidationError as error:
        faults = list(map(dict, error.errors(include_input=False)))
    if dataset is None:
        # out of the handler: the library's error holds the text
        raise NotADeclaration(faults)
    schema = Schema.from_json(dataset.schema_.model_dump(exclude_none=True))
    unit_column = dataset.privacy_unit.column
    read_partitions(dataset.partitions, schema, unit_column=unit_column)
    return schema, dataset


def _members(problem: ColumnProblem | UnreadColumn) -> JsonObject:
    """A problem as an answer of the service has it."""
    members = stated_members(problem)
    if "percent" in members:
        members["percent"] = round(members["percent"], 1)
    return members


def _ingest(
    home: Path,
    source: BinaryIO,
    rules: RowRules,
    terms: UploadTerms,
    max_rows: int,
) -> ingest.IngestReport:
    store = Directory(home)
    key = DataKey.random()
    prints = fingerprints.Fingerprints(
        row_files.sealed_prints(store, _DATASET, _EPOCH, key=key),
        fingerprints.installation_key(store),
        cells_key=os.urandom(_DIGEST_BYTES),
    )
    with _book(home, key, rules, max_rows) as book:
        return ingest.ingest_rows(
            source,
            row_files.sealed_rows(store, _DATASET, _EPOCH, key=key),
            rules=rules,
            book=book,
            prints=prints,
            form=terms.form,
        )


@contextmanager
def _book(
    home: Path, key: DataKey, rules: RowRules, max_rows: int
) -> Iterator[admission.AdmissionBook | None]:
    """An empty admission book where the unit is a column."""
    if rules.unit_column is None:
        yield None
        return
    with admission.opened_home_book(home, _DATASET, max_rows=max_rows, key=key) as book:
        book.begin(_EPOCH, committed=[], freed=set())
        yield book
