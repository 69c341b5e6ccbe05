"""Ingests uploads under a small declaration and reads them back."""

import io
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from app.core.files import Directory
from app.core.sealed_files import DataKey, SealedFile
from app.datasets import private_rows, row_files
from app.datasets.fingerprints import Fingerprints
from app.datasets.ingest import IngestReport, ingest_rows
from app.datasets.private_rows import Selection
from app.datasets.row_reading import RowRules
from app.datasets.upload_bodies import RFC_4180, BodyForm, Dialect
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Scope

SCHEMA = Schema(
    (
        Feature("age", "integer", lower=0.0, upper=120.0),
        Feature("height", "numeric", lower=0.5, upper=2.5, missing=True),
        Feature("sex", "categorical", categories=("Female", "Male"), missing=True),
        Feature("city, canton", "categorical", categories=("Bern, BE", "0")),
    ),
    Label("income", ("<=50K", ">50K")),
)
HEADER = 'age,height,sex,"city, canton",income\n'
GOOD_ROW = '39,1.75,Male,"Bern, BE",>50K\n'
KEY = bytes(range(32))
DATA_KEY = DataKey(bytes(range(100, 132)))


def stored_table(file: SealedFile) -> pa.Table:
    """The rows of an encrypted file, as they are stored."""
    with file.open() as reader:
        return pq.read_table(reader)


def path_of(file: SealedFile) -> Path:
    """The path of a file in a folder of this machine; the file need not exist."""
    assert isinstance(file.file.store, Directory)
    return file.file.store.folder / file.file.name


def store_table(
    table: pa.Table, file: SealedFile, *, group_rows: int | None = None
) -> None:
    """Replaces an encrypted file by one with other rows."""
    with file.new(existing="replace") as writer:
        pq.write_table(table, writer, row_group_size=group_rows)


class Ingestion:
    """Ingests bodies as an epoch of one dataset."""

    def __init__(self, home: Path, schema: Schema = SCHEMA) -> None:
        self.home = home
        self.store = Directory(home)
        self.schema = schema
        self.partitions = Partitions((HashPartition("shard", 4),))
        self.destination = row_files.sealed_rows(
            self.store, "ds_a", "ep_a", key=DATA_KEY
        )

    def __call__(
        self,
        body: str | bytes | BinaryIO,
        *,
        gzip: bool = False,
        form: BodyForm = BodyForm.CSV,
        dialect: Dialect = RFC_4180,
    ) -> IngestReport:
        if isinstance(body, str):
            body = body.encode()
        prints = row_files.sealed_prints(self.store, "ds_a", "ep_a", key=DATA_KEY)
        # a test that ingests a second body has removed the rows
        if not path_of(self.destination).exists():
            prints.file.delete()
        return ingest_rows(
            io.BytesIO(body) if isinstance(body, bytes) else body,
            self.destination,
            rules=RowRules(self.schema, self.partitions, KEY, dialect=dialect),
            book=None,
            prints=Fingerprints(prints, KEY, cells_key=KEY),
            form=BodyForm.GZIP if gzip else form,
        )

    def read(
        self, cells: list[int] | None = None, *, keep_unlabelled: bool = False
    ) -> SanitisedRows:
        return self.read_box(
            Scope({} if cells is None else {"shard": tuple(cells)}),
            keep_unlabelled=keep_unlabelled,
        )

    def read_box(self, scope: Scope, *, keep_unlabelled: bool = False) -> SanitisedRows:
        selection = Selection(
            self.schema, self.partitions, Scope(scope), keep_unlabelled=keep_unlabelled
        )
        return private_rows.read([self.destination], selection)

    def files(self) -> list[str]:
        """Names of all files in the home, so that a test sees leftovers of a refusal."""
        return sorted(path.name for path in self.home.rglob("*") if path.is_file())
