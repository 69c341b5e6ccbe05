"""Erasing one upload removes its rows and fingerprints, and keeps its cell, its charges and its units' places."""

import pytest

from app.core.errors import DatasetDeleted, NotFound, RoleMissing
from app.datasets import catalog, erasure, private_rows
from app.ledger import control, statements
from app.ledger.entries import EntryKind
from app.services.datasets.delete_dataset import delete_dataset
from app.services.datasets.erase_upload import erase_upload
from app.services.datasets.overlaps import show_overlaps
from app.services.datasets.show_datasets import show_dataset
from app.services.datasets.uploads import list_uploads
from app.services.execution.sweep import tidy_rows
from app.services.grants import put_grant
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.verifier import control_export
from tests.support import people
from tests.support.crash_scene import OWNER, STRANGER, Scene

ANN_AND_BEN = people.visits([("ann", 1), ("ben", 2), ("ann", 3)])
CLEO = people.visits([("cleo", 4)])


@pytest.fixture
def dataset(installation: Installation) -> str:
    declared = people.declared(
        installation,
        privacy_unit=people.per_patient(3),
        partitions=[{"name": "month", "kind": "epoch", "how": "one per month"}],
    )
    return str(declared["id"])


def _ages(installation: Installation, dataset: str) -> list[list[int]]:
    return [[age for _, age in epoch] for epoch in people.stored_rows(installation, dataset)]


def test_the_rows_and_fingerprints_of_one_upload_go(installation: Installation, dataset: str) -> None:
    first, second = (people.upload(installation, dataset, body)["epoch"] for body in (ANN_AND_BEN, CLEO))
    answer = erase_upload(installation, OWNER, dataset, upload=first)
    assert "stays spent" in answer.stays
    assert "places of their units stay taken" in answer.stays
    assert _ages(installation, dataset) == [[], [4]]
    assert f"{first}.prints" not in people.row_files_of(installation, dataset)
    shown = {epoch.epoch: epoch.erased_at for epoch in show_dataset(installation, OWNER, dataset).epochs}
    assert shown == {first: answer.erased_at, second: None}
    listed = list_uploads(installation, OWNER, dataset, PageRequest()).uploads
    assert [(upload.rows, upload.erased_at) for upload in listed] == [(0, answer.erased_at), (1, None)]
    assert [epoch.rows for epoch in show_overlaps(installation, OWNER, dataset).epochs] == [None, 1]
    with installation.database.read() as session:
        stored = catalog.find(session, dataset)
    rows = private_rows.read(
        people.files(installation, dataset), schema=stored.schema, partitions=stored.partitions, scope={}
    )
    assert len(rows.y) == 1, "the files are of the form that jobs read"


def test_the_places_of_units_stay_taken_and_an_equal_body_is_another_upload(
    installation: Installation, dataset: str
) -> None:
    first = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]
    erase_upload(installation, OWNER, dataset, upload=first)
    again = people.upload(installation, dataset, ANN_AND_BEN)
    assert (again["rows"], again["dropped"], again["warnings"]) == (2, {"without_unit": 0, "over_bound": 1}, [])
    assert again["epoch"] != first
    assert _ages(installation, dataset) == [[], [1, 2]]


def test_a_queued_job_keeps_its_reservation_and_its_cells(scene: Scene) -> None:
    job = scene.submit_job(key="job")
    with scene.installation.database.read() as session:
        before = statements.entries(session, scene.dataset_id, after=0, limit=99)
        (epoch,) = catalog.epochs(session, scene.dataset_id)
    erase_upload(scene.installation, OWNER, scene.dataset_id, upload=epoch.id)
    assert scene.end(job) == ("queued", None, ["reserve"])
    with scene.installation.database.read() as session:
        assert statements.entries(session, scene.dataset_id, after=0, limit=99) == before
    assert scene.submit(key="later").status == 202, "an empty upload is a legal target, like any other"


def test_the_act_names_dataset_and_upload_once(installation: Installation, dataset: str) -> None:
    upload = people.upload(installation, dataset, CLEO)["epoch"]
    first = erase_upload(installation, OWNER, dataset, upload=upload)
    assert erase_upload(installation, OWNER, dataset, upload=upload) == first
    with installation.database.read() as session:
        assert control.details_of(session, EntryKind.UPLOAD_ERASED) == [{"dataset": dataset, "upload": upload}]
    assert control_export._DETAILS["upload-erased"] == {"dataset", "upload"}


def test_only_owners_erase_uploads_of_their_living_datasets(installation: Installation, dataset: str) -> None:
    upload = people.upload(installation, dataset, CLEO)["epoch"]
    other = people.declared(installation)["id"]
    for reference, named in ((dataset, "ep_nothing"), (other, upload), (dataset, "../" + upload)):
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


@pytest.mark.parametrize("completed_by", ["repetition", "sweeper"])
def test_an_erasure_that_was_cut_off_is_completed(
    installation: Installation, dataset: str, monkeypatch: pytest.MonkeyPatch, completed_by: str
) -> None:
    upload = people.upload(installation, dataset, ANN_AND_BEN)["epoch"]

    def cut(*_: object, **__: object) -> None:
        raise Cut

    with monkeypatch.context() as patched, pytest.raises(Cut):
        patched.setattr(erasure, "erase_upload", cut)
        erase_upload(installation, OWNER, dataset, upload=upload)
    assert _ages(installation, dataset) == [[1, 2, 3]]
    if completed_by == "sweeper":
        tidy_rows(installation)
    else:
        erase_upload(installation, OWNER, dataset, upload=upload)
    assert _ages(installation, dataset) == [[]]
