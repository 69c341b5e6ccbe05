"""Tests durable files, which are complete or absent and private, and files that are
closed to other accounts.
"""

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from app.core.errors import InstallationError
from app.core.files import close_to_others
from grovekeeper_common import durable_files


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_appears_complete_and_private(tmp_path):
    file = tmp_path / "rows"
    before = os.umask(0)
    try:
        with durable_files.new_file(file, existing="replace") as stream:
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
    with (
        pytest.raises(error),
        durable_files.new_file(tmp_path / "rows", existing="replace") as stream,
    ):
        stream.write(b"half")
        raise error
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_an_error_of_a_full_disk_names_the_file(tmp_path, code):
    with (
        pytest.raises(OSError, match="rows") as full,
        durable_files.new_file(tmp_path / "rows", existing="refuse"),
    ):
        raise OSError(code, "full")
    assert full.value.filename == str(tmp_path / "rows")
    with (
        pytest.raises(ConnectionError) as other,
        durable_files.new_file(tmp_path / "rows", existing="refuse"),
    ):
        raise ConnectionResetError(errno.ECONNRESET, "reset")
    assert other.value.filename is None


def test_a_replaced_file_takes_the_new_content_and_the_new_mode(tmp_path):
    file = tmp_path / "admin.key"
    file.write_bytes(b"old")
    file.chmod(0o644)
    durable_files.write(file, b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names_in(tmp_path) == ["admin.key"]


def test_the_first_of_several_writers_wins(tmp_path):
    for content in (b"first", b"second"):
        durable_files.write(tmp_path / "signing.key", content, existing="keep")
    assert (tmp_path / "signing.key").read_bytes() == b"first"
    assert names_in(tmp_path) == ["signing.key"]


def test_a_file_that_must_be_new_is_refused_before_the_block_runs(tmp_path):
    durable_files.write(tmp_path / "rows", b"first")
    with (
        pytest.raises(FileExistsError) as caught,
        durable_files.new_file(tmp_path / "rows", existing="refuse"),
    ):
        pytest.fail("an existing file was opened")
    assert str(tmp_path) not in str(caught.value)
    assert (tmp_path / "rows").read_bytes() == b"first"
    assert names_in(tmp_path) == ["rows"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path):
    with (
        pytest.raises(FileExistsError),
        durable_files.new_file(tmp_path / "rows", existing="refuse") as stream,
    ):
        stream.write(b"second")
        (tmp_path / "rows").write_bytes(b"first")
    assert (tmp_path / "rows").read_bytes() == b"first"
    assert names_in(tmp_path) == ["rows"]


def test_a_link_to_nothing_is_an_existing_file(tmp_path):
    (tmp_path / "rows").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(FileExistsError),
        durable_files.new_file(tmp_path / "rows", existing="refuse"),
    ):
        pytest.fail("an existing file was opened")
    assert (tmp_path / "rows").is_symlink()


def test_a_disk_without_hard_links_takes_a_new_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(durable_files.os, "link", refuse)
    with durable_files.new_file(tmp_path / "rows", existing="refuse") as stream:
        stream.write(b"first")
    assert (tmp_path / "rows").read_bytes() == b"first"
    with (
        pytest.raises(PermissionError),
        durable_files.new_file(tmp_path / "other", existing="refuse"),
    ):
        (tmp_path / "other").write_bytes(b"first")
    assert (tmp_path / "other").read_bytes() == b"first"
    assert names_in(tmp_path) == ["other", "rows"]


@pytest.mark.parametrize("existing", ["replace", "keep", "refuse"])
def test_the_content_is_synced_before_the_name_exists_and_the_folder_after(
    tmp_path, monkeypatch, existing
):
    synced = []

    def sync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, (tmp_path / "rows").exists()))

    monkeypatch.setattr(durable_files.os, "fsync", sync)
    durable_files.write(tmp_path / "rows", b"content", existing=existing)
    assert synced == [("file", False), ("folder", True)]


def test_new_folders_are_private_and_each_is_synced_in_its_parent(
    tmp_path, monkeypatch
):
    synced = []
    monkeypatch.setattr(durable_files, "sync_folder", synced.append)
    durable_files.make_folder(tmp_path / "rows" / "ds_a")
    assert synced == [tmp_path, tmp_path / "rows"]
    assert stat.S_IMODE((tmp_path / "rows" / "ds_a").stat().st_mode) == 0o700
    durable_files.make_folder(tmp_path / "rows" / "ds_a")
    assert len(synced) == 2


def test_the_access_of_other_accounts_is_removed_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, file, closed = (
        tmp_path / "rows",
        tmp_path / "storage.key",
        tmp_path / "signing.key",
    )
    folder.mkdir()
    for path, mode in ((folder, 0o755), (file, 0o640), (closed, 0o400)):
        path.touch()
        path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        close_to_others([folder, file, closed, tmp_path / "absent"])
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file, closed)] == [
        0o700,
        0o600,
        0o400,
    ]
    assert len(caplog.records) == 2
    caplog.clear()
    close_to_others([folder, file, closed])
    assert caplog.records == []


def test_an_open_file_of_another_account_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "storage.key"
    file.touch()
    file.chmod(0o644)

    def refuse(_path: Path, _mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(
        InstallationError, match=r"storage\.key, which .* \(Operation not permitted\)"
    ):
        close_to_others([file])
