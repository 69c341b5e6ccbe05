"""Erasing one upload removes its rows and fingerprints, and keeps its cell and its
charges.

The places of its units are free again unless a job may have read the upload.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from app.core.errors import DatasetDeleted, NotFound, RoleMissing
from app.datasets import catalog, erasure, private_rows, row_files
from app.datasets.private_rows import Selection
from app.jobs import queue
from app.ledger import control, tables
from app.ledger.tables import EntryKind
from app.services.datasets.erase import (
    complete_erasures,
    delete_dataset,
    erase_upload,
    mark_upload_erased,
)
from app.services.datasets.show import list_uploads, show_dataset, show_overlaps
from app.services.execution.charge import charge_claimed
from app.services.execution.sweep import tidy_rows
from app.services.installation import Installation
from app.services.jobs.show_jobs import cancel_job
from app.services.keys import put_grant
from app.services.ledger.balances import show_balance
from app.services.ledger.heads import open_log
from app.services.pagination import PageRequest
from grovekeeper_forests.privacy.scope import WHOLE
from grovekeeper_verifier import control_export
from tests.support import people
from tests.support.crash_scene import OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

ANN_AND_BEN = people.visits([("ann", 1), ("ben", 2), ("ann", 3)])
CLEO = people.visits([("cleo", 4)])
MONTH = {"name": "month", "kind": "epoch", "how": "one per month"}


@pytest.fixture
def dataset(installation: Installation) -> str:
    declared = people.declared(
        installation,
        privacy_unit=people.per_patient(3),
        partitions=[MONTH],
    )
    return str(declared["id"])


def _ages(installation: Installation, dataset: str) -> list[list[int]]:
    return [
        [age for _, age in epoch] for epoch in people.stored_rows(installation, dataset)
    ]


def test_the_rows_and_fingerprints_of_one_upload_go(
    installation: Installation, dataset: str
) -> None:
    first, second = (
        people.upload(installation, dataset, body)["epoch"]
        for body in (ANN_AND_BEN, CLEO)
    )
    answer = erase_upload(installation, OWNER, dataset, upload=first)
    assert "stays spent" in answer.stays
    assert answer.places == "free"
    assert "places of their units are free again" in answer.stays
    assert _ages(installation, dataset) == [[], [4]]
    assert f"{first}.prints" not in people.row_files_of(installation, dataset)
    shown = {
        epoch.epoch: epoch.erased_at
        for epoch in show_dataset(installation, OWNER, dataset).epochs
    }
    assert shown == {first: answer.erased_at, second: None}
    listed = list_uploads(installation, OWNER, dataset, PageRequest()).uploads
    assert [(upload.rows, upload.erased_at) for upload in listed] == [
        (0, answer.erased_at),
        (1, None),
    ]
    assert [
        epoch.rows for epoch in show_overlaps(installation, OWNER, dataset).epochs
    ] == [None, 1]
    with installation.database.read() as session:
        stored = catalog.find(session, dataset)
    rows = private_rows.read(
        people.files(installation, dataset),
        Selection(stored.schema, stored.partitions, WHOLE),
    )
    assert len(rows.y) == 1, "the files are of the form that jobs read"


def test_an_upload_that_no_job_read_gives_its_places_back_and_can_be_corrected(
    installation: Installation, dataset: str
) -> None:
    first = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    assert erase_upload(installation, OWNER, dataset, upload=first).places == "free"
    again = people.upload(installation, dataset, ANN_AND_BEN)
    assert (again["rows"], again["dropped"], again["warnings"]) == (
        3,
        {"without_unit": 0, "over_bound": 0},
        [],
    )
    assert again["epoch"] != first
    over = people.upload(
        installation, dataset, people.visits([("ann", 5), ("ann", 6), ("ben", 7)])
    )
    assert over["dropped"] == {"without_unit": 0, "over_bound": 1}
    assert _ages(installation, dataset) == [[], [1, 2, 3], [5, 7]]


@on_one_database
def test_uploads_that_were_judged_before_an_erasure_keep_their_judgement(
    installation: Installation, dataset: str
) -> None:
    first = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    people.upload(installation, dataset, people.visits([("ann", 5), ("ann", 6)]))
    erase_upload(installation, OWNER, dataset, upload=first)
    assert _ages(installation, dataset) == [[], [5]], (
        "ann's second row of the second upload does not come back"
    )
    report = people.upload(
        installation, dataset, people.visits([("ann", age) for age in (7, 8, 9)])
    )
    assert report["dropped"] == {"without_unit": 0, "over_bound": 1}, (
        "one place of three was taken by the second"
    )


@pytest.mark.parametrize(
    "covered_by",
    [
        "queued job",
        "claimed job",
        "charged job",
        "charged job that was cancelled",
        "external charge",
        "job during the erasure",
    ],
)
def test_the_places_of_an_upload_stay_taken_if_anything_may_depend_on_it(
    installation: Installation,
    dataset: str,
    monkeypatch: pytest.MonkeyPatch,
    covered_by: str,
) -> None:
    upload = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    scene = Scene(installation, dataset)
    if covered_by == "external charge":
        scene.charge_external(key="mean")
    elif covered_by == "job during the erasure":
        # after the mark, before the rows are gone
        monkeypatch.setattr(
            erasure,
            "erase_upload",
            _after(lambda: scene.submit_job(key="job"), erasure.erase_upload),
        )
    else:
        job = scene.submit_job(key="job")
        if covered_by != "queued job":
            claim = claimed(installation)
        if covered_by.startswith("charged job"):
            charge_claimed(installation, claim)
        if covered_by == "charged job that was cancelled":
            cancel_job(installation, OWNER, job)
    answer = erase_upload(installation, OWNER, dataset, upload=upload)
    assert answer.places == "taken"
    assert "places of their units stay taken" in answer.stays
    assert people.upload(installation, dataset, ANN_AND_BEN)["dropped"] == {
        "without_unit": 0,
        "over_bound": 1,
    }


@on_one_database
def test_an_external_charge_that_names_no_upload_covers_those_to_come(
    installation: Installation,
) -> None:
    """The service does not see which uploads a mechanism outside of it reads."""
    rows = people.declared(installation, partitions=[MONTH])["id"]
    people.upload(installation, rows, b"age,income\n1,low\n")
    Scene(installation, rows).charge_external(key="mean")
    later = people.upload(installation, rows, b"age,income\n2,low\n")["epoch"]
    scope = {"month": [later]}
    assert show_balance(installation, OWNER, rows, scope=scope).charged == "0.5"


@on_one_database
def test_the_places_stay_taken_where_the_clock_was_ahead_at_the_upload(
    installation: Installation, dataset: str
) -> None:
    upload = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    with installation.database.write() as session:
        catalog.epoch(session, dataset, upload).uploaded_at += timedelta(hours=1)
    Scene(installation, dataset).charge_external(key="mean")
    assert erase_upload(installation, OWNER, dataset, upload=upload).places == "taken"


def test_a_job_waits_until_it_is_decided_whether_places_are_free(
    postgresql_scene: Scene,
) -> None:
    installation = postgresql_scene.installation
    dataset = people.declared(installation, privacy_unit=people.per_patient(3))["id"]
    upload = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    scene, reads_upload = Scene(installation, dataset), queue.reads_upload
    with ThreadPoolExecutor(1) as pool:
        jobs = list[Future[str]]()

        def with_a_job(*arguments: Any) -> bool:
            is_read = reads_upload(*arguments)
            jobs.append(pool.submit(scene.submit_job, key="job"))
            with pytest.raises(TimeoutError):
                jobs[0].result(1)
            return is_read

        with patch.object(queue, "reads_upload", with_a_job):
            answer = erase_upload(installation, OWNER, dataset, upload=upload)
        assert scene.job(jobs[0].result(60)).state == "queued"
    assert answer.places == "free"


def test_the_places_are_free_once_the_only_job_was_cancelled_before_its_charge(
    installation: Installation, dataset: str
) -> None:
    upload = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    job = Scene(installation, dataset).submit_job(key="job")
    assert erase_upload(installation, OWNER, dataset, upload=upload).places == "taken"
    cancel_job(installation, OWNER, job)
    assert erase_upload(installation, OWNER, dataset, upload=upload).places == "free"
    Scene(installation, dataset).submit_job(key="later")
    assert erase_upload(installation, OWNER, dataset, upload=upload).places == "free", (
        "what is free stays free"
    )
    assert people.upload(installation, dataset, ANN_AND_BEN)["rows"] == 3


def test_a_job_on_other_uploads_covers_nothing(
    installation: Installation, dataset: str
) -> None:
    first, second = (
        people.upload(installation, dataset, body)["epoch"]
        for body in (ANN_AND_BEN, CLEO)
    )
    Scene(installation, dataset).submit_job(key="job", scope={"month": [second]})
    assert erase_upload(installation, OWNER, dataset, upload=first).places == "free"
    assert erase_upload(installation, OWNER, dataset, upload=second).places == "taken"


def test_an_erasure_says_nothing_of_places_where_a_row_is_the_unit(
    installation: Installation,
) -> None:
    dataset = people.declared(installation)["id"]
    upload = people.upload(installation, dataset, b"age,income\n1,low\n")["epoch"]
    answer = erase_upload(installation, OWNER, dataset, upload=upload)
    assert answer.places is None
    assert "places" not in answer.stays


def _after(
    first: Callable[[], object], then: Callable[..., None]
) -> Callable[..., None]:
    def both(*arguments: Any, **options: Any) -> None:
        first()
        then(*arguments, **options)

    return both


def test_a_queued_job_keeps_its_reservation_and_its_cells(scene: Scene) -> None:
    job = scene.submit_job(key="job")
    with scene.installation.database.read() as session:
        before = tables.entries(session, scene.dataset_id, after=0, limit=99)
        (epoch,) = catalog.epochs(session, scene.dataset_id)
    erase_upload(scene.installation, OWNER, scene.dataset_id, upload=epoch.id)
    assert scene.end(job) == ("queued", None, ["reserve"])
    with scene.installation.database.read() as session:
        assert tables.entries(session, scene.dataset_id, after=0, limit=99) == before
    assert scene.submit(key="later").status == 202, (
        "an empty upload is a legal target, like any other"
    )


def test_the_act_names_dataset_and_upload_once(
    installation: Installation, dataset: str
) -> None:
    upload = people.upload(installation, dataset, CLEO)["epoch"]
    first = erase_upload(installation, OWNER, dataset, upload=upload)
    assert erase_upload(installation, OWNER, dataset, upload=upload) == first
    with installation.database.read() as session:
        assert control.details_of(session, EntryKind.UPLOAD_ERASED) == [
            {"dataset": dataset, "upload": upload}
        ]
    assert control_export._DETAILS["upload-erased"] == {"dataset", "upload"}


@on_one_database
def test_only_owners_erase_uploads_of_their_living_datasets(
    installation: Installation, dataset: str
) -> None:
    upload = people.upload(installation, dataset, CLEO)["epoch"]
    other = people.declared(installation)["id"]
    for reference, named in (
        (dataset, "ep_nothing"),
        (other, upload),
        (dataset, "../" + upload),
    ):
        with pytest.raises(NotFound):
            erase_upload(installation, OWNER, reference, upload=named)
    with pytest.raises(NotFound):
        erase_upload(installation, STRANGER, dataset, upload=upload)
    put_grant(installation, OWNER, dataset, STRANGER.key_id, role="analyst")
    with pytest.raises(RoleMissing):
        erase_upload(installation, STRANGER, dataset, upload=upload)
    assert _ages(installation, dataset) == [[4]]
    delete_dataset(installation, OWNER, dataset)
    with pytest.raises(DatasetDeleted):
        erase_upload(installation, OWNER, dataset, upload=upload)


class Cut(BaseException):
    """Stands for the end of the process."""


def _cut_off_at(
    step: object, name: str, installation: Installation, dataset: str
) -> str:
    """Uploads rows and begins to erase them; the process ends at a step. Returns the
    upload.
    """

    def cut(*_: object, **__: object) -> None:
        raise Cut

    upload = str(people.upload(installation, dataset, ANN_AND_BEN)["epoch"])
    with patch.object(step, name, cut), pytest.raises(Cut):
        erase_upload(installation, OWNER, dataset, upload=upload)
    return upload


@pytest.mark.parametrize("completed_by", ["repetition", "sweeper"])
def test_an_erasure_that_was_cut_off_is_completed(
    installation: Installation, dataset: str, completed_by: str
) -> None:
    upload = _cut_off_at(erasure, "erase_upload", installation, dataset)
    assert _ages(installation, dataset) == [[1, 2, 3]]
    assert open_log(installation).is_erased(dataset, upload), "before a row goes"
    if completed_by == "sweeper":
        tidy_rows(installation)
    else:
        erase_upload(installation, OWNER, dataset, upload=upload)
    assert _ages(installation, dataset) == [[]]


@on_one_database
@pytest.mark.parametrize("completed_by", ["request", "sweeper"])
def test_a_damaged_upload_is_erased_and_stops_nobody(
    installation: Installation, dataset: str, completed_by: str
) -> None:
    upload = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    rows = installation.home / row_files.rows_name(dataset, upload)
    content = rows.read_bytes()
    rows.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    if completed_by == "request":
        erase_upload(installation, OWNER, dataset, upload=upload)
    else:
        with installation.database.write() as session:
            row = catalog.epoch(session, dataset, upload)
            mark_upload_erased(session, row, actor=OWNER.key_id)
        complete_erasures(installation)
    assert _ages(installation, dataset) == [[]]


@on_one_database
def test_no_fingerprint_outlives_its_row(
    installation: Installation, dataset: str
) -> None:
    upload = _cut_off_at(row_files, "erase_codes", installation, dataset)
    assert f"{upload}.prints" not in people.row_files_of(installation, dataset)
    complete_erasures(installation)
    assert _ages(installation, dataset) == [[]]
