"""Tests the stores of files: one suite for a folder of this machine and for an object
store.
"""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError

from app.core import limits, object_store
from app.core.errors import InstallationError
from app.core.files import Directory, Store, StoredFile, StoreUnreachable
from app.core.object_store import ObjectStore
from tests.support.failing_store import failing

WHOLE = 64 * 1024
LARGE = 3 * WHOLE + 5
"""Bytes that take several requests."""


@pytest.fixture(autouse=True)
def _small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_WHOLE_BYTES", WHOLE)
    monkeypatch.setattr(object_store, "_PIECE_BYTES", WHOLE)


@pytest.fixture(params=["directory", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return (
        Directory(tmp_path / "home")
        if request.param == "directory"
        else objects(tmp_path)
    )


def objects(folder: Path, *, machine: str = "one", **options: int) -> ObjectStore:
    return ObjectStore(f"file://{folder / 'bucket'}", folder / machine, **options)


def write(store: Store, name: str, content: bytes, *, existing: str = "refuse") -> None:
    with store.new(name, existing=existing) as file:  # type: ignore[arg-type]
        file.write(content)


def names(store: Store, folder: str) -> list[str]:
    return sorted(file.name for file in store.files(folder))


def test_a_file_is_read_as_it_was_written(store: Store) -> None:
    write(store, "rows/ds_a/ep_a.parquet", b"0123456789")
    with store.open("rows/ds_a/ep_a.parquet") as file:
        file.seek(4)
        assert file.read(3) == b"456"
        assert file.seek(-2, os.SEEK_END) == 8
        assert file.read() == b"89"
    assert store.local("rows/ds_a/ep_a.parquet").read_bytes() == b"0123456789"


def test_names_are_listed_by_folder(store: Store) -> None:
    for name in (
        "rows/ds_a/ep_a.parquet",
        "rows/ds_ab/ep_b.parquet",
        "prints/ds_a/ep_a.prints",
    ):
        write(store, name, b"12345")
    assert names(store, "rows/ds_a") == ["rows/ds_a/ep_a.parquet"]
    assert names(store, "rows") == ["rows/ds_a/ep_a.parquet", "rows/ds_ab/ep_b.parquet"]
    assert names(store, "codes") == []
    (listed,) = store.files("prints")
    assert (listed.basename, listed.size_bytes) == ("ep_a.prints", 5)
    assert abs(listed.changed_at.timestamp() - time.time()) < 60


@pytest.mark.parametrize(
    ("existing", "kept"), [("keep", b"first"), ("replace", b"second")]
)
def test_a_second_file_of_a_name(store: Store, existing: str, kept: bytes) -> None:
    write(store, "a/b", b"first")
    write(store, "a/b", b"second", existing=existing)
    assert StoredFile(store, "a/b").read_bytes() == kept
    with pytest.raises(FileExistsError):
        write(store, "a/b", b"third")
    assert StoredFile(store, "a/b").read_bytes() == kept


def test_a_writer_that_fails_leaves_nothing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(KeyError), store.new("a/b", existing="refuse") as file:
        file.write(b"half")
        raise KeyError
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_deleted_file_is_gone_and_may_be_deleted_again(store: Store) -> None:
    write(store, "a/b", b"content")
    for _ in range(2):
        store.delete("a/b")
        with pytest.raises(FileNotFoundError):
            store.open("a/b")
        with pytest.raises(FileNotFoundError):
            store.local("a/b")


def test_a_large_object_is_written_and_read_in_parts_and_refuses_a_second_one(
    tmp_path: Path,
) -> None:
    store, content = objects(tmp_path), os.urandom(LARGE)
    write(store, "a/b", content)
    with pytest.raises(FileExistsError):
        write(store, "a/b", bytes(LARGE))
    assert objects(tmp_path, machine="two").local("a/b").read_bytes() == content


def test_a_copy_is_read_without_the_store_until_the_object_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = objects(tmp_path), objects(tmp_path, machine="two")
    write(one, "rows/a", b"first")
    copy = two.local("rows/a")
    with monkeypatch.context() as patched:
        patched.setattr(obstore, "get", None)
        assert two.local("rows/a") == copy
        assert StoredFile(two, "rows/a").read_bytes() == b"first"
    write(one, "rows/a", b"second", existing="replace")
    assert two.local("rows/a").read_bytes() == b"second"
    assert copy.read_bytes() == b"first", (
        "a job that has not opened its copy yet still finds it"
    )


def test_a_reader_never_mixes_two_objects(tmp_path: Path) -> None:
    store = objects(tmp_path)
    write(store, "a", b"first")
    with store.open("a") as file:
        assert file.read(2) == b"fi"
        write(store, "a", b"other", existing="replace")
        with pytest.raises(OSError, match="object store"):
            file.read()


def test_copies_of_replaced_and_deleted_objects_go_an_hour_after_their_use(
    tmp_path: Path,
) -> None:
    store = objects(tmp_path)
    for name in ("stays", "replaced", "deleted", "young"):
        write(store, name, b"content")
    copies = {
        name: store.local(name) for name in ("stays", "replaced", "deleted", "young")
    }
    long_ago = time.time() - limits.CACHED_OBJECT_STAYS_S - 1
    for name in ("stays", "replaced", "deleted"):
        os.utime(copies[name].parent, (long_ago, long_ago))
    write(store, "replaced", b"new", existing="replace")
    for name in ("deleted", "young"):
        store.delete(name)
    store.tidy()
    assert {name for name, copy in copies.items() if copy.exists()} == {
        "stays",
        "young",
    }


def test_the_copies_that_were_not_used_for_longest_make_room(tmp_path: Path) -> None:
    store, copies = objects(tmp_path), dict[str, Path]()
    for age, name in enumerate(("newest", "older", "oldest")):
        write(store, name, bytes(1000))
        copies[name] = store.local(name)
        at = time.time() - limits.CACHED_OBJECT_STAYS_S - 1 - age
        os.utime(copies[name].parent, (at, at))
    full = objects(tmp_path, max_cached_bytes=3_100)
    write(full, "another", bytes(1000))
    full.local("another")
    assert {name for name, copy in copies.items() if copy.exists()} == {
        "newest",
        "older",
    }


def test_a_copy_that_another_process_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is over its limit, and another process makes room between the look at a
    copy and its use.
    """
    store, exists = objects(tmp_path, max_cached_bytes=0), Path.exists
    write(store, "a", b"content")
    copy = store.local("a")
    long_ago = time.time() - limits.CACHED_OBJECT_STAYS_S - 1
    os.utime(copy.parent, (long_ago, long_ago))

    def exists_until_then(path: Path, **named: bool) -> bool:
        is_there = exists(path, **named)
        objects(tmp_path, max_cached_bytes=0)._make_room()
        return is_there

    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", exists_until_then)
        store.local("a")
    assert store.local("a").read_bytes() == b"content"


def test_a_copy_stays_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, get = objects(tmp_path, max_cached_bytes=0), obstore.get
    write(store, "a", bytes(LARGE))

    def slow(*arguments: Any, **named: Any) -> Any:
        answer = get(*arguments, **named)
        objects(tmp_path, max_cached_bytes=0)._make_room()
        for folder in (tmp_path / "one").iterdir():
            age = folder.stat().st_mtime - limits.CACHED_OBJECT_STAYS_S + 1
            # each piece takes almost as long as an unused copy stays
            os.utime(folder, (age, age))
        return answer

    monkeypatch.setattr(obstore, "get", slow)
    assert store.local("a").read_bytes() == bytes(LARGE)


def test_codes_beside_a_copy_that_was_removed_go_too(tmp_path: Path) -> None:
    store = objects(tmp_path)
    codes = tmp_path / "one" / ("0" * 32) / "codes"
    codes.mkdir(parents=True)
    (codes / "a.codes").write_bytes(b"sealed")
    store.tidy()
    assert codes.exists(), "a process may be about to name the object"
    long_ago = time.time() - limits.CACHED_OBJECT_STAYS_S - 1
    os.utime(codes.parent, (long_ago, long_ago))
    store.tidy()
    assert not codes.exists()


def test_a_reader_that_goes_on_reads_ahead_and_another_reads_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, content, get, ranges = (
        objects(tmp_path),
        os.urandom(LARGE),
        obstore.get,
        list[tuple[int, int]](),
    )
    write(store, "a", content)

    def recorded(*arguments: Any, options: Any) -> Any:
        ranges.append(options["range"])
        return get(*arguments, options=options)

    monkeypatch.setattr(obstore, "get", recorded)
    with store.open("a") as file:
        file.seek(100)
        read = [
            file.read(10),
            *(file.read(1000) for _ in range(50)),
            file.read(),
            file.read(1),
        ]
        file.seek(50)
        assert file.read(4) == content[50:54]
    assert b"".join(read) == content[100:]
    assert ranges[:2] == [(100, 110), (110, 110 + WHOLE)]
    assert ranges[-1] == (50, 54)
    assert len(ranges) <= 8


def test_an_answer_that_is_too_short_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, get = objects(tmp_path), obstore.get
    write(store, "a", b"content")

    def cut(*arguments: Any, options: Any) -> Any:
        return get(*arguments, options=options | {"range": (0, 3)})

    monkeypatch.setattr(obstore, "get", cut)
    with pytest.raises(StoreUnreachable):
        store.local("a")
    assert [path for path in (tmp_path / "one").rglob("a*") if path.is_file()] == []


CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "new": lambda store: write(store, "a/b", b"content"),
    "large": lambda store: write(store, "a/b", bytes(LARGE)),
    "open": lambda store: store.open("a/b"),
    "local": lambda store: store.local("a/b"),
    "files": lambda store: list(store.files("a")),
    "delete": lambda store: store.delete("a/b"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_outage_is_one_error_that_quotes_nothing(tmp_path: Path, call: str) -> None:
    error = GenericError("PUT https://canary.example/bucket?signature=canary")
    with failing(error=error), pytest.raises(StoreUnreachable) as refused:
        CALLS[call](objects(tmp_path))
    assert refused.value.strerror == "the object store does not answer (GenericError)"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("address", ["nowhere", "ftp://host/path", "s3://"])
def test_an_address_that_is_no_store_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(InstallationError, match="GROVEKEEPER_STORE cannot be used"):
        ObjectStore(address, tmp_path)


def test_a_folder_of_objects_is_closed_to_other_accounts(tmp_path: Path) -> None:
    write(objects(tmp_path), "fingerprint.key", b"SECRET")
    assert stat.S_IMODE((tmp_path / "bucket").stat().st_mode) == 0o700, (
        "whatever the library gives its files"
    )
    (tmp_path / "bucket").chmod(0o750)
    with pytest.raises(InstallationError, match="Run: chmod go= "):
        objects(tmp_path)
    assert stat.S_IMODE((tmp_path / "bucket").stat().st_mode) == 0o750, (
        "it may be a folder of others"
    )


@pytest.mark.parametrize(
    "address", ["file://", "file:///dev/null/x", "file://host/srv", "file:srv"]
)
def test_a_folder_that_cannot_be_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InstallationError, match="GROVEKEEPER_STORE cannot be used"):
        ObjectStore(address, tmp_path)
