"""Sixteen processes upload rows of the same units at once, on both databases: none gets a place too many."""

from collections import Counter
from pathlib import Path

import pytest

from app.services.installation import Installation
from tests.concurrency.test_races import N_PROCESSES, race
from tests.support import people
from tests.support.crash_scene import open_installation

PATIENTS = 5


@pytest.fixture
def installation(database_url: str, tmp_path: Path):
    found = open_installation(database_url, tmp_path / "home")
    yield found
    found.close()


@pytest.mark.parametrize("max_rows", [1, 7])
def test_units_have_their_rows_and_no_more(installation: Installation, max_rows: int) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(max_rows))["id"]
    told = race(installation, dataset, "upload_units", patients=PATIENTS)
    stored = people.stored_rows(installation, dataset)
    counts = Counter(row_id for epoch in stored for row_id, _ in epoch)

    assert len(stored) == 2 * N_PROCESSES
    assert len(counts) == PATIENTS
    assert set(counts.values()) == {max_rows}
    dropped = sum(report["over_bound"] for reports in told for report in reports)
    assert dropped == 2 * N_PROCESSES * PATIENTS - PATIENTS * max_rows
    assert max(len(upload) for upload in stored) == PATIENTS, "whoever came first was admitted"


def test_twins_with_one_key_store_one_upload(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(2))["id"]
    told = race(installation, dataset, "upload_same")

    assert told == [told[0]] * N_PROCESSES
    assert [len(epoch) for epoch in people.stored_rows(installation, dataset)] == [2]
    again = people.upload(installation, dataset, people.visits([("ann", 1), ("ann", 2)]))
    assert again["dropped"] == {"without_unit": 0, "over_bound": 1}, "the replays took no place"
