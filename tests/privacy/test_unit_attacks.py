"""Attacks on a unit's bound by rows in several epochs: the number of a unit's rows that
jobs read.

Every epoch is a cell with one ε for one row, so a unit with one row loses at most ε
over all epochs, and a unit with a row in each of two epochs loses 2ε.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from app.core.sealed_files import DataKey
from app.datasets import admission
from app.services.installation import Installation
from tests.support import people
from tests.support.crash_scene import open_installation

Upload = Sequence[tuple[str, int]]
"""(unit, value) rows in order of arrival."""


@pytest.fixture
def installation(sqlite_database_url: str, tmp_path: Path) -> Iterator[Installation]:
    opened_installation = open_installation(sqlite_database_url, tmp_path / "home")
    yield opened_installation
    opened_installation.close()


UPLOADS: tuple[Upload, ...] = (
    (("ann", 1), ("ben", 2)),
    (("ann", 3), ("ann", 4), ("cleo", 5)),
    (("ben", 6), ("ann", 7)),
)


@pytest.mark.covering("order", "max_rows")
@pytest.mark.parametrize("max_rows", [1, 2, 3])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_rows_in_many_epochs_are_one_units_rows_and_no_later_upload_changes_them(
    installation: Installation, max_rows: int, order: tuple[int, ...]
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(max_rows))[
        "id"
    ]
    read: list[list[tuple[bytes, int]]] = []
    for number in order:
        people.upload(installation, dataset, people.visits(UPLOADS[number]))
        stored = people.stored_rows(installation, dataset)
        assert stored[: len(read)] == read, "what earlier jobs read has changed"
        read = stored
    present = Counter(unit for rows in UPLOADS for unit, _ in rows)
    for unit, count in present.items():
        own = people.id_of(installation, dataset, unit)
        assert sum(row_id == own for epoch in read for row_id, _ in epoch) == min(
            count, max_rows
        )


Rule = Callable[[Sequence[Upload]], list[list[tuple[str, int]]]]
"""The rows that jobs read if they run after each upload, on the epoch of that upload."""


def smallest_hash(uploads: Sequence[Upload]) -> list[list[tuple[str, int]]]:
    """The flaw: of each unit, the row of the smallest hash among all rows so far."""
    read = []
    for number, rows in enumerate(uploads):
        so_far = [row for upload in uploads[: number + 1] for row in upload]
        kept = [
            min((row for row in so_far if row[0] == unit), key=_hash)
            for unit, _ in so_far
        ]
        read.append([row for row in rows if row in kept])
    return read


def _hash(row: tuple[str, int]) -> bytes:
    return hashlib.sha256(repr(row).encode()).digest()


def most_reads_of_one_unit(rule: Rule) -> int:
    """The largest number of reads of one unit, over every pair of uploads of a small
    world.
    """
    rows = [((unit, value),) for unit in "ab" for value in range(3)]
    return max(
        sum(unit == "a" for epoch in rule(uploads) for unit, _ in epoch)
        for uploads in itertools.product(rows, repeat=2)
    )


def test_the_smallest_hash_of_all_epochs_is_caught(tmp_path: Path) -> None:
    """With one row per unit and two epochs, a rule that is revised costs a unit twice
    the cap.
    """
    homes = (tmp_path / str(number) for number in itertools.count())

    def in_order_of_arrival(uploads: Sequence[Upload]) -> list[list[tuple[str, int]]]:
        home, read = next(homes), []
        for number, rows in enumerate(uploads):
            with admission.opened_home_book(
                home, "ds_a", max_rows=1, key=DataKey(bytes(32))
            ) as book:
                book.begin(
                    f"ep_{number}",
                    committed=[f"ep_{earlier}" for earlier in range(number)],
                )
                ids = admission.unit_row_ids(
                    [unit for unit, _ in rows], dataset_key=bytes(32)
                )
                read.append(list(itertools.compress(rows, book.admit(ids))))
                book.commit()
        return read

    assert most_reads_of_one_unit(smallest_hash) == 2
    assert most_reads_of_one_unit(in_order_of_arrival) == 1
