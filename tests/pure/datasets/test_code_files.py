"""Tests stored codes: read in place of values, sealed, bound to the rows that they were
made from, erased with them.
"""

import dataclasses
import errno
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from app.core import limits
from app.core.files import StoredFile
from app.core.object_store import ObjectStore
from app.core.sealed_files import DataKey, SealBroken, SealedFile, Writer
from app.datasets import code_files, erasure, private_rows, row_files
from app.datasets.private_rows import Selection
from app.datasets.row_layout import arrow_schema
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.coded_rows import CodedRows, CodeRequest
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support.uploads import (
    DATA_KEY,
    HEADER,
    SCHEMA,
    Ingestion,
    path_of,
    store_table,
    stored_table,
)
from tests.support.wide_codes import wide_codes

GRID = quantile_bins.public_grid(SCHEMA, Grid.COARSE)
FINE_GRID = quantile_bins.public_grid(SCHEMA, Grid.FINE)
BODY = HEADER + "".join(
    f"{index % 120},{0.5 + index % 7 / 4},{'Male' if index % 3 else 'Female'},0,{'>50K' if index % 5 else 'unknown'}\n"
    for index in range(300)
)


@pytest.fixture(autouse=True)
def small_files_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_files, "FEWEST_ROWS", 1)


def read(
    ingest: Ingestion, public: Encoding = GRID, cells: list[int] | None = None
) -> CodedRows:
    selection = Selection(
        SCHEMA,
        ingest.partitions,
        Scope({} if cells is None else {"shard": tuple(cells)}),
    )
    return private_rows.read(
        [ingest.destination], selection, codes=CodeRequest(public, with_ids=True)
    )


def codes(rows: CodedRows, public: Encoding = GRID) -> np.ndarray:
    return np.stack(
        [
            np.concatenate([block.column(i) for block in rows.features.blocks])
            for i in range(len(SCHEMA.features))
        ]
    )


def stored(ingest: Ingestion) -> list[Path]:
    return sorted(
        (ingest.home / row_files.CODES_FOLDER).rglob("*"), key=lambda path: path.name
    )[1:]


@contextmanager
def columns_read(monkeypatch: pytest.MonkeyPatch):
    seen: list[list[str] | None] = []
    honest = pq.ParquetFile.read_row_group
    with monkeypatch.context() as patch:
        patch.setattr(
            pq.ParquetFile,
            "read_row_group",
            lambda file, group, columns=None, **more: (
                seen.append(columns) or honest(file, group, columns, **more)
            ),
        )
        yield seen


@pytest.mark.parametrize("cells", [None, [1, 3], []])
@pytest.mark.parametrize(
    "public", [GRID, FINE_GRID, Encoding.of(SCHEMA, 32)], ids=["grid", "fine", "bins"]
)
def test_a_second_job_reads_codes_and_gets_the_same_rows(
    ingest, monkeypatch, public, cells
):
    ingest(BODY)
    values = ingest.read(cells)
    first = read(ingest, public, cells)
    with columns_read(monkeypatch) as seen:
        second = read(ingest, public, cells)
    assert seen == [
        ["cell", "label", "row_id"] if cells is not None else ["label", "row_id"]
    ]
    for rows in (first, second):
        np.testing.assert_array_equal(codes(rows), wide_codes(public, values.features))
        np.testing.assert_array_equal(rows.y, values.y)
        np.testing.assert_array_equal(rows.ids, values.row_ids)


def test_a_machine_that_reads_a_shard_stores_no_codes(ingest):
    """They would be those of some row groups, in a file that is named after all of
    them.
    """
    ingest(BODY)
    store_table(stored_table(ingest.destination), ingest.destination, group_rows=100)
    selection = Selection(SCHEMA, ingest.partitions, WHOLE)
    shards = private_rows.shards(ingest.destination, selection, n_rows=100)
    for shard in shards:
        private_rows.read_shard(shard, selection, codes=CodeRequest(GRID))
        assert stored(ingest) == []
    assert len(shards) == 3


