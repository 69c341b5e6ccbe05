"""Tests that fingerprints are keyed functions of a row's values, and how overlaps are
counted.
"""

import hashlib
import hmac
import stat
import struct
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import cmac
from cryptography.hazmat.primitives.ciphers import algorithms

from app.core.errors import InstallationError, RowsInvalid
from app.core.files import Directory
from app.core.sealed_files import DataKey, SealedFile
from app.datasets import fingerprints, row_files
from grovekeeper_forests.data.schema import Feature, Label, Schema
from tests.support.set_limits import SetLimit
from tests.support.uploads import (
    DATA_KEY,
    GOOD_ROW,
    HEADER,
    KEY,
    SCHEMA,
    Ingestion,
    path_of,
)


def printed(ingest: Ingestion) -> list[int]:
    return values(row_files.sealed_prints(ingest.store, "ds_a", "ep_a", key=DATA_KEY))


def values(file: SealedFile) -> list[int]:
    with file.open() as reader:
        return np.frombuffer(reader.read(), dtype="<u8").tolist()


def stored(folder: Path, name: str, values: list[int]) -> SealedFile:
    file = SealedFile.at(folder / name, DataKey(name.encode().ljust(32, b".")))
    with file.new(existing="refuse") as writer:
        writer.write(np.array(values, dtype="<u8").tobytes())
    return file


def test_every_stored_row_has_a_fingerprint_and_equal_rows_have_equal_fingerprints(
    ingest: Ingestion,
) -> None:
    other = '40,1.75,Male,"Bern, BE",>50K\n'
    ingest(HEADER + GOOD_ROW + other + GOOD_ROW)
    first, second, third = printed(ingest)
    assert first == third != second


def test_order_of_columns_in_the_file_and_space_around_cells_do_not_matter(
    tmp_path: Path,
) -> None:
    plain, turned = Ingestion(tmp_path / "a"), Ingestion(tmp_path / "b")
    plain(HEADER + GOOD_ROW)
    turned('income,"city, canton",sex,height,age\n>50K,"Bern, BE",Male, 1.75 ,39\n')
    assert printed(plain) == printed(turned)


def test_equal_numbers_have_equal_fingerprints(tmp_path: Path) -> None:
    plain, other = Ingestion(tmp_path / "a"), Ingestion(tmp_path / "b")
    plain(HEADER + GOOD_ROW)
    other(HEADER + '+39.0,175e-2,Male,"Bern, BE",>50K\n')
    assert printed(plain) == printed(other)


def test_all_undeclared_texts_of_a_column_are_one_value(ingest: Ingestion) -> None:
    rows = [GOOD_ROW.replace("Male", text) for text in ("Male", "male", " Male", "")]
    declared, undeclared, also_undeclared, empty = _printed_rows(ingest, rows)
    assert undeclared == also_undeclared
    assert len({declared, undeclared, empty}) == 3


def test_numbers_are_not_clamped(ingest: Ingestion) -> None:
    out_of_bounds = [
        GOOD_ROW.replace("39", number) for number in ("1000", "2000", "2e3")
    ]
    first, second, third = _printed_rows(ingest, out_of_bounds)
    assert first != second == third


def _printed_rows(ingest: Ingestion, rows: list[str]) -> list[int]:
    ingest(HEADER + "".join(rows))
    return printed(ingest)


_NUMBERS = [1.5, -0.0, np.nan, np.inf]


