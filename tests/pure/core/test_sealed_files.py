"""Tests keys of datasets and of installations, and files that are encrypted in chunks."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.core.errors import InstallationError
from app.core.sealed_files import (
    CHUNK_BYTES,
    HEADER_BYTES,
    DataKey,
    Reader,
    SealBroken,
    SealedFile,
    Spool,
    StorageKeys,
    Writer,
)
from tests.support.uploads import path_of

DATA_KEY = DataKey(bytes(range(32)))


def test_a_wrapped_key_is_opened_for_its_dataset_alone() -> None:
    keys = StorageKeys.from_text(StorageKeys.new_text())
    wrapped = keys.wrap(DATA_KEY, dataset_id="ds_a")
    assert keys.unwrap(wrapped, dataset_id="ds_a") == DATA_KEY
    assert DATA_KEY.secret not in wrapped
    with pytest.raises(InstallationError, match="damaged"):
        keys.unwrap(wrapped, dataset_id="ds_b")


@pytest.mark.parametrize("place", [9, 20, 30, 68])
def test_a_damaged_wrapped_key_is_refused(place: int) -> None:
    keys = StorageKeys.from_text(StorageKeys.new_text())
    wrapped = bytearray(keys.wrap(DATA_KEY, dataset_id="ds_a"))
    wrapped[place] ^= 1
    with pytest.raises(InstallationError, match="damaged"):
        keys.unwrap(bytes(wrapped), dataset_id="ds_a")


def test_older_keys_open_and_the_first_key_wraps() -> None:
    old, new = StorageKeys.new_text(), StorageKeys.new_text()
    before, both, after = (
        StorageKeys.from_text(text) for text in (old, new + old, new)
    )
    wrapped = before.wrap(DATA_KEY, dataset_id="ds_a")
    assert both.unwrap(wrapped, dataset_id="ds_a") == DATA_KEY
    assert not both.is_newest(wrapped)
    again = both.wrap(DATA_KEY, dataset_id="ds_a")
    assert both.is_newest(again)
    assert after.unwrap(again, dataset_id="ds_a") == DATA_KEY
    with pytest.raises(
        InstallationError,
        match=f"storage key {before.newest_id}, which this process does not have",
    ):
        after.unwrap(wrapped, dataset_id="ds_a")
    with pytest.raises(InstallationError, match=before.newest_id):
        after.require([again, wrapped])
    both.require([again, wrapped])


@pytest.mark.parametrize(
    "text", ["", " \n", "secret-text", "c2hvcnQ=", f"{'A' * 43}= c2hvcnQ="]
)
def test_a_text_that_is_no_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InstallationError, match="32 random bytes in base64") as refusal:
        StorageKeys.from_text(text)
    assert not text.strip() or text.strip() not in str(refusal.value)


def test_every_use_has_another_secret() -> None:
    secrets = [
        DATA_KEY.derived(b"a"),
        DATA_KEY.derived(b"b"),
        DATA_KEY.derived(b"a", salt=b"1"),
        DATA_KEY.derived(b"a", salt=b"2"),
        DATA_KEY.secret,
    ]
    assert len(set(secrets)) == len(secrets)


def test_a_sealed_text_belongs_to_its_key_and_purpose() -> None:
    sealed = DATA_KEY.seal(b"text", purpose=b"p")
    assert DATA_KEY.open(sealed, purpose=b"p") == b"text"
    changes = [
        (DataKey(bytes(32)), b"p", sealed),
        (DATA_KEY, b"q", sealed),
        (DATA_KEY, b"p", sealed[:-1]),
        (DATA_KEY, b"p", b""),
    ]
    for key, purpose, text in changes:
        with pytest.raises(SealBroken):
            key.open(text, purpose=purpose)


def test_keys_are_not_in_the_repr() -> None:
    text = StorageKeys.new_text()
    assert repr(DATA_KEY) == "DataKey()"
    assert text.strip() not in repr(StorageKeys.from_text(text))


KEY = DataKey(bytes(32))


def test_parquet_is_written_and_read_group_by_group(tmp_path: Path) -> None:
    table = pa.table(
        {
            "number": list(range(100_000)),
            "text": [f"row {index}" for index in range(100_000)],
        }
    )
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with sealed.new(existing="refuse") as writer:
        pq.write_table(
            table,
            writer,
            row_group_size=30_000,
            compression="none",
            write_page_checksum=True,
        )
    with (
        sealed.open() as reader,
        pq.ParquetFile(reader, page_checksum_verification=True) as stored,
    ):
        groups = [
            stored.read_row_group(group, use_threads=False) for group in (3, 0, 2, 1)
        ]
    assert pa.concat_tables([groups[index] for index in (1, 3, 2, 0)]).equals(table)
    assert b"PAR1" not in path_of(sealed).read_bytes()
    assert b"row 7" not in path_of(sealed).read_bytes()


def test_a_damaged_chunk_reaches_the_caller_of_pyarrow_as_one_error(
    tmp_path: Path,
) -> None:
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with sealed.new(existing="refuse") as writer:
        pq.write_table(
            pa.table({"number": list(range(100_000))}), writer, compression="none"
        )
    content = bytearray(path_of(sealed).read_bytes())
    content[HEADER_BYTES + CHUNK_BYTES] ^= 1
    path_of(sealed).write_bytes(content)
    with (
        sealed.open() as reader,
        pq.ParquetFile(reader) as stored,
        pytest.raises(SealBroken) as refusal,
    ):
        stored.read_row_group(0)
    assert str(refusal.value) == "encrypted bytes are damaged or belong elsewhere"


def test_a_file_under_another_name_is_refused(tmp_path: Path) -> None:
    sealed, moved = (
        SealedFile.at(tmp_path / name, KEY) for name in ("ep_1.parquet", "ep_2.parquet")
    )
    with sealed.new(existing="refuse") as writer:
        writer.write(b"text")
    path_of(moved).write_bytes(path_of(sealed).read_bytes())
    with pytest.raises(SealBroken):
        moved.open()


def test_a_file_of_version_1_is_read(tmp_path: Path) -> None:
    sealed, file_id = SealedFile.at(tmp_path / "file", KEY), bytes(range(32))
    header = (
        b"GKSF\x01\x10\0\0"
        + KEY.derived(b"grovekeeper/data-key-id/1", n_bytes=8)
        + file_id
    )
    cipher = AESGCM(KEY.derived(b"grovekeeper/sealed-file/1", salt=file_id))
    chunk = cipher.encrypt(bytes(12), b"text", header + bytes(8) + b"\x01")
    path_of(sealed).write_bytes(header + chunk)
    sealed.authenticate()
    with sealed.open() as reader:
        assert reader.read() == b"text"


@pytest.mark.parametrize(
    "n_bytes", [0, 5, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES]
)
def test_every_byte_is_authenticated(tmp_path: Path, n_bytes: int) -> None:
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with sealed.new(existing="refuse") as writer:
        writer.write(bytes(n_bytes))
    sealed.authenticate()
    content = path_of(sealed).read_bytes()
    for place in {*range(0, len(content), 997), *range(HEADER_BYTES), len(content) - 1}:
        path_of(sealed).write_bytes(
            content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        )
        with pytest.raises(SealBroken):
            sealed.authenticate()
    for length in {0, 1, HEADER_BYTES, len(content) // 2, len(content) - 1}:
        path_of(sealed).write_bytes(content[:length])
        with pytest.raises(SealBroken):
            sealed.authenticate()


def test_a_damaged_chunk_is_refused_whenever_it_is_read(tmp_path: Path) -> None:
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with sealed.new(existing="refuse") as writer:
        writer.write(b"a" * CHUNK_BYTES + b"text")
    content = bytearray(path_of(sealed).read_bytes())
    content[HEADER_BYTES] ^= 1
    path_of(sealed).write_bytes(content)
    with sealed.open() as reader:
        for _ in range(2):
            reader.seek(0)
            with pytest.raises(SealBroken):
                reader.read(10)
        reader.seek(CHUNK_BYTES)
        assert reader.read() == b"text"


def test_a_file_whose_writer_fails_has_no_name(tmp_path: Path) -> None:
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with pytest.raises(KeyError), sealed.new(existing="refuse") as writer:
        writer.write(b"text")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_did_not_finish_leaves_no_readable_file(tmp_path: Path) -> None:
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with path_of(sealed).open("wb") as file:
        Writer(file, KEY).write(bytes(3 * CHUNK_BYTES))
    with pytest.raises(SealBroken):
        sealed.open()


def test_a_spool_is_read_with_the_key_that_it_made() -> None:
    file = io.BytesIO()
    spool = Spool(file)
    spool.write(b"canary" * 20_000)
    reader = spool.reader()
    assert reader.read() == b"canary" * 20_000
    assert b"canary" not in file.getvalue()
    file.seek(0)
    with pytest.raises(SealBroken):
        Reader(file, KEY)


def test_the_key_is_not_in_the_repr() -> None:
    assert "key" not in repr(SealedFile.at(Path("file"), KEY))