def test_rows_that_are_not_on_this_machine_have_no_stored_codes(ingest, tmp_path):
    ingest(BODY)
    store = ObjectStore(f"file://{tmp_path / 'bucket'}", tmp_path / "reader")
    name = ingest.destination.file.name
    with store.new(name, existing="refuse") as file:
        file.write(path_of(ingest.destination).read_bytes())
    elsewhere = dataclasses.replace(ingest.destination, file=StoredFile(store, name))
    selection = Selection(SCHEMA, ingest.partitions, WHOLE)
    rows = private_rows.read([elsewhere], selection, codes=CodeRequest(GRID))
    assert stored(ingest) == []
    np.testing.assert_array_equal(codes(rows), codes(read(ingest)))


def test_the_rows_of_every_upload_are_coded(ingest):
    ingest(BODY)
    one = read(ingest)
    selection = Selection(SCHEMA, ingest.partitions, WHOLE)
    both = private_rows.read(
        [ingest.destination] * 2, selection, codes=CodeRequest(GRID, with_ids=True)
    )
    assert both.y.tolist() == [*one.y, *one.y]
    assert np.array_equal(codes(both), np.hstack([codes(one)] * 2))
    assert np.array_equal(both.ids, np.vstack([one.ids] * 2))


def test_the_file_is_sealed_and_for_its_owner_alone(ingest):
    ingest(BODY)
    read(ingest)
    (file,) = stored(ingest)
    assert file.stat().st_mode & 0o777 == 0o600
    plain = wide_codes(GRID, ingest.read().features).astype(np.uint8)
    assert plain[0, :40].tobytes() not in file.read_bytes()
    with pytest.raises(SealBroken):  # not even under the data key itself
        SealedFile.at(file, DATA_KEY).open()


def test_codes_of_rows_that_were_erased_can_not_be_read(ingest):
    """A job that opened the rows before the erasure writes their codes afterwards."""
    ingest(BODY)
    read(ingest)
    (file,) = stored(ingest)
    late = file.read_bytes()
    with ingest.destination.open() as reader:
        key_of_erased_rows = code_files.file_of(
            ingest.destination, reader.file_id, GRID
        )

    erasure.erase_upload(
        ingest.store,
        "ds_a",
        "ep_a",
        form=arrow_schema(SCHEMA, ingest.partitions),
        key=DATA_KEY,
    )
    assert stored(ingest) == []

    file.write_bytes(late)
    assert read(ingest).y.size == 0
    with ingest.destination.open() as reader:
        current = code_files.file_of(ingest.destination, reader.file_id, GRID)
    assert current.file == key_of_erased_rows.file
    file.write_bytes(late)
    with pytest.raises(SealBroken):
        current.open()


def test_the_erasure_of_a_unit_erases_the_codes(ingest):
    ingest(BODY)
    row_id = ingest.read().row_ids[7].tobytes()
    n_rows = read(ingest).y.size
    assert (
        erasure.erase_rows(ingest.store, "ds_a", ["ep_a"], key=DATA_KEY, row_id=row_id)
        == 1
    )
    assert stored(ingest) == []
    assert read(ingest).y.size == n_rows - 1


@pytest.mark.parametrize(
    "erase",
    [
        row_files.erase_dataset,
        lambda store, ds: row_files.erase_epoch(store, ds, "ep_a"),
    ],
)
def test_codes_are_gone_with_the_upload_and_with_the_dataset(ingest, erase):
    ingest(BODY)
    read(ingest)
    erase(ingest.store, "ds_a")
    assert not [path for path in ingest.home.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:-30] + bytes([content[-30] ^ 1]) + content[-29:],
        lambda content: content + b"more",
    ],
)
def test_codes_that_are_damaged_are_made_again(ingest, damage):
    ingest(BODY)
    expected = codes(read(ingest))
    (file,) = stored(ingest)
    file.write_bytes(damage(file.read_bytes()))
    np.testing.assert_array_equal(codes(read(ingest)), expected)
    with ingest.destination.open() as reader:
        code_files.file_of(ingest.destination, reader.file_id, GRID).open().close()


