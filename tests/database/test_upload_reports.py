"""Owners see how many rows an upload stored, and whether a body came before. Nobody
else sees either.
"""

from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import select

from app.access.grants import Principal, Role
from app.access.tables import AnswerRow
from app.core.errors import (
    CellsUnread,
    NotFound,
    RoleMissing,
    RowsInvalid,
    UnreadColumn,
    UploadEmpty,
    UploadRepeated,
)
from app.datasets import ingest, row_layout
from app.datasets.upload_bodies import BodyForm
from app.db.base import Base
from app.services.datasets.erase import erase_upload
from app.services.datasets.show import list_uploads, show_dataset
from app.services.datasets.upload import _Upload
from app.services.installation import Installation
from app.services.keys import put_grant
from app.services.pagination import PageRequest
from tests.support import people
from tests.support.columnar import body_of
from tests.support.crash_scene import ADMIN, OWNER, STRANGER
from tests.support.databases import on_one_database

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

ROWS = people.visits([("ann", 39), ("ann", 40), ("ann", 41), ("", 20), ("bob", 50)])
MORE = people.visits([("cid", 40)])


def _rows(
    installation: Installation, dataset: str, caller: Principal = OWNER
) -> list[int | None]:
    return [
        upload.rows
        for upload in list_uploads(installation, caller, dataset, PageRequest()).uploads
    ]


@on_one_database
def test_the_report_counts_the_rows_that_were_stored(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(2))["id"]
    report = people.upload(installation, dataset, ROWS, key="once")
    assert (report["rows"], report["dropped"]) == (
        3,
        {"without_unit": 1, "over_bound": 1},
    )
    assert people.upload(installation, dataset, ROWS, key="once") == report
    assert people.upload(installation, dataset, MORE)["rows"] == 1
    assert _rows(installation, dataset) == [3, 1]
    assert (
        people.upload(installation, dataset, people.visits([]), accept_empty=True)[
            "rows"
        ]
        == 0
    )


@on_one_database
def test_the_digest_that_is_stored_of_a_body_is_keyed_by_the_dataset(
    installation: Installation,
) -> None:
    """So that nobody with the database tests guesses of the rows, also after the data
    key is gone.
    """
    for _ in range(2):
        dataset = people.declared(installation)["id"]
        people.upload(installation, dataset, b"age,income\n39,low\n", key="once")
    with installation.database.read() as session:
        digests = set(session.execute(select(AnswerRow.request_sha256)).scalars())
    assert len(digests - {people.BODY_SHA256}) == len(digests) == 2


