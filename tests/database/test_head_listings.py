"""Tests that heads are read right while other processes write them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest

from app.core.files import Directory, Listed
from app.ledger.checkpoints import Checkpoint, HeadFolder, Signer

N_ACCOUNTS = 5
MAX_READS = 100

Act = Callable[[], None]


def nothing() -> None:
    pass


@dataclass(frozen=True)
class BusyDirectory(Directory):
    """Another process acts during each listing, which leaves out what is gone at its
    end, and before each reading.
    """

    while_listing: list[Act]
    before_reading: list[Act]

    def files(self, folder: str) -> Iterator[Listed]:
        found = list(super().files(folder))
        (self.while_listing.pop(0) if self.while_listing else nothing)()
        return (file for file in found if (self.folder / file.name).exists())

    def open(self, name: str) -> BinaryIO:
        (self.before_reading.pop(0) if self.before_reading else nothing)()
        return super().open(name)


class Scene:
    """A folder of heads with two views: of a writer, and of a reader that it overtakes."""

    def __init__(self, home: Path) -> None:
        self.signer = Signer.open(home / "signing.key", make=True)
        self.busy = BusyDirectory(home / "heads", [], [])
        self.reader = HeadFolder(self.busy, [self.signer.verifier_key])

    def writer(self) -> Callable[[str, int], None]:
        """A process that writes heads, and removes those that it wrote before."""
        store = Directory(self.busy.folder)
        folder = HeadFolder(store, [self.signer.verifier_key])

        def write(account_id: str, size: int) -> None:
            head = Checkpoint(account_id, size, bytes(32), "2026-01-01T00:00:00.000Z")
            folder.write(head, self.signer.sign(head))

        return write

    def read(self) -> dict[str, int]:
        return {head.account_id: head.size for head in self.reader.read_all()}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_head_that_a_listing_missed_is_read(scene: Scene) -> None:
    """One process writes 3 and 4, another one 2, late: during a listing 3 gives way to
    4, and only 2 is left to be seen.
    """
    first, late = scene.writer(), scene.writer()
    first("ds_1", 3)
    late("ds_1", 2)
    scene.busy.while_listing.append(lambda: first("ds_1", 4))
    assert scene.read() == {"ds_1": 4}


def test_a_head_that_two_listings_missed_is_read(scene: Scene) -> None:
    """The head of a listing is gone when it is read, and the next listing misses those
    that took its place.
    """
    write = scene.writer()
    write("ds_1", 5)
    write("ds_2", 1)
    scene.busy.before_reading.append(lambda: write("ds_1", 6))
    scene.busy.while_listing.extend([nothing, lambda: write("ds_1", 7)])
    assert scene.read() == {"ds_1": 7, "ds_2": 1}


def test_heads_that_grow_at_each_reading_are_read_to_an_end(scene: Scene) -> None:
    """With each reading another account grows, so no listing stays true."""
    write = scene.writer()
    names = [f"ds_{number}" for number in range(N_ACCOUNTS)]
    for name in names:
        write(name, 1)

    def growth(number: int) -> Act:
        return lambda: write(names[(number + 1) % N_ACCOUNTS], 2 + number)

    scene.busy.before_reading.extend(growth(number) for number in range(MAX_READS))
    sizes = scene.read()
    assert set(sizes) == set(names)
    assert min(sizes.values()) >= 1
    assert scene.busy.before_reading, "more readings than accounts can need"
