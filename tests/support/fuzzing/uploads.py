"""Targets that read uploads of CSV, and the encrypted files that rows are stored in."""

import atexit
import csv
import gzip
import io
import shutil
import tempfile
from functools import cache
from pathlib import Path

from app.core.sealed_files import DataKey, Reader, SealBroken, Writer
from grovekeeper_forests.errors import GrovekeeperError
from tests.support.uploads import GOOD_ROW, HEADER, Ingestion

_PLAIN, _PACKED = b"p", b"z"


@cache
def _ingest() -> Ingestion:
    folder = Path(tempfile.mkdtemp(prefix="fuzzed-uploads-"))
    atexit.register(shutil.rmtree, folder)
    return Ingestion(folder)


def seeds() -> tuple[bytes, ...]:
    texts = [
        HEADER + GOOD_ROW * 3,
        HEADER.replace("\n", "\r\n")
        + '150,,,0,<=50K\r\n-1,9,female,"Bern, BE",50\r\n12,0.5," Ma""le",Basel,\r\n',
        "\ufeff" + HEADER + "7,nan,Female,0,>50K\n\n\n1e3,+inf,,0,\n",
        HEADER,
    ]
    plain = [text.encode() for text in texts]
    return (
        *(_PLAIN + text for text in plain),
        *(_PACKED + gzip.compress(text, mtime=0) for text in plain),
    )


def run(data: bytes) -> bool:
    """An upload is refused and leaves no file, or every record that another reader of
    CSV sees is one stored row.
    """
    ingest = _ingest()
    is_packed, body = data[:1] == _PACKED, data[1:]
    try:
        report = ingest(body, gzip=is_packed)
    except GrovekeeperError:
        assert ingest.files() == []
        return False
    rows = ingest.read(keep_unlabelled=True)
    assert len(rows.row_ids) == report.n_rows
    text = (gzip.decompress(body) if is_packed else body).decode("utf-8-sig")
    records = [record for record in csv.reader(io.StringIO(text, newline="")) if record]
    assert len(records) == report.n_rows + 1
    assert {len(record) for record in records} == {5}
    for file in ingest.home.rglob("*"):
        if file.is_file():
            file.unlink()
    return True


_TEXT = b"rows " * 100
_KEY = DataKey(bytes(32))


@cache
def seeds_of_sealed_files() -> tuple[bytes, ...]:
    file = io.BytesIO()
    writer = Writer(file, _KEY)
    writer.write(_TEXT)
    writer.finish()
    return (file.getvalue(),)


def run_sealed_file(data: bytes) -> bool:
    """An encrypted file is read only as it was written."""
    try:
        text = Reader(io.BytesIO(data), _KEY).read()
    except SealBroken:
        return False
    assert text == _TEXT
    assert data == seeds_of_sealed_files()[0]
    return True
