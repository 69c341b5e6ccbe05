"""Tests that fingerprints are keyed functions of a row's values, and how overlaps are counted."""

import hmac
import stat
import struct
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from app.core.errors import InstallationError
from app.core.files import Directory
from app.core.sealed_files import DataKey, SealedFile
from app.datasets import fingerprints, row_files
from tests.support.uploads import DATA_KEY, GOOD_ROW, HEADER, KEY, Ingestion, path_of


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


def test_every_stored_row_has_a_fingerprint_and_equal_rows_have_equal_fingerprints(ingest: Ingestion) -> None:
    other = '40,1.75,Male,"Bern, BE",>50K\n'
    ingest(HEADER + GOOD_ROW + other + GOOD_ROW)
    first, second, third = printed(ingest)
    assert first == third != second


def test_order_of_columns_in_the_file_and_space_around_cells_do_not_matter(tmp_path: Path) -> None:
    plain, turned = Ingestion(tmp_path / "a"), Ingestion(tmp_path / "b")
    plain(HEADER + GOOD_ROW)
    turned('income,"city, canton",sex,height,age\n>50K,"Bern, BE",Male, 1.75 ,39\n')
    assert printed(plain) == printed(turned)


def test_equal_numbers_have_equal_fingerprints(tmp_path: Path) -> None:
    plain, other = Ingestion(tmp_path / "a"), Ingestion(tmp_path / "b")
    plain(HEADER + GOOD_ROW)
    other(HEADER + '+39.0,175e-2,Male,"Bern, BE",>50K\n')
    assert printed(plain) == printed(other)


_CELLS = [["Male", "", "x" * 40], ["", "Bern", "y" * 16], ["Mal", "eBern", ""], ["", "", ""]]


@pytest.mark.parametrize(
    "numbers", [[], [[1.5, 0.0, -2.0, np.nan]], [[1.5, -0.0, 7.0, 1e300], [0.0] * 4, [np.inf] * 4]]
)
def test_fingerprints_are_pmac_of_numbers_and_texts(tmp_path: Path, numbers: list[list[float]]) -> None:
    destination = SealedFile.at(tmp_path / "x", DATA_KEY)
    columns = [pa.array(column, pa.float64()) for column in numbers]
    columns += [pa.array(cells, pa.string()) for cells in zip(*_CELLS, strict=True)]
    with destination.new(existing="refuse") as file:
        file.write(fingerprints.Fingerprints(destination, KEY, KEY).of_rows(columns).data)
    rows = [_encoded([column[row] for column in numbers], texts) for row, texts in enumerate(_CELLS)]
    assert values(destination) == [_pmac(row) for row in rows]
    assert len(set(rows)) == len(rows)


def _encoded(numbers: list[float], texts: list[str]) -> bytes:
    packed = b"".join(struct.pack("<d", number + 0.0) for number in numbers)
    text = "\x1f".join(texts).encode()
    return packed + bytes(-len(packed) % 16) + text + bytes(-len(text) % 16)


def _pmac(row: bytes) -> int:
    block_key, mask_key, sum_key = (
        hmac.digest(KEY, b"grovekeeper/fingerprint-%b/1" % purpose, "sha256") for purpose in (b"block", b"mask", b"sum")
    )
    total = 0
    for place, start in enumerate(range(0, len(row), 16)):
        mask = _aes(mask_key, place.to_bytes(16, "little"))
        masked = int.from_bytes(row[start : start + 16]) ^ int.from_bytes(mask)
        total ^= int.from_bytes(_aes(block_key, masked.to_bytes(16)))
    return int.from_bytes(_aes(sum_key, total.to_bytes(16))[:8], "little")


def _aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(block)


def test_without_the_key_a_guess_cannot_be_tested(tmp_path: Path) -> None:
    ingest = Ingestion(tmp_path)
    ingest(HEADER + GOOD_ROW)
    destination = SealedFile.at(tmp_path / "x", DATA_KEY)

    with destination.new(existing="refuse") as file:
        columns = [pa.array([cell]) for cell in (39.0, 1.75, "Male", "Bern, BE", ">50K")]
        file.write(fingerprints.Fingerprints(destination, bytes(32), KEY).of_rows(columns).data)
        file.write(fingerprints.Fingerprints(destination, KEY, KEY).of_rows(columns).data)
    without, with_key = values(destination)
    assert [with_key] == printed(ingest) != [without]