@pytest.mark.parametrize("n_numbers", [0, 1, 2, 3])
def test_fingerprints_are_cmac_of_the_words_of_a_row(n_numbers: int) -> None:
    names = [f"n{index}" for index in range(n_numbers)]
    columns = [pa.array(np.roll(_NUMBERS, index)) for index in range(n_numbers)]
    expected = [_cmac(row) for row in _encoded(columns, [0, 1, 2, 3], [1, 0, -1, 1])]
    # the order in which categories are declared does not matter
    for texts in (["a", "b"], ["b", "a"]):
        features = [Feature(name, "numeric", lower=0, upper=1) for name in names]
        schema = Schema(
            (*features, Feature("k", "categorical", categories=tuple(texts))),
            Label("y", ("no", "yes")),
        )
        codes = [texts.index("a"), texts.index("b"), 2, 3]
        cells = [
            *columns,
            pa.array(codes, pa.int32()),
            pa.array([1, 0, -1, 1], pa.int32()),
        ]
        assert fingerprints.RowHash(KEY, schema).of_rows(cells).tolist() == expected
    assert len(set(expected)) == 4


def test_no_rows_have_no_fingerprints() -> None:
    none = [
        pa.array([], pa.float64() if feature.type != "categorical" else pa.int32())
        for feature in SCHEMA.features
    ]
    assert (
        fingerprints.RowHash(KEY, SCHEMA)
        .of_rows([*none, pa.array([], pa.int32())])
        .tolist()
        == []
    )


def test_a_key_of_cmac_with_either_top_bit_has_the_subkey_of_the_standard() -> None:
    schema = Schema(
        (Feature("n", "numeric", lower=0, upper=1),), Label("y", ("no", "yes"))
    )
    for number in range(16):
        key = bytes([number]) * 32
        words = [struct.pack("<Q", 2), struct.pack("<d", 0.5), _word("yes", key)]
        (fingerprint,) = fingerprints.RowHash(key, schema).of_rows(
            [pa.array([0.5]), pa.array([1], pa.int32())]
        )
        assert fingerprint == _cmac(words, key)


def _encoded(
    numbers: list[pa.Array], codes: list[int], labels: list[int]
) -> list[list[bytes]]:
    """The words of each row."""
    columns = [
        [struct.pack("<d", number + 0.0) for number in column.to_pylist()]
        for column in numbers
    ]
    columns.append([_word(("a", "b", "\0", "")[code]) for code in codes])
    columns.append([_word(("no", "yes", "")[label]) for label in labels])
    count = struct.pack("<Q", len(columns))
    return [[count, *row] for row in zip(*columns, strict=True)]


def _word(text: str, key: bytes = KEY) -> bytes:
    text_key = hmac.digest(key, b"grovekeeper/fingerprint-text/2", "sha256")
    return hashlib.blake2b(text.encode(), digest_size=8, key=text_key).digest()


def _cmac(words: list[bytes], key: bytes = KEY) -> int:
    row = b"".join(words)
    mac = cmac.CMAC(
        algorithms.AES256(hmac.digest(key, b"grovekeeper/fingerprint-row/2", "sha256"))
    )
    mac.update(row + bytes(-len(row) % 16))
    return int.from_bytes(mac.finalize()[:8], "little")


def test_without_the_key_a_guess_cannot_be_tested(ingest: Ingestion) -> None:
    ingest(HEADER + GOOD_ROW)
    cells = [
        39.0,
        1.75,
        SCHEMA.features[2].categories.index("Male"),
        SCHEMA.features[3].categories.index("Bern, BE"),
    ]
    cells.append(SCHEMA.label.classes.index(">50K"))
    columns = [
        pa.array([cell], pa.float64() if isinstance(cell, float) else pa.int32())
        for cell in cells
    ]
    (with_key,), (without,) = (
        fingerprints.RowHash(key, SCHEMA).of_rows(columns) for key in (KEY, bytes(32))
    )
    assert [with_key] == printed(ingest) != [without]


def test_a_refused_upload_leaves_no_fingerprint(
    ingest: Ingestion, set_limit: SetLimit
) -> None:
    """Not even of the rows before the refused one, which were written already."""
    set_limit("MAX_BLOCK_ROWS", 2)
    with pytest.raises(RowsInvalid, match="does not match"):
        ingest(HEADER + 20_000 * GOOD_ROW + 'x,1.75,Male,"Bern, BE",>50K\n')
    assert ingest.files() == []


