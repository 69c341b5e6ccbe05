"""Tests concurrent processes that upload rows of the same units, on both databases: no
unit is over its limit.
"""

from collections import Counter
from pathlib import Path

import pytest

from app.services.installation import Installation
from tests.database.races.conftest import Race
from tests.support import people
from tests.support.crash_scene import open_installation

PATIENTS = 5


@pytest.fixture
def installation(database_url: str, tmp_path: Path):
    installation = open_installation(database_url, tmp_path / "home")
    yield installation
    installation.close()


@pytest.mark.parametrize("max_rows", [pytest.param(1, marks=pytest.mark.long), 7])
def test_every_unit_has_exactly_its_maximum_of_rows(
    race: Race, installation: Installation, max_rows: int, n_processes: int
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(max_rows))[
        "id"
    ]
    reports_of_processes = race(
        installation, "upload_units", dataset=dataset, patients=PATIENTS
    )
    stored = people.stored_rows(installation, dataset)
    counts = Counter(row_id for epoch in stored for row_id, _ in epoch)

    assert len(stored) == 2 * n_processes
    assert len(counts) == PATIENTS
    assert set(counts.values()) == {max_rows}
    dropped = sum(
        report["over_bound"] for reports in reports_of_processes for report in reports
    )
    assert dropped == 2 * n_processes * PATIENTS - PATIENTS * max_rows
    assert max(len(upload) for upload in stored) == PATIENTS, (
        "the first upload was admitted completely"
    )


def test_uploads_with_one_idempotency_key_store_one_epoch(
    race: Race, installation: Installation, n_processes: int
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(2))["id"]
    reports = race(installation, "upload_same", dataset=dataset)

    assert reports == [reports[0]] * n_processes
    assert [len(epoch) for epoch in people.stored_rows(installation, dataset)] == [2]
    again = people.upload(
        installation, dataset, people.visits([("ann", 1), ("ann", 2)])
    )
    assert again["dropped"] == {"without_unit": 0, "over_bound": 1}, (
        "the repetitions counted no row"
    )
