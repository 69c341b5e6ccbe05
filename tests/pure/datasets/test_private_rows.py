"""Tests the reader of private rows: by scope, for every file content, without quoting
what it cannot read.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.errors import InstallationError
from app.core.files import Directory
from app.core.sealed_files import DataKey, SealedFile
from app.datasets import private_rows, row_files, row_layout
from app.datasets.private_rows import Selection
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.coded_rows import CodeRequest
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support.uploads import (
    DATA_KEY,
    GOOD_ROW,
    HEADER,
    SCHEMA,
    Ingestion,
    path_of,
    store_table,
    stored_table,
)

NUMBERED = HEADER + "".join(f"{index % 120},1,Male,0,>50K\n" for index in range(200))


def store(ingest, **columns):
    """Writes a row file with valid values except in the given columns."""
    form = row_layout.arrow_schema(ingest.schema, ingest.partitions)
    n_rows = len(next(iter(columns.values())))
    sound = {
        "f0": 1.0,
        "f1": 1.0,
        "f2": 0,
        "f3": 0,
        "label": 0,
        "row_id": bytes(16),
        "cell": 0,
    }
    arrays = [
        pa.array(columns.get(field.name, [sound[field.name]] * n_rows), field.type)
        for field in form
    ]
    loose = pa.schema(
        [field.with_nullable(True) for field in form], metadata=form.metadata
    )
    table = pa.Table.from_arrays(
        arrays, schema=form if all(not a.null_count for a in arrays) else loose
    )
    store_table(table, ingest.destination)


def unreadable(ingest, cells=None):
    with pytest.raises(InstallationError) as caught:
        ingest.read(cells)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert str(ingest.home) not in str(caught.value)


def test_cells_are_disjoint_and_complete(ingest):
    ingest(NUMBERED)
    every = {row_id.tobytes() for row_id in ingest.read().row_ids}
    by_cell = [
        {row_id.tobytes() for row_id in ingest.read([cell]).row_ids}
        for cell in range(4)
    ]
    assert len(every) == sum(map(len, by_cell)) == 200
    assert set.union(*by_cell) == every
    assert all(by_cell)
    pair = {row_id.tobytes() for row_id in ingest.read([3, 1, 3]).row_ids}
    assert pair == by_cell[1] | by_cell[3]


def test_a_row_keeps_its_values_label_and_id_in_every_scope(ingest):
    body = "".join(
        f"{index % 120},1,Male,0,{'<=50K' if index % 3 else '>50K'}\n"
        for index in range(300)
    )
    ingest(HEADER + body)
    every = ingest.read()
    assert every.features.columns[0].tolist() == [index % 120 for index in range(300)]
    values = {}
    for row_id, age, label in zip(
        every.row_ids, every.features.columns[0], every.y, strict=True
    ):
        values[row_id.tobytes()] = (age, label)
    part = ingest.read([2])
    assert 0 < part.y.size < 300
    for row_id, age, label in zip(
        part.row_ids, part.features.columns[0], part.y, strict=True
    ):
        assert values[row_id.tobytes()] == (age, label)


def test_columns_in_chunks_that_begin_inside_an_array_have_each_row_once():
    """Arrow slices without copying, and says where a chunk begins."""
    codes, numbers = (
        pa.array(range(10), pa.int32()),
        pa.array([0.5, None, *range(2, 10)], pa.float64()),
    )
    ids = pa.array([bytes([number]) * 16 for number in range(10)], pa.binary(16))

    def chunked(column):
        return pa.chunked_array(
            [
                column.slice(3, 4),
                column.slice(7),
                column.slice(0, 0),
                column.slice(0, 3),
            ]
        )

    order = [3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert private_rows.integers(chunked(codes)).tolist() == order
    np.testing.assert_array_equal(
        private_rows.numbers(chunked(numbers)), [*order[:7], 0.5, np.nan, 2.0]
    )
    np.testing.assert_array_equal(private_rows._row_ids(chunked(ids))[:, 0], order)


def test_an_empty_scope_and_an_empty_list_of_files_have_no_rows(ingest):
    ingest(NUMBERED)
    assert ingest.read([]).features.n_rows == 0
    nothing = private_rows.read([], Selection(SCHEMA, Partitions(()), WHOLE))
    assert nothing.features.n_rows == 0
    assert nothing.y.dtype == np.int32
    assert nothing.row_ids.shape == (0, 16)
    assert len(nothing.features.columns) == 4


def test_epochs_are_read_in_the_order_of_files(tmp_path, ingest):
    ingest(HEADER + GOOD_ROW * 2)
    other = Ingestion(tmp_path)
    other.destination = row_files.sealed_rows(
        Directory(tmp_path), "ds_a", "ep_b", key=DATA_KEY
    )
    other(HEADER + GOOD_ROW.replace("39", "40") * 3)
    files = [other.destination, ingest.destination]
    rows = private_rows.read(files, Selection(SCHEMA, ingest.partitions, WHOLE))
    assert rows.features.columns[0].tolist() == [40.0] * 3 + [39.0] * 2
    assert rows.features.n_rows == rows.y.size == len(rows.row_ids) == 5


def test_every_file_of_a_long_list_is_read(ingest):
    ingest(NUMBERED)
    files = [ingest.destination] * 20
    selection = Selection(SCHEMA, ingest.partitions, WHOLE)
    codes = CodeRequest(quantile_bins.public_grid(SCHEMA, Grid.COARSE))
    ages = private_rows.read(files, selection).features.columns[0]
    assert ages.tolist() == [index % 120 for index in range(200)] * 20
    assert private_rows.read(files, selection, codes=codes).y.size == 4_000
    blocks = private_rows.read_columns(files, selection, ["age"])
    np.testing.assert_array_equal(
        np.concatenate([block.columns["age"] for block in blocks]), ages
    )


def test_rows_are_read_by_the_thread_that_asks_and_one_that_began_before(
    ingest, monkeypatch
):
    """A machine may start no further thread for a job that is paid."""
    ingest(NUMBERED)
    read, honest, n_threads = [], pq.ParquetFile.read_row_group, pa.io_thread_count()

    def noted(file, group, **named):
        read.append(named["use_threads"])
        return honest(file, group, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    try:
        private_rows.start_reading()
        assert pa.io_thread_count() == 1
    finally:
        pa.set_io_thread_count(n_threads)
    assert read == [False]
    selection = Selection(SCHEMA, ingest.partitions, WHOLE)
    codes = CodeRequest(quantile_bins.public_grid(SCHEMA, Grid.COARSE))
    private_rows.read([ingest.destination], selection)
    private_rows.read([ingest.destination], selection, codes=codes)
    list(private_rows.read_columns([ingest.destination], selection, ["age"]))
    assert not any(read)
    assert len(read) == 1 + 1 + len(SCHEMA.features) + 1 + 1


@pytest.mark.parametrize("cells", [[4], [-1], [0, 99]])
def test_a_cell_that_was_not_declared_is_refused(ingest, cells):
    ingest(NUMBERED)
    with pytest.raises(ValueError, match="no such cell"):
        ingest.read(cells)


def test_cells_without_a_partition_are_refused(ingest):
    ingest.partitions = Partitions(())
    ingest(NUMBERED)
    with pytest.raises(ValueError, match="no such partition"):
        ingest.read([0])
    assert ingest.read().features.n_rows == 200


@pytest.mark.parametrize(
    ("keep_unlabelled", "ages", "labels"),
    [(False, [1.0, 4.0], [0, 1]), (True, [1.0, 2.0, 3.0, 4.0], [0, -1, -1, 1])],
)
def test_rows_with_an_unknown_label_are_dropped_or_kept_for_learning_from_features(
    ingest, keep_unlabelled, ages, labels
):
    ingest(
        HEADER + "1,1,Male,0,<=50K\n2,1,Male,0,\n3,1,Male,0,other\n4,1,Male,0,>50K\n"
    )
    rows = ingest.read(keep_unlabelled=keep_unlabelled)
    assert rows.features.columns[0].tolist() == ages
    assert rows.y.tolist() == labels
    assert rows.row_ids.shape == (len(ages), 16)


def test_the_values_of_a_file_are_sanitised_again(ingest):
    extremes = [float("inf"), float("-inf"), float("nan"), 1e308, 2.4]
    codes = [-(2**31), -1, 2, 3, 2**31 - 1]
    store(ingest, f0=extremes, f1=extremes, f2=codes, f3=codes, label=[0, 1, 0, 1, 0])
    age, height, sex, city = ingest.read().features.columns
    assert age.tolist() == [120.0, 0.0, 0.0, 120.0, 2.0]
    np.testing.assert_array_equal(height, [2.5, 0.5, np.nan, 2.5, 2.4])
    assert sex.tolist() == [2, 2, 2, 3, 2]
    assert city.tolist() == [2, 2, 2, 2, 2]


def test_rows_with_labels_or_cells_out_of_range_are_dropped(ingest):
    store(ingest, label=[0, -1, 2, 2**31 - 1, 1, 1], cell=[0, 0, 0, 0, -1, 4])
    assert ingest.read([0, 1, 2, 3]).y.tolist() == [0]


def replace_bytes(change):
    return lambda file: path_of(file).write_bytes(change(path_of(file).read_bytes()))


def flip_a_bit(file):
    content = bytearray(path_of(file).read_bytes())
    content[len(content) // 2] ^= 1
    path_of(file).write_bytes(content)


def store_without_encryption(file):
    table = stored_table(file)
    pq.write_table(table, path_of(file))


def encrypt_with_another_key(file):
    store_table(stored_table(file), SealedFile.at(path_of(file), DataKey(bytes(32))))


def state_a_newer_format(file):
    store_table(
        stored_table(file).replace_schema_metadata({b"grovekeeper": b"rows/2"}), file
    )


DAMAGES = {
    "absent": lambda file: path_of(file).unlink(),
    "empty": replace_bytes(lambda content: b""),
    "cut in half": replace_bytes(lambda content: content[: len(content) // 2]),
    "wrong footer": replace_bytes(lambda content: content[:-8] + b"\xff" * 8),
    "no row file": replace_bytes(lambda content: b"not a row file at all"),
    "flipped bit": flip_a_bit,
    "not encrypted": store_without_encryption,
    "another key": encrypt_with_another_key,
    "newer format": state_a_newer_format,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_refused(ingest, damage):
    ingest(NUMBERED)
    damage(ingest.destination)
    unreadable(ingest)


@pytest.mark.parametrize(
    "other",
    [
        Schema(SCHEMA.features[:3], SCHEMA.label),
        Schema(SCHEMA.features[::-1], SCHEMA.label),
        Schema(
            (*SCHEMA.features, Feature("more", "numeric", lower=0, upper=1)),
            SCHEMA.label,
        ),
    ],
)
def test_a_file_of_another_declaration_is_refused(ingest, other):
    ingest(NUMBERED)
    ingest.schema = other
    unreadable(ingest)


def test_a_file_without_cells_is_refused_if_a_partition_needs_cells(ingest):
    ingest.partitions = Partitions(())
    ingest(NUMBERED)
    ingest.partitions = Partitions((HashPartition("shard", 4),))
    unreadable(ingest, [0])


def test_nulls_in_columns_without_nulls_are_refused(ingest):
    store(ingest, f2=[0, None])
    unreadable(ingest)


def test_a_label_out_of_range_is_read_as_unknown(ingest):
    store(
        ingest,
        f0=[1.0] * 4,
        f1=[1.0] * 4,
        f2=[0] * 4,
        f3=[0] * 4,
        label=[-5, 2, 2**31 - 1, 1],
    )
    codes = CodeRequest(quantile_bins.public_grid(SCHEMA, Grid.COARSE))
    for keep_unlabelled, labels in ((True, [-1, -1, -1, 1]), (False, [1])):
        assert ingest.read(keep_unlabelled=keep_unlabelled).y.tolist() == labels
        selection = Selection(
            SCHEMA, ingest.partitions, WHOLE, keep_unlabelled=keep_unlabelled
        )
        assert (
            private_rows.read([ingest.destination], selection, codes=codes).y.tolist()
            == labels
        )


def test_a_null_is_no_cell_no_class_and_no_number():
    """Of any chunk, and of a chunk that is a part of another."""
    chunks = [
        pa.array([7, None, 5, 3], pa.int32()).slice(1, 2),
        pa.array([], pa.int32()),
        pa.array([4], pa.int32()),
    ]
    for some in (chunks, chunks[:1], chunks[1:2]):
        stored = pa.chunked_array(some, pa.int32())
        expected = [-1 if value is None else value for value in stored.to_pylist()]
        assert private_rows.integers(stored).tolist() == expected
        as_numbers = private_rows.numbers(stored.cast(pa.float64()))
        assert [
            -1 if np.isnan(value) else int(value) for value in as_numbers
        ] == expected
        assert (private_rows.integers(stored).dtype, as_numbers.dtype) == (
            np.int32,
            np.float64,
        )


def column_blocks(ingest, *names, cells=None, keep_unlabelled=True):
    scope = WHOLE if cells is None else Scope({"shard": cells})
    selection = Selection(
        SCHEMA, ingest.partitions, scope, keep_unlabelled=keep_unlabelled
    )
    return list(private_rows.read_columns([ingest.destination], selection, names))


def test_columns_are_read_by_name_and_no_others(ingest, monkeypatch):
    ingest(NUMBERED)
    read, honest = [], pq.ParquetFile.read_row_group

    ages = ingest.read([1]).features.columns[0].tolist()

    def noted(file, group, *, columns, **named):
        read.append(columns)
        return honest(file, group, columns=columns, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    [block] = column_blocks(ingest, "sex", "income")
    assert block.columns["sex"].tolist() == [1] * 200
    assert block.columns["income"].tolist() == [1] * 200
    assert block.columns.keys() == {"sex", "income"}
    [of_cell] = column_blocks(ingest, "age", cells=(1,))
    assert of_cell.columns["age"].tolist() == ages
    [nothing] = column_blocks(ingest, keep_unlabelled=False)
    assert (nothing.columns, nothing.n_rows) == ({}, 200)
    # without the columns of cells and labels, where they decide nothing
    assert read == [["f2", "label"], ["cell", "f0"], ["label"]]


def test_rows_of_unknown_labels_are_in_the_columns_only_where_asked(ingest):
    store(ingest, f0=[3.0, float("nan"), 1e308], label=[0, -1, 7])
    [block] = column_blocks(ingest, "age", "income")
    assert block.columns["age"].tolist() == [3.0, 0.0, 120.0]
    assert block.columns["income"].tolist() == [0, -1, -1]
    [block] = column_blocks(ingest, "age", "income", keep_unlabelled=False)
    assert block.columns["age"].tolist() == [3.0]
    [block] = column_blocks(ingest)
    assert (block.columns, block.n_rows) == ({}, 3)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_the_columns_of_a_damaged_file_are_refused(ingest, damage):
    ingest(NUMBERED)
    damage(ingest.destination)
    with pytest.raises(InstallationError) as caught:
        column_blocks(ingest, "age", "height", "sex", "city, canton", "income")
    assert caught.value.__context__ is None
