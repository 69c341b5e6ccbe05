"""Tests the names of row files and their erasure."""

import os
from datetime import timedelta

import pytest

from app.core import stamps
from app.core.files import Directory
from app.datasets import row_files


def everything_in(store):
    return sorted(
        file.basename
        for folder in ("rows", "prints", "codes")
        for file in store.files(folder)
    )


def write(store, name, content=b"rows"):
    with store.new(name, existing="refuse") as file:
        file.write(content)
    return store.folder / name


@pytest.fixture
def store(tmp_path):
    return Directory(tmp_path)


def test_the_name_of_an_epoch():
    assert row_files.rows_name("ds_abc", "ep_xyz") == "rows/ds_abc/ep_xyz.parquet"


@pytest.mark.parametrize(
    "text", ["", ".", "..", "../x", "a/b", "a\\b", "A", "ds\0", "ds\n", "é", "x" * 65]
)
def test_a_text_that_is_not_an_id_is_refused(store, text):
    with pytest.raises(ValueError, match="not an id"):
        row_files.rows_name("ds_abc", text)
    with pytest.raises(ValueError, match="not an id"):
        row_files.rows_name(text, "ep_xyz")
    with pytest.raises(ValueError, match="not an id"):
        row_files.erase_dataset(store, text)


def test_erasing_one_epoch_keeps_the_others(store):
    for epoch in ("ep_a", "ep_ab"):
        for name_of in (
            row_files.rows_name,
            row_files.prints_name,
            row_files.book_name,
        ):
            write(store, name_of("ds_a", epoch))
        write(store, f"codes/ds_a/{epoch}.00ff.codes")
    row_files.erase_epoch(store, "ds_a", "ep_a")
    row_files.erase_epoch(store, "ds_a", "ep_a")
    assert everything_in(store) == [
        "ep_ab.00ff.codes",
        "ep_ab.parquet",
        "ep_ab.prints",
        "ep_ab.units",
    ]


def test_erasing_a_dataset_takes_its_unfinished_uploads_and_no_other_dataset(store):
    for dataset in ("ds_a", "ds_ab"):
        for name in (
            row_files.rows_name(dataset, "ep_a"),
            row_files.prints_name(dataset, "ep_a"),
        ):
            write(store, name)
    write(store, "rows/ds_a/.ep_c.parquet.00.part")
    write(store, "codes/ds_a/ep_a.00ff.codes")
    write(store, row_files.admission_name("ds_a"))
    row_files.erase_dataset(store, "ds_a")
    row_files.erase_dataset(store, "ds_a")
    assert everything_in(store) == ["ep_a.parquet", "ep_a.prints"]


def test_rows_and_fingerprints_of_uploads_that_were_not_committed_are_erased(store):
    for dataset, epoch in (("ds_a", "ep_a"), ("ds_a", "ep_ab"), ("ds_ab", "ep_c")):
        for name_of in (row_files.rows_name, row_files.prints_name):
            write(store, name_of(dataset, epoch))
    for kind, ending in (("rows", "parquet"), ("prints", "prints")):
        write(store, f"{kind}/ds_a/.ep_d.{ending}.00.part")
    write(store, row_files.admission_name("ds_a"))
    for _ in range(2):
        row_files.erase_uncommitted(store, "ds_a", committed=["ep_ab"])
    assert everything_in(store) == [
        "ep_ab.parquet",
        "ep_ab.prints",
        "ep_c.parquet",
        "ep_c.prints",
        "units.sqlite3",
    ]


def test_an_upload_into_an_erased_dataset_fails_and_leaves_nothing(store):
    with (
        pytest.raises(FileNotFoundError),
        store.new(row_files.rows_name("ds_a", "ep_a"), existing="refuse") as file,
    ):
        file.write(b"half")
        row_files.erase_dataset(store, "ds_a")
    assert everything_in(store) == []


def test_files_of_killed_uploads_are_erased_and_files_of_running_uploads_are_not(store):
    old = write(store, row_files.rows_name("ds_a", "ep_a"))
    killed = write(store, "rows/ds_a/.ep_b.parquet.00.part")
    hour_ago = stamps.now() - timedelta(hours=1)
    for file in (old, killed):
        os.utime(file, (hour_ago.timestamp() - 60, hour_ago.timestamp() - 60))
    with store.new(row_files.rows_name("ds_a", "ep_c"), existing="refuse"):
        assert row_files.erase_unfinished(store, before=hour_ago) == 1
    assert everything_in(store) == ["ep_a.parquet", "ep_c.parquet"]
    assert (
        row_files.erase_unfinished(Directory(store.folder / "absent"), before=hour_ago)
        == 0
    )