def test_a_refused_upload_leaves_no_fingerprint(ingest: Ingestion) -> None:
    with pytest.raises(Exception, match="does not match"):
        ingest(HEADER + 'x,1.75,Male,"Bern, BE",>50K\n')
    assert ingest.files() == []


def test_erasing_rows_erases_their_fingerprints(ingest: Ingestion) -> None:
    ingest(HEADER + GOOD_ROW)
    row_files.erase_epoch(ingest.store, "ds_a", "ep_a")
    assert ingest.files() == []
    ingest(HEADER + GOOD_ROW)
    row_files.erase_dataset(ingest.store, "ds_a")
    assert ingest.files() == []


@pytest.mark.parametrize("pass_bytes", [64 * 1024 * 1024, 64, 8], ids=["one-part", "some-parts", "many-parts"])
def test_overlaps_do_not_depend_on_the_size_of_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pass_bytes: int
) -> None:
    monkeypatch.setattr(fingerprints, "_PASS_BYTES", pass_bytes)
    monkeypatch.setattr(fingerprints, "_CHUNK", 3)
    one = {"ep_1": stored(tmp_path, "1", [1, 2, 2, 3, 9, 10]), "ep_2": stored(tmp_path, "2", [3, 4, 5])}
    other = {"ep_3": stored(tmp_path, "3", [2, 5]), "ep_4": stored(tmp_path, "4", [9])}
    nothing = {"ep_5": stored(tmp_path, "5", [])}

    overlaps = fingerprints.compare(one, {"own": one, "other": other, "nothing": nothing, "none": {}})
    assert overlaps["ep_1"] == fingerprints.Overlap(6, 5, {"own": 1, "other": 3, "nothing": 0, "none": 0})
    assert overlaps["ep_2"] == fingerprints.Overlap(3, 3, {"own": 1, "other": 1, "nothing": 0, "none": 0})


def test_damaged_fingerprints_are_refused(tmp_path: Path) -> None:
    uploads = {"ep_1": stored(tmp_path, "1", [1, 2]), "ep_2": stored(tmp_path, "2", [3])}
    path_of(uploads["ep_2"]).write_bytes(uploads["ep_1"].file.read_bytes())
    with pytest.raises(InstallationError, match="fingerprints is damaged"):
        fingerprints.compare(uploads, {"own": uploads})


def test_many_uploads_are_sorted_together_and_not_compared_pairwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(1).integers(0, 200, (40, 10))
    uploads = {f"ep_{number}": stored(tmp_path, str(number), row.tolist()) for number, row in enumerate(values)}
    other = {"ep_x": stored(tmp_path, "x", [*range(0, 200, 7)])}
    moved = []
    concatenate = np.concatenate
    monkeypatch.setattr(np, "concatenate", lambda arrays: moved.append(sum(map(len, arrays))) or concatenate(arrays))
    overlaps = fingerprints.compare(uploads, {"own": uploads, "other": other})
    assert sum(moved) < 5 * values.size

    for number, row in enumerate(values):
        rest = np.delete(values, number, axis=0)
        shared = {"own": int(np.isin(row, rest).sum()), "other": int((row % 7 == 0).sum())}
        assert overlaps[f"ep_{number}"] == fingerprints.Overlap(10, len(set(row.tolist())), shared)


def test_counts_and_keys_are_not_in_the_repr() -> None:
    overlap = fingerprints.Overlap(123456, 1234567, {"ds_a": 12345678})
    assert "12345" not in repr(overlap)
    assert "12345" not in repr(fingerprints.Fingerprints(SealedFile.at(Path("x"), DATA_KEY), b"12345", b"12345"))


def test_the_key_is_made_once_and_kept(tmp_path: Path) -> None:
    keys: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: keys.append(fingerprints.installation_key(Directory(tmp_path))))
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
