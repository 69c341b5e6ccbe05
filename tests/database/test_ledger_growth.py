"""Entries of the benchmark's bulk filler are valid: chain, balances and stored subtrees
match those of the service.
"""

import tracemalloc
from pathlib import Path

import pytest

from app.ledger import reservations as ledger
from app.ledger import statements, tables
from app.ledger.checkpoints import Log
from app.services.ledger import history
from app.services.ledger.heads import checkpoint_of
from benchmarks.ledger_growth import OWNER, Filler, hourly, opened
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_verifier.checkpoints import ORIGIN, Checkpoint
from grovekeeper_verifier.dataset_replay import verify
from tests.support import reserving

pytestmark = pytest.mark.contract


def test_a_filled_ledger_is_one_that_the_service_could_have_written(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    grown = opened(sqlite_database_url, tmp_path / "home")
    for size in (301, 901):
        Filler(grown).fill(size)
        # the service continues from the filler's last entry
        with grown.database.write() as session:
            new_reservation = ledger.NewReservation(
                grown.account,
                1,
                WHOLE,
                {"type": "sequential/1", "parts": []},
                f"jb_own_{size}",
            )
            reserving.reserve(session, [new_reservation], actor="key_owner")
    with grown.database.read() as session:
        head = checkpoint_of(
            session, grown.account, statements.size(session, grown.account)
        )
        balance = statements.balance(session, grown.account)
        assert Log(session, grown.account).root(256) == Log(
            session, grown.account
        ).subtree(8, 0)
    lines = history.export_json_lines(grown.installation, OWNER, grown.account)
    summary = verify(
        lines, [Checkpoint(f"{ORIGIN}{grown.account}", head.size, head.root, head.at)]
    )
    assert summary.last.sequence == head.size > 900
    assert (summary.tightest.charged, summary.tightest.reserved) == (
        balance.charged,
        balance.reserved,
    )
    grown.installation.close()


def test_jobs_on_hourly_uploads_are_measured(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    grown = opened(
        sqlite_database_url,
        tmp_path / "home",
        [{"name": "upload", "kind": "epoch", "how": "by the hour"}],
    )
    rows = [row.split(" | ") for row in hourly("sqlite", grown, 48)]
    assert [(row[1], row[2]) for row in rows] == [
        ("12", "27"),
        ("24", "55"),
        ("36", "81"),
        ("48", "109"),
    ]
    with grown.database.read() as session:
        entries = tables.entries(session, grown.account, after=0, limit=200)
    assert {"upload": 48} in [entry.scope for entry in entries]
    grown.installation.close()


def test_the_memory_of_an_export_does_not_grow_with_the_entries(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    grown = opened(sqlite_database_url, tmp_path / "home")
    peaks = []
    for size in (300, 3_000):
        Filler(grown).fill(size)
        tracemalloc.start()
        for export in (history.export_json_lines, history.export_csv):
            assert (
                sum(1 for _ in export(grown.installation, OWNER, grown.account)) > size
            )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    grown.installation.close()
    assert peaks[1] < 2 * peaks[0]
