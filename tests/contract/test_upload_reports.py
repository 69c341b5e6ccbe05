"""Owners see how many rows an upload stored, and whether a body came before. Nobody else sees either."""

import pytest
from sqlalchemy import select

from app.access.roles import Principal, Role
from app.core.errors import NotFound, RoleMissing
from app.datasets import row_layout
from app.db.base import Base
from app.services.datasets.show_datasets import show_dataset
from app.services.datasets.uploads import list_uploads
from app.services.grants import put_grant
from app.services.installation import Installation
from app.services.pages import PageRequest
from tests.support import people
from tests.support.crash_scene import ADMIN, OWNER, STRANGER

ROWS = people.visits([("ann", 39), ("ann", 40), ("ann", 41), ("", 20), ("bob", 50)])
MORE = people.visits([("cid", 40)])


def _rows(installation: Installation, dataset: str, caller: Principal = OWNER) -> list[int | None]:
    return [upload.rows for upload in list_uploads(installation, caller, dataset, PageRequest()).uploads]


def test_the_report_counts_the_rows_that_were_stored(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(2))["id"]
    report = people.upload(installation, dataset, ROWS, key="once")
    assert (report["rows"], report["dropped"]) == (3, {"without_unit": 1, "over_bound": 1})
    assert people.upload(installation, dataset, ROWS, key="once") == report
    assert people.upload(installation, dataset, MORE)["rows"] == 1
    assert _rows(installation, dataset) == [3, 1]
    assert people.upload(installation, dataset, people.visits([]))["rows"] == 0


def test_an_admin_without_the_grant_sees_no_count(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    assert people.upload(installation, dataset, MORE)["rows"] == 1
    assert people.upload(installation, dataset, ROWS, principal=ADMIN)["rows"] is None
    assert _rows(installation, dataset, ADMIN) == [None, None]
    assert _rows(installation, dataset) == [1, 4]
    put_grant(installation, OWNER, dataset, ADMIN.key_id, role=Role.OWNER.value)
    assert _rows(installation, dataset, ADMIN) == [1, 4]


@pytest.mark.parametrize("role", [Role.ANALYST, Role.AUDITOR, Role.PREDICTOR, Role.ATTESTER])
def test_other_roles_see_uploads_without_counts(installation: Installation, role: Role) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    people.upload(installation, dataset, ROWS)
    with pytest.raises(NotFound):
        list_uploads(installation, STRANGER, dataset, PageRequest())
    put_grant(installation, OWNER, dataset, STRANGER.key_id, role=role.value)
    with pytest.raises(RoleMissing):
        list_uploads(installation, STRANGER, dataset, PageRequest())
    assert set(show_dataset(installation, STRANGER, dataset).epochs[0].model_dump()) == {
        "epoch",
        "uploaded_at",
        "erased_at",
    }


def test_uploads_are_listed_in_pages(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    epochs = [people.upload(installation, dataset, MORE)["epoch"] for _ in range(3)]
    first = list_uploads(installation, OWNER, dataset, PageRequest(limit=2))
    second = list_uploads(installation, OWNER, dataset, PageRequest(limit=2, cursor=first.next))
    assert [upload.epoch for upload in [*first.uploads, *second.uploads]] == epochs
    assert second.next is None


def test_a_body_that_the_same_key_sent_before_is_warned_of_and_stored(installation: Installation) -> None:
    dataset, other = (people.declared(installation, privacy_unit=people.per_patient(9))["id"] for _ in range(2))
    first = people.upload(installation, dataset, ROWS)
    assert first["warnings"] == []
    assert people.upload(installation, dataset, MORE)["warnings"] == []
    second = people.upload(installation, dataset, ROWS)
    (warning,) = second["warnings"]
    assert first["epoch"] in warning
    assert _rows(installation, dataset) == [4, 1, 4]
    assert people.upload(installation, other, ROWS)["warnings"] == []
    put_grant(installation, OWNER, dataset, STRANGER.key_id, role=Role.OWNER.value)
    assert people.upload(installation, dataset, ROWS, principal=STRANGER)["warnings"] == []


def test_fingerprints_of_bodies_are_keyed_by_dataset_and_by_sender(installation: Installation) -> None:
    bodies = set()
    for _ in range(2):
        dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
        put_grant(installation, OWNER, dataset, STRANGER.key_id, role=Role.OWNER.value)
        epochs = [people.upload(installation, dataset, ROWS, principal=who)["epoch"] for who in (OWNER, STRANGER)]
        key = people.data_key(installation, dataset)
        stored = row_layout.stored_uploads(installation.files, dataset, epochs, key=key)
        bodies |= {upload.body for upload in stored.values()}
        assert all(str(upload) == "StoredUpload()" for upload in stored.values())
    assert len(bodies) == 4


def test_the_database_has_no_count_and_no_fingerprint_of_a_body(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    first = people.upload(installation, dataset, ROWS)
    people.upload(installation, dataset, ROWS, key="k")
    key = people.data_key(installation, dataset)
    (stored,) = row_layout.stored_uploads(installation.files, dataset, [first["epoch"]], key=key).values()
    assert stored.body is not None
    with installation.database.read() as session:
        rows = [str(row) for table in Base.metadata.sorted_tables for row in session.execute(select(table))]
    tables = "\n".join(rows)
    assert first["epoch"] in tables
    assert stored.body.hex() not in tables
    assert "which the same key sent" not in tables