def test_erasing_rows_erases_their_fingerprints(ingest: Ingestion) -> None:
    ingest(HEADER + GOOD_ROW)
    row_files.erase_epoch(ingest.store, "ds_a", "ep_a")
    assert ingest.files() == []
    ingest(HEADER + GOOD_ROW)
    row_files.erase_dataset(ingest.store, "ds_a")
    assert ingest.files() == []


@pytest.mark.parametrize(
    "pass_bytes",
    [64 * 1024 * 1024, 64, 8],
    ids=["one-part", "some-parts", "many-parts"],
)
def test_overlaps_do_not_depend_on_the_size_of_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pass_bytes: int
) -> None:
    monkeypatch.setattr(fingerprints, "_PASS_BYTES", pass_bytes)
    monkeypatch.setattr(fingerprints, "_CHUNK", 3)
    one = {
        "ep_1": stored(tmp_path, "1", [1, 2, 2, 3, 9, 10]),
        "ep_2": stored(tmp_path, "2", [3, 4, 5]),
    }
    other = {"ep_3": stored(tmp_path, "3", [2, 5]), "ep_4": stored(tmp_path, "4", [9])}
    nothing = {"ep_5": stored(tmp_path, "5", [])}

    overlaps = fingerprints.compare(
        one, {"own": one, "other": other, "nothing": nothing, "none": {}}
    )
    assert overlaps["ep_1"] == fingerprints.Overlap(
        6, 5, {"own": 1, "other": 3, "nothing": 0, "none": 0}
    )
    assert overlaps["ep_2"] == fingerprints.Overlap(
        3, 3, {"own": 1, "other": 1, "nothing": 0, "none": 0}
    )


def test_damaged_fingerprints_are_refused(tmp_path: Path) -> None:
    uploads = {
        "ep_1": stored(tmp_path, "1", [1, 2]),
        "ep_2": stored(tmp_path, "2", [3]),
    }
    path_of(uploads["ep_2"]).write_bytes(uploads["ep_1"].file.read_bytes())
    with pytest.raises(InstallationError, match="fingerprints is damaged"):
        fingerprints.compare(uploads, {"own": uploads})


def test_many_uploads_are_sorted_together_and_not_compared_pairwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(1).integers(0, 200, (40, 10))
    uploads = {
        f"ep_{number}": stored(tmp_path, str(number), row.tolist())
        for number, row in enumerate(values)
    }
    other = {"ep_x": stored(tmp_path, "x", [*range(0, 200, 7)])}
    moved = []
    concatenate = np.concatenate
    monkeypatch.setattr(
        np,
        "concatenate",
        lambda arrays: moved.append(sum(map(len, arrays))) or concatenate(arrays),
    )
    overlaps = fingerprints.compare(uploads, {"own": uploads, "other": other})
    assert sum(moved) < 5 * values.size

    for number, row in enumerate(values):
        rest = np.delete(values, number, axis=0)
        shared = {
            "own": int(np.isin(row, rest).sum()),
            "other": int((row % 7 == 0).sum()),
        }
        assert overlaps[f"ep_{number}"] == fingerprints.Overlap(
            10, len(set(row.tolist())), shared
        )


def test_counts_and_keys_are_not_in_the_repr() -> None:
    overlap = fingerprints.Overlap(123456, 1234567, {"ds_a": 12345678})
    assert "12345" not in repr(overlap)
    assert "12345" not in repr(
        fingerprints.Fingerprints(
            SealedFile.at(Path("x"), DATA_KEY), b"12345", b"12345"
        )
    )


def test_the_key_is_made_once_and_kept(tmp_path: Path) -> None:
    keys: list[bytes] = []
    threads = [
        threading.Thread(
            target=lambda: keys.append(
                fingerprints.installation_key(Directory(tmp_path))
            )
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"short")
    with pytest.raises(InstallationError):
        fingerprints.installation_key(Directory(tmp_path))
