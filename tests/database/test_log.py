"""The log of an account on both databases: roots and proofs from stored subtrees equal
those from all leaves.
"""

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.ledger import checkpoints, statements, tables
from app.ledger import checkpoints as logs
from app.ledger import reservations as ledger
from app.ledger.checkpoints import Log
from app.ledger.tables import BlockRow
from app.services.installation import Installation
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_verifier import merkle_tree
from tests.support import reserving
from tests.support.crash_scene import EVENT, open_account

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

ACCOUNT = "ds_account"
N_ENTRIES = 41


@pytest.fixture
def installation(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> Installation:
    """Two accounts, the first with 41 entries, and subtrees stored at the heights 2, 4,
    …
    """
    monkeypatch.setattr(logs, "STEP", 2)
    for account_id in (ACCOUNT, "ds_other"):
        open_account(installation, account_id, cap=1_000_000)
    with installation.database.write() as session:
        for number in range(N_ENTRIES - 1):
            _reserve(session, number)
    return installation


def _reserve(session: Session, number: int) -> None:
    new_reservation = ledger.NewReservation(
        account_id=ACCOUNT, amount=1, scope=WHOLE, event=EVENT, job_id=f"jb_{number}"
    )
    reserving.reserve(session, [new_reservation], actor="key_analyst")


def _leaves(session: Session) -> list[bytes]:
    return [
        checkpoints.leaf(entry.hash)
        for entry in tables.entries(session, ACCOUNT, after=0, limit=1_000)
    ]


def test_complete_subtrees_are_stored_once_and_no_others(
    installation: Installation,
) -> None:
    with installation.database.read() as session:
        query = select(BlockRow.account_id, BlockRow.height, BlockRow.position)
        stored = sorted(tuple(row) for row in session.execute(query))
    wanted = [
        (ACCOUNT, height, at) for height in (2, 4) for at in range(N_ENTRIES >> height)
    ]
    assert stored == wanted


def test_roots_of_every_size_are_those_of_the_leaves(
    installation: Installation,
) -> None:
    with installation.database.read() as session:
        leaves, log = _leaves(session), Log(session, ACCOUNT)
        growing = merkle_tree.GrowingTree()
        for size, leaf in enumerate(leaves, start=1):
            growing.add(leaf)
            assert log.root(size) == growing.root(), size
        assert len(leaves) == N_ENTRIES


def test_proofs_hold_in_the_verifier(installation: Installation) -> None:
    with installation.database.read() as session:
        leaves, log = _leaves(session), Log(session, ACCOUNT)
        for size in (1, 4, 16, 17, 32, N_ENTRIES):
            root = log.root(size)
            for sequence in range(1, size + 1, 3):
                path = log.inclusion(sequence, size)
                merkle_tree.check_inclusion(
                    leaves[sequence - 1], sequence - 1, size, path, root
                )
                path = log.consistency(sequence, size)
                merkle_tree.check_consistency(
                    sequence, size, path, (log.root(sequence), root)
                )


def test_few_rows_are_read_for_a_root(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root reads at most 2**STEP - 1 rows of each height, so a checkpoint of a long
    ledger stays cheap.
    """
    read: list[int] = []
    for name in ("_blocks", "_leaves"):
        original = getattr(Log, name)

        def counted(self: Log, *place: int, original: object = original) -> list[bytes]:
            result: list[bytes] = original(self, *place)  # type: ignore[operator]
            read.append(len(result))
            return result

        monkeypatch.setattr(Log, name, counted)
    with installation.database.read() as session:
        Log(session, ACCOUNT).root(N_ENTRIES)
    assert sum(read) <= 3 * 3


def test_a_rolled_back_entry_leaves_no_subtree(installation: Installation) -> None:
    class Cut(Exception):
        """Stands for the end of the process."""

    def cut_after(numbers: range) -> None:
        with installation.database.write() as session:
            for number in numbers:
                _reserve(session, number)
            raise Cut

    with pytest.raises(Cut):
        cut_after(range(100, 108))
    with installation.database.read() as session:
        assert statements.size(session, ACCOUNT) == N_ENTRIES
        assert len(session.execute(select(BlockRow)).all()) == (N_ENTRIES >> 2) + (
            N_ENTRIES >> 4
        )