def test_codes_by_some_edges_are_not_read_for_as_many_others(ingest):
    """The edges of a version, of a profile: equal numbers of bins do not make equal
    bins.
    """
    ingest(BODY)
    values, first = ingest.read(), Encoding.of(SCHEMA, 16)
    edges = tuple(
        None if of_feature is None else of_feature * 0.75 for of_feature in first.edges
    )
    other = Encoding.with_edges(SCHEMA, edges)
    assert other.n_codes.tolist() == first.n_codes.tolist()
    for public in (first, other, first):
        np.testing.assert_array_equal(
            codes(read(ingest, public)), wide_codes(public, values.features)
        )
    assert len(stored(ingest)) == 2
    assert (
        wide_codes(first, values.features) != wide_codes(other, values.features)
    ).any()


def test_codes_by_the_bins_of_one_declaration_are_not_read_for_another(ingest):
    ingest(BODY)
    read(ingest)
    with ingest.destination.open() as reader:
        names = [
            code_files.file_of(
                ingest.destination,
                reader.file_id,
                dataclasses.replace(GRID, schema=schema),
            ).file.name
            for schema in (
                SCHEMA,
                dataclasses.replace(SCHEMA, features=SCHEMA.features[::-1]),
            )
        ]
    assert names[0] != names[1]


def test_at_most_three_files_of_codes_stay(ingest):
    ingest(BODY)
    for n_bins in range(2, 7):
        read(ingest, Encoding.of(SCHEMA, n_bins))
    assert len(stored(ingest)) == code_files.MAX_FILES


def test_few_rows_are_not_stored(ingest, monkeypatch):
    monkeypatch.setattr(code_files, "FEWEST_ROWS", 301)
    ingest(BODY)
    read(ingest)
    assert stored(ingest) == []


@pytest.mark.parametrize("method", ["write", "finish"])
def test_a_full_disk_fails_no_job(ingest, monkeypatch, method):
    ingest(BODY)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Writer, method, full)
    np.testing.assert_array_equal(
        codes(read(ingest)), wide_codes(GRID, ingest.read().features)
    )
    assert stored(ingest) == []


def test_codes_leave_the_room_that_was_looked_at_before_the_charge(ingest, monkeypatch):
    """A job's own copy of codes must not take the place of its model."""
    ingest(BODY)
    free = SimpleNamespace(free=limits.MIN_FREE_UPLOAD_BYTES)
    monkeypatch.setattr(code_files.shutil, "disk_usage", lambda _: free)
    written: list[int] = []
    honest = Writer.write

    def write(writer: Writer, data: memoryview) -> None:
        written.append(len(data))
        honest(writer, data)

    monkeypatch.setattr(Writer, "write", write)
    np.testing.assert_array_equal(
        codes(read(ingest)), wide_codes(GRID, ingest.read().features)
    )
    assert written == [], "for a moment, the room would have been taken"
    assert stored(ingest) == []
    free.free += 10**6
    read(ingest)
    assert len(stored(ingest)) == 1


def test_other_rows_other_bins_and_other_keys_have_other_codes(ingest):
    ingest(BODY)
    rows_id, other_id = bytes(32), bytes([1]) * 32
    files = {
        (file.file, file.key.secret)
        for file in (
            code_files.file_of(ingest.destination, rows_id, GRID),
            code_files.file_of(ingest.destination, other_id, GRID),
            code_files.file_of(ingest.destination, rows_id, Encoding.of(SCHEMA, 9)),
            code_files.file_of(
                SealedFile.at(path_of(ingest.destination), DataKey(bytes(32))),
                rows_id,
                GRID,
            ),
        )
    }
    assert len({secret for _, secret in files}) == 4
