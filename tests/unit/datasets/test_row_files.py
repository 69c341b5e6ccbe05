"""Tests the places of row files and their erasure."""

import os
import threading
from contextlib import suppress
from datetime import timedelta

import pytest

from app.core import clock, durable
from app.datasets import row_files


def everything_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def write(destination, content=b"rows"):
    durable.make_folder(destination.parent)
    durable.write(destination, content)


def test_the_path_of_an_epoch(tmp_path):
    file = row_files.epoch_file(tmp_path, "ds_abc", "ep_xyz")
    assert file == tmp_path / "rows" / "ds_abc" / "ep_xyz.parquet"


@pytest.mark.parametrize("text", ["", ".", "..", "../x", "a/b", "a\\b", "A", "ds\0", "ds\n", "é", "x" * 65])
def test_a_text_that_is_not_an_id_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="epoch id"):
        row_files.epoch_file(tmp_path, "ds_abc", text)
    with pytest.raises(ValueError, match="dataset id"):
        row_files.epoch_file(tmp_path, text, "ep_xyz")
    with pytest.raises(ValueError, match="dataset id"):
        row_files.erase_dataset(tmp_path, text)


def test_erasing_one_epoch_keeps_the_others(tmp_path):
    for epoch in ("ep_a", "ep_b"):
        write(row_files.epoch_file(tmp_path, "ds_a", epoch))
    row_files.erase_epoch(tmp_path, "ds_a", "ep_a")
    row_files.erase_epoch(tmp_path, "ds_a", "ep_a")
    assert everything_in(tmp_path) == ["ep_b.parquet"]


def test_erasing_a_dataset_takes_its_unfinished_uploads_and_no_other_dataset(tmp_path):
    write(row_files.epoch_file(tmp_path, "ds_a", "ep_a"))
    write(row_files.epoch_file(tmp_path, "ds_ab", "ep_b"))
    (tmp_path / "rows" / "ds_a" / ".ep_c.parquet.00.part").write_bytes(b"half")
    row_files.erase_dataset(tmp_path, "ds_a")
    row_files.erase_dataset(tmp_path, "ds_a")
    assert everything_in(tmp_path) == ["ep_b.parquet"]
    assert not (tmp_path / "rows" / "ds_a").exists()


def test_concurrent_uploads_neither_stop_an_erasure_nor_save_rows_from_it(tmp_path):
    folder, is_over = tmp_path / "rows" / "ds_a", threading.Event()

    def upload(name):
        while not is_over.is_set():
            with suppress(FileNotFoundError):
                durable.make_folder(folder)
                (folder / name).touch()
                (folder / name).unlink()

    uploads = [threading.Thread(target=upload, args=(f".ep_{index}.part",)) for index in range(3)]
    for thread in uploads:
        thread.start()
    try:
        for index in range(100):
            rows = folder / f"ep_{index}.parquet"
            with suppress(FileNotFoundError):
                durable.make_folder(folder)
                rows.touch()
            row_files.erase_dataset(tmp_path, "ds_a")
            assert not rows.exists()
            assert not list(tmp_path.glob("rows/.*"))
    finally:
        is_over.set()
        for thread in uploads:
            thread.join()


def test_a_file_that_is_made_during_an_erasure_is_erased(tmp_path, monkeypatch):
    """Another call may open the folder just before the erasure renames it."""
    (row_files.epoch_file(tmp_path, "ds_a", "ep_a")).parent.mkdir(parents=True)
    rmdir, made = os.rmdir, []

    def make_a_file_and_remove(path, *, dir_fd=None):
        if not made and str(path).endswith(".erased"):
            descriptor = os.open(path, os.O_RDONLY, dir_fd=dir_fd)
            os.close(os.open("late.part", os.O_CREAT, dir_fd=descriptor))
            os.close(descriptor)
            made.append(path)
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", make_a_file_and_remove)
    row_files.erase_dataset(tmp_path, "ds_a")
    assert made
    assert list(tmp_path.glob("rows/*")) == []


def test_the_next_erasure_removes_what_a_killed_erasure_left(tmp_path, monkeypatch):
    def killed(_):
        raise KeyboardInterrupt

    for finish in (lambda: row_files.erase_dataset(tmp_path, "ds_a"), lambda: row_files.erase_remains(tmp_path)):
        rows = row_files.epoch_file(tmp_path, "ds_a", "ep_a")
        rows.parent.mkdir(parents=True)
        rows.touch()
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(row_files.shutil, "rmtree", killed)
            row_files.erase_dataset(tmp_path, "ds_a")
        finish()
        assert list(tmp_path.glob("rows/*")) == []


def test_an_upload_into_an_erased_dataset_fails_and_leaves_nothing(tmp_path):
    destination = row_files.epoch_file(tmp_path, "ds_a", "ep_a")
    durable.make_folder(destination.parent)
    with pytest.raises(FileNotFoundError), durable.new_file(destination, existing="refuse") as file:
        file.write(b"half")
        row_files.erase_dataset(tmp_path, "ds_a")
    assert everything_in(tmp_path) == []


def test_files_of_killed_uploads_are_erased_and_files_of_running_uploads_are_not(tmp_path):
    old = row_files.epoch_file(tmp_path, "ds_a", "ep_a")
    write(old)
    killed = old.parent / ".ep_b.parquet.00.part"
    killed.write_bytes(b"half")
    hour_ago = clock.now() - timedelta(hours=1)
    for file in (old, killed):
        os.utime(file, (hour_ago.timestamp() - 60, hour_ago.timestamp() - 60))
    with durable.new_file(row_files.epoch_file(tmp_path, "ds_a", "ep_c"), existing="refuse"):
        assert row_files.erase_unfinished(tmp_path, before=hour_ago) == 1
    assert everything_in(tmp_path) == ["ep_a.parquet", "ep_c.parquet"]
    assert row_files.erase_unfinished(tmp_path / "absent", before=hour_ago) == 0
