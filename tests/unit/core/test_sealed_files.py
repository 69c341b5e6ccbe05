import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.data_keys import DataKey, SealBroken
from app.core.sealed_files import CHUNK_BYTES, HEADER_BYTES, Reader, SealedFile, Spool, Writer
from tests.support.uploads import path_of

KEY = DataKey(bytes(32))


def test_parquet_is_written_and_read_group_by_group(tmp_path: Path) -> None:
    table = pa.table({"number": list(range(100_000)), "text": [f"row {index}" for index in range(100_000)]})
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with sealed.new(existing="refuse") as writer:
        pq.write_table(table, writer, row_group_size=30_000, compression="none", write_page_checksum=True)
    with sealed.open() as reader, pq.ParquetFile(reader, page_checksum_verification=True) as stored:
        groups = [stored.read_row_group(group, use_threads=False) for group in (3, 0, 2, 1)]
    assert pa.concat_tables([groups[index] for index in (1, 3, 2, 0)]).equals(table)
    assert b"PAR1" not in path_of(sealed).read_bytes()
    assert b"row 7" not in path_of(sealed).read_bytes()


def test_a_damaged_chunk_reaches_the_caller_of_pyarrow_as_one_error(tmp_path: Path) -> None:
    sealed = SealedFile.at(tmp_path / "file", KEY)
    with sealed.new(existing="refuse") as writer:
        pq.write_table(pa.table({"number": list(range(100_000))}), writer, compression="none")
    content = bytearray(path_of(sealed).read_bytes())
    content[HEADER_BYTES + CHUNK_BYTES] ^= 1
    path_of(sealed).write_bytes(content)
    with sealed.open() as reader, pq.ParquetFile(reader) as stored, pytest.raises(SealBroken) as refusal:
        stored.read_row_group(0)
    assert str(refusal.value) == "encrypted bytes are damaged or belong elsewhere"


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
