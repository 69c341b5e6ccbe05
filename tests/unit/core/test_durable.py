"""Tests durable files: complete or absent, private to their owner, synced before they get their name."""

import os
import stat

import pytest

from app.core import durable


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_appears_complete_and_private(tmp_path):
    file = tmp_path / "rows"
    before = os.umask(0)
    try:
        with durable.new_file(file, existing="replace") as stream:
            stream.write(b"half")
            stream.flush()
            assert not file.exists()
            stream.write(b" and half")
    finally:
        os.umask(before)
    assert file.read_bytes() == b"half and half"
    assert names_in(tmp_path) == ["rows"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_leaves_no_file(tmp_path, error):
    with pytest.raises(error), durable.new_file(tmp_path / "rows", existing="replace") as stream:
        stream.write(b"half")
        raise error
    assert names_in(tmp_path) == []


def test_a_replaced_file_takes_the_new_content_and_the_new_mode(tmp_path):
    file = tmp_path / "admin.key"
    file.write_bytes(b"old")
    file.chmod(0o644)
    durable.write(file, b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names_in(tmp_path) == ["admin.key"]


def test_the_first_of_several_writers_wins(tmp_path):
    for content in (b"first", b"second"):
        durable.write(tmp_path / "signing.key", content, existing="keep")
    assert (tmp_path / "signing.key").read_bytes() == b"first"
    assert names_in(tmp_path) == ["signing.key"]


def test_a_file_that_must_be_new_is_refused_before_the_block_runs(tmp_path):
    durable.write(tmp_path / "rows", b"first")
    with pytest.raises(FileExistsError) as caught, durable.new_file(tmp_path / "rows", existing="refuse"):
        pytest.fail("an existing file was opened")
    assert str(tmp_path) not in str(caught.value)
    assert (tmp_path / "rows").read_bytes() == b"first"
    assert names_in(tmp_path) == ["rows"]


@pytest.mark.parametrize("existing", ["replace", "keep"])
def test_the_content_is_synced_before_the_name_exists_and_the_folder_after(tmp_path, monkeypatch, existing):
    synced = []

    def sync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, (tmp_path / "rows").exists()))

    monkeypatch.setattr(durable.os, "fsync", sync)
    durable.write(tmp_path / "rows", b"content", existing=existing)
    assert synced == [("file", False), ("folder", True)]


def test_new_folders_are_private_and_each_is_synced_in_its_parent(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    durable.make_folder(tmp_path / "rows" / "ds_a")
    assert synced == [tmp_path, tmp_path / "rows"]
    assert stat.S_IMODE((tmp_path / "rows" / "ds_a").stat().st_mode) == 0o700
    durable.make_folder(tmp_path / "rows" / "ds_a")
    assert len(synced) == 2