@on_one_database
def test_an_admin_without_the_grant_sees_no_count(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    people.own_another(installation, ADMIN)
    assert people.upload(installation, dataset, MORE)["rows"] == 1
    report = people.upload(installation, dataset, ROWS, principal=ADMIN)
    assert (report["rows"], report["dropped"]) == (None, None)
    assert _rows(installation, dataset, ADMIN) == [None, None]
    assert _rows(installation, dataset) == [1, 4]
    put_grant(installation, OWNER, dataset, ADMIN.key_id, role=Role.OWNER.value)
    assert _rows(installation, dataset, ADMIN) == [1, 4]


@on_one_database
@pytest.mark.parametrize(
    "role", [Role.ANALYST, Role.AUDITOR, Role.PREDICTOR, Role.ATTESTER]
)
def test_other_roles_see_uploads_without_counts(
    installation: Installation, role: Role
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    people.upload(installation, dataset, ROWS)
    with pytest.raises(NotFound):
        list_uploads(installation, STRANGER, dataset, PageRequest())
    put_grant(installation, OWNER, dataset, STRANGER.key_id, role=role.value)
    with pytest.raises(RoleMissing):
        list_uploads(installation, STRANGER, dataset, PageRequest())
    assert set(
        show_dataset(installation, STRANGER, dataset).epochs[0].model_dump()
    ) == {
        "epoch",
        "uploaded_at",
        "erased_at",
    }


def test_uploads_are_listed_in_pages(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    epochs = [
        people.upload(installation, dataset, MORE, again=True)["epoch"]
        for _ in range(3)
    ]
    first = list_uploads(installation, OWNER, dataset, PageRequest(limit=2))
    second = list_uploads(
        installation, OWNER, dataset, PageRequest(limit=2, cursor=first.next)
    )
    assert [upload.epoch for upload in [*first.uploads, *second.uploads]] == epochs
    assert second.next is None


def test_a_body_that_the_same_key_sent_before_is_refused_before_it_takes_places(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(4))["id"]
    first = people.upload(installation, dataset, ROWS, key="once")
    with pytest.raises(UploadRepeated) as refused:
        people.upload(installation, dataset, ROWS, key="twice")
    assert refused.value.upload == first["epoch"]
    assert people.upload(installation, dataset, ROWS, key="once") == first, (
        "a repeated request is no second upload"
    )
    assert _rows(installation, dataset) == [4]
    assert people.row_files_of(installation, dataset) == {
        f"{first['epoch']}.parquet",
        f"{first['epoch']}.prints",
    }
    more = people.upload(installation, dataset, people.visits([("ann", 1), ("bob", 2)]))
    assert more["dropped"]["over_bound"] == 0, "ann had three of four places"
    erase_upload(installation, OWNER, dataset, upload=first["epoch"])
    assert people.upload(installation, dataset, ROWS, key="twice")["rows"] == 4, (
        "its rows are stored no more"
    )


@pytest.mark.parametrize("max_rows", [None, 2])
def test_a_check_stores_nothing_and_takes_no_places(
    installation: Installation, max_rows: int | None
) -> None:
    unit = {} if max_rows is None else {"privacy_unit": people.per_patient(max_rows)}
    dataset = people.declared(installation, **unit)["id"]
    rows = ROWS if max_rows else b"age,income\n39,low\n"
    for _ in range(2):
        assert people.upload(installation, dataset, rows, check=True) == {}
    assert (
        _rows(installation, dataset),
        people.row_files_of(installation, dataset),
    ) == ([], set())
    report = people.upload(installation, dataset, rows, key="once")
    assert report["rows"] == (3 if max_rows else 1), "every place is free"
    files = people.row_files_of(installation, dataset)
    assert people.upload(installation, dataset, rows, check=True, again=True) == {}
    assert people.row_files_of(installation, dataset) == files


@on_one_database
def test_a_check_refuses_what_an_upload_refuses_beside_the_replaced_upload(
    installation: Installation,
) -> None:
    dataset = people.declared(installation)["id"]
    wrong = b"age,income\n39,lo\n39,high\n"
    first = people.upload(installation, dataset, wrong, accept_unknown=True)
    for body, error in (
        (b"age;income\n39;low\n", RowsInvalid),
        (b"age,income\n", UploadEmpty),
        (wrong, CellsUnread),
    ):
        with pytest.raises(error):
            people.upload(installation, dataset, body, check=True)
    with pytest.raises(UploadRepeated) as refused:
        people.upload(installation, dataset, wrong, accept_unknown=True, check=True)
    assert refused.value.upload == first["epoch"]
    assert len(people.row_files_of(installation, dataset)) == 2
    replaced = {"accept_unknown": True, "check": True, "replaces": first["epoch"]}
    assert people.upload(installation, dataset, wrong, **replaced) == {}
    twin = people.upload(installation, dataset, wrong, accept_unknown=True, again=True)
    with pytest.raises(UploadRepeated) as refused:
        people.upload(installation, dataset, wrong, **replaced)
    assert refused.value.upload == twin["epoch"], "the rows would stay repeated"


@on_one_database
@pytest.mark.parametrize("form", [BodyForm.CSV, BodyForm.PARQUET])
def test_a_body_without_rows_is_refused_before_anything_is_stored_unless_the_caller_insists(
    installation: Installation, form: BodyForm
) -> None:
    dataset = people.declared(installation)["id"]
    empty = b"age,income\n"
    if form is BodyForm.PARQUET:
        empty = body_of(
            pa.table(
                {"age": pa.array([], pa.int64()), "income": pa.array([], pa.string())}
            ),
            form,
        )
    with pytest.raises(UploadEmpty):
        people.upload(
            installation, dataset, empty, form=form, key="k", accept_unknown=True
        )
    assert (
        _rows(installation, dataset),
        people.row_files_of(installation, dataset),
    ) == ([], set())
    insisted = people.upload(
        installation, dataset, empty, form=form, key="k2", accept_empty=True
    )
    assert (insisted["rows"], _rows(installation, dataset)) == (0, [0])


@on_one_database
def test_a_body_is_not_empty_because_no_row_is_left_after_bounding_units(
    installation: Installation,
) -> None:
    """The list of uploads is public, and must not depend on rows of other uploads."""
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    people.upload(installation, dataset, people.visits([("ann", 1)]))
    over = people.upload(installation, dataset, people.visits([("ann", 2)]))
    without = people.upload(installation, dataset, people.visits([("", 2)]))
    assert (over["rows"], without["rows"], _rows(installation, dataset)) == (
        0,
        0,
        [1, 0, 0],
    )
    with pytest.raises(UploadEmpty):
        people.upload(installation, dataset, people.visits([]))


def test_equal_bodies_at_the_same_time_are_stored_once(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = people.declared(installation)["id"]
    body, ingest_rows = b"age,income\n1,low\n", ingest.ingest_rows

    def behind_another(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(ingest, "ingest_rows", ingest_rows)
        people.upload(installation, dataset, body)
        return ingest_rows(*arguments, **options)

    monkeypatch.setattr(ingest, "ingest_rows", behind_another)
    with pytest.raises(UploadRepeated):
        people.upload(installation, dataset, body)
    assert _rows(installation, dataset) == [1]


def test_equal_bodies_are_compared_again_under_the_lock_of_the_dataset(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second upload begins and ends right before the transaction of the first."""
    dataset, body = people.declared(installation)["id"], b"age,income\n1,low\n"
    read_earlier, n_reads = _Upload._read_earlier, count(1)

    def with_another(upload: _Upload) -> None:
        read_earlier(upload)
        if next(n_reads) == 2:
            people.upload(installation, dataset, body)

    monkeypatch.setattr(_Upload, "_read_earlier", with_another)
    with pytest.raises(UploadRepeated):
        people.upload(installation, dataset, body)
    assert _rows(installation, dataset) == [1]


def test_a_body_that_the_same_key_sent_before_is_warned_of_and_stored_if_the_caller_insists(
    installation: Installation,
) -> None:
    dataset, other = (
        people.declared(installation, privacy_unit=people.per_patient(9))["id"]
        for _ in range(2)
    )
    first = people.upload(installation, dataset, ROWS)
    assert first["warnings"] == []
    assert people.upload(installation, dataset, MORE)["warnings"] == []
    second = people.upload(installation, dataset, ROWS, again=True)
    (warning,) = second["warnings"]
    assert first["epoch"] in warning
    assert _rows(installation, dataset) == [4, 1, 4]
    assert people.upload(installation, other, ROWS)["warnings"] == []
    put_grant(installation, OWNER, dataset, STRANGER.key_id, role=Role.OWNER.value)
    assert (
        people.upload(installation, dataset, ROWS, principal=STRANGER)["warnings"] == []
    )


@on_one_database
def test_fingerprints_of_bodies_are_keyed_by_dataset_and_by_sender(
    installation: Installation,
) -> None:
    bodies = set()
    for _ in range(2):
        dataset = people.declared(installation, privacy_unit=people.per_patient(9))[
            "id"
        ]
        put_grant(installation, OWNER, dataset, STRANGER.key_id, role=Role.OWNER.value)
        epochs = [
            people.upload(installation, dataset, ROWS, principal=who)["epoch"]
            for who in (OWNER, STRANGER)
        ]
        key = people.data_key(installation, dataset)
        stored = row_layout.stored_uploads(installation.files, dataset, epochs, key=key)
        bodies |= {upload.body for upload in stored.values()}
        assert all(str(upload) == "StoredUpload()" for upload in stored.values())
    assert len(bodies) == 4


@on_one_database
def test_the_database_has_no_count_and_no_fingerprint_of_a_body(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(9))["id"]
    first = people.upload(installation, dataset, ROWS)
    people.upload(installation, dataset, ROWS, key="k", again=True)
    key = people.data_key(installation, dataset)
    (stored,) = row_layout.stored_uploads(
        installation.files, dataset, [first["epoch"]], key=key
    ).values()
    assert stored.body is not None
    with installation.database.read() as session:
        rows = [
            str(row)
            for table in Base.metadata.sorted_tables
            for row in session.execute(select(table))
        ]
    tables = "\n".join(rows)
    assert first["epoch"] in tables
    assert stored.body.hex() not in tables
    assert "which the same key sent" not in tables


def _mapped(
    n_rows: int, *, ages_out_of_bounds: int = 0, unknown_labels: int = 0
) -> bytes:
    ages = [5000] * ages_out_of_bounds + [1] * (n_rows - ages_out_of_bounds)
    labels = ["?"] * unknown_labels + ["low"] * (n_rows - unknown_labels)
    return b"age,income\n" + b"".join(
        f"{age},{label}\n".encode() for age, label in zip(ages, labels, strict=True)
    )


def test_a_file_with_many_cells_that_are_not_as_declared_is_refused_unless_the_owner_accepts_them(
    installation: Installation,
) -> None:
    dataset = people.declared(installation)["id"]
    body = _mapped(200, ages_out_of_bounds=11, unknown_labels=199)
    with pytest.raises(CellsUnread) as refused:
        people.upload(installation, dataset, body, key="k")
    assert refused.value.columns == [
        UnreadColumn("age", "clamped", 11, 5.5, row=1),
        UnreadColumn("income", "unknown", 199, 99.5, row=1),
    ]
    assert _rows(installation, dataset) == []
    assert people.row_files_of(installation, dataset) == set(), "nothing is stored"
    report = people.upload(installation, dataset, body, key="k", accept_unknown=True)
    assert [(column["clamped"], column["unknown"]) for column in report["columns"]] == [
        (11, 0),
        (0, 199),
    ]


def test_a_twentieth_of_the_cells_may_be_not_as_declared(
    installation: Installation,
) -> None:
    dataset = people.declared(installation)["id"]
    report = people.upload(
        installation, dataset, _mapped(200, ages_out_of_bounds=10, unknown_labels=10)
    )
    assert [(column["clamped"], column["unknown"]) for column in report["columns"]] == [
        (10, 0),
        (0, 10),
    ]


def test_a_refusal_for_cells_that_are_not_as_declared_takes_no_place(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    with pytest.raises(CellsUnread):
        people.upload(installation, dataset, people.visits([("ann", 5000), ("ben", 1)]))
    assert (
        people.upload(installation, dataset, people.visits([("ann", 50), ("ben", 1)]))[
            "rows"
        ]
        == 2
    )
