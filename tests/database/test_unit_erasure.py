"""Erasing one unit removes its rows and fingerprints from every upload and keeps its
places and its charges.
"""

import threading
from typing import Any

import numpy as np
import pytest

from app.core.errors import (
    DatasetDeleted,
    InvalidRequest,
    NoRowsOfUnit,
    NotFound,
    UploadRepeated,
)
from app.datasets import (
    admission,
    catalog,
    erasure,
    private_rows,
    row_files,
    row_layout,
)
from app.datasets.erasure_log import ErasureLog
from app.datasets.private_rows import Selection
from app.ledger import control, statements, tables
from app.ledger import reservations as ledger
from app.ledger.tables import EntryKind
from app.services.datasets.erase import delete_dataset, erase_upload
from app.services.datasets.unit_erasure import erase_unit
from app.services.installation import Installation
from app.services.ledger.heads import open_log
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support import people, reserving
from tests.support.crash_scene import ADMIN, EVENT, OWNER
from tests.support.databases import on_one_database
from tests.support.uploads import store_table, stored_table

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

UPLOADS = (
    [("ann", 1), ("ben", 2), ("ann", 3)],
    [("cleo", 4)],
    [("ann", 5), ("ben", 6), ("ann", 7)],
)


@pytest.fixture
def dataset(installation: Installation) -> str:
    result = people.declared(
        installation,
        privacy_unit=people.per_patient(3),
        partitions=[{"name": "shard", "kind": "hash", "cells": 4}],
    )["id"]
    for rows in UPLOADS:
        people.upload(installation, result, people.visits(rows))
    return str(result)


def epochs(installation: Installation, dataset: str) -> list[str]:
    with installation.database.read() as session:
        return [epoch.id for epoch in catalog.epochs(session, dataset)]


def ages(installation: Installation, dataset: str) -> list[list[int]]:
    return [
        [age for _, age in epoch] for epoch in people.stored_rows(installation, dataset)
    ]


def prints(installation: Installation, dataset: str, epoch: str) -> list[int]:
    key = people.data_key(installation, dataset)
    with row_files.sealed_prints(
        installation.files, dataset, epoch, key=key
    ).open() as reader:
        return np.frombuffer(reader.read(), dtype="<u8").tolist()


def test_the_rows_go_from_every_upload_and_the_others_stay_as_they_were(
    installation: Installation, dataset: str
) -> None:
    before = people.stored_rows(installation, dataset)
    kept = [
        prints(installation, dataset, epoch) for epoch in epochs(installation, dataset)
    ]
    assert erase_unit(installation, OWNER, dataset, unit="ann").erased == 3

    assert ages(installation, dataset) == [[2], [4], [6]]
    row_id = people.id_of(installation, dataset, "ann")
    assert people.stored_rows(installation, dataset) == [
        [row for row in epoch if row[0] != row_id] for epoch in before
    ]
    remaining = [
        prints(installation, dataset, epoch) for epoch in epochs(installation, dataset)
    ]
    assert remaining == [[kept[0][1]], kept[1], [kept[2][1]]]
    with installation.database.read() as session:
        stored = catalog.find(session, dataset)
    rows = private_rows.read(
        people.files(installation, dataset),
        Selection(stored.schema, stored.partitions, WHOLE),
    )
    assert len(rows.y) == 3, "the files are of the form that jobs read"


@on_one_database
@pytest.mark.parametrize("group_rows", [1, 2])
def test_the_rows_go_from_every_row_group_of_a_large_upload(
    installation: Installation, dataset: str, group_rows: int
) -> None:
    for file in people.files(installation, dataset):
        store_table(stored_table(file), file, group_rows=group_rows)
    assert erase_unit(installation, OWNER, dataset, unit="ann").erased == 3
    assert ages(installation, dataset) == [[2], [4], [6]]


@on_one_database
def test_an_admin_without_the_grant_learns_no_number_of_erased_rows(
    installation: Installation, dataset: str
) -> None:
    people.own_another(installation, ADMIN)
    assert erase_unit(installation, ADMIN, dataset, unit="ann").erased is None
    assert ages(installation, dataset) == [[2], [4], [6]]


@on_one_database
def test_an_erasure_answers_with_its_act_which_keeps_the_name_of_the_request(
    installation: Installation, dataset: str
) -> None:
    erased = erase_unit(installation, OWNER, dataset, unit="ann", named="request 118")
    with installation.database.read() as session:
        act = tables.entries(session, control.CHAIN, after=0, limit=1_000)[-1]
    assert (erased.act, erased.at) == (act.sequence, act.at)
    assert act.details["reference"] == "request 118"


@on_one_database
def test_the_file_of_an_erased_upload_stays_beside_the_erasure_of_a_unit(
    installation: Installation, dataset: str
) -> None:
    """Jobs that name the upload read no row there; without the file, none could start."""
    first, *_ = epochs(installation, dataset)
    erase_upload(installation, OWNER, dataset, upload=first)
    assert erase_unit(installation, OWNER, dataset, unit="ann").erased == 1
    assert ages(installation, dataset) == [[], [4], [6]]


@on_one_database
def test_an_upload_is_recognised_after_all_its_rows_were_erased(
    installation: Installation, dataset: str
) -> None:
    rows = people.visits([("dora", 8)])
    first = people.upload(installation, dataset, rows)["epoch"]
    erase_unit(installation, OWNER, dataset, unit="dora")
    with pytest.raises(UploadRepeated) as refused:
        people.upload(installation, dataset, rows.replace(b"\n", b"\r\n"))
    assert refused.value.upload == first


@on_one_database
def test_damaged_fingerprints_keep_no_row(
    installation: Installation, dataset: str
) -> None:
    first = epochs(installation, dataset)[0]
    prints = installation.home / row_files.prints_name(dataset, first)
    content = prints.read_bytes()
    prints.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert erase_unit(installation, OWNER, dataset, unit="ann").erased == 3
    assert ages(installation, dataset) == [[2], [4], [6]]
    assert not prints.exists()


def test_an_upload_that_left_the_book_and_has_not_committed_is_waited_for(
    installation: Installation, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    erased: list[int] = []
    other = threading.Thread(
        target=lambda: erased.append(
            erase_unit(installation, OWNER, dataset, unit="dora").erased
        )
    )
    leave = admission.AdmissionBook.commit

    def leave_and_let_the_erasure_in(book: admission.AdmissionBook) -> None:
        leave(book)
        other.start()
        other.join(timeout=1)

    monkeypatch.setattr(admission.AdmissionBook, "commit", leave_and_let_the_erasure_in)
    people.upload(installation, dataset, people.visits([("dora", 8), ("ben", 9)]))
    other.join(timeout=60)
    assert erased == [1]
    assert ages(installation, dataset)[-1] == [9]


def test_a_unit_of_which_no_row_is_stored_is_refused_and_is_no_act(
    installation: Installation, dataset: str
) -> None:
    files = [file.file for file in people.files(installation, dataset)]
    before = [file.read_bytes() for file in files]
    with pytest.raises(NoRowsOfUnit):
        erase_unit(installation, OWNER, dataset, unit="nobody")
    assert [file.read_bytes() for file in files] == before
    assert _acts(installation) == 0
    key = people.data_key(installation, dataset)
    assert list(open_log(installation).units(dataset, key=key)) == []
    assert erase_unit(installation, OWNER, dataset, unit="ann").erased == 3
    with pytest.raises(NoRowsOfUnit):
        erase_unit(installation, OWNER, dataset, unit="ann")
    assert _acts(installation) == 1


@on_one_database
def test_an_erasure_whose_record_cannot_be_written_is_no_act(
    installation: Installation, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record could not be written again from an act."""

    def full(*_: object, **__: object) -> None:
        raise OSError

    before = ages(installation, dataset)
    with monkeypatch.context() as broken, pytest.raises(OSError):
        broken.setattr(ErasureLog, "write_unit", full)
        erase_unit(installation, OWNER, dataset, unit="ann")
    assert (_acts(installation), ages(installation, dataset)) == (0, before)


def _acts(installation: Installation) -> int:
    with installation.database.read() as session:
        return len(control.details_of(session, EntryKind.UNIT_ERASED))


def test_an_erased_row_does_not_give_its_place_back(
    installation: Installation, dataset: str
) -> None:
    erase_unit(installation, OWNER, dataset, unit="ann")
    erase_unit(installation, OWNER, dataset, unit="ben")
    report = people.upload(
        installation, dataset, people.visits([("ann", 8), ("ben", 9), ("ben", 10)])
    )

    assert report["dropped"] == {"without_unit": 0, "over_bound": 2}
    assert ages(installation, dataset)[-1] == [9], (
        "ann had three rows, ben two of three"
    )


def test_nothing_is_refunded(installation: Installation, dataset: str) -> None:
    with installation.database.write() as session:
        new_reservation = ledger.NewReservation(dataset, 10**9, WHOLE, EVENT, "jb_1")
        ledger.charge(
            session,
            reserving.reserve(session, [new_reservation], actor="key_a")[0],
            actor="worker",
        )
        before = (
            tables.entries(session, dataset, after=0, limit=9),
            statements.balance(session, dataset),
        )
    erase_unit(installation, OWNER, dataset, unit="ann")
    with installation.database.read() as session:
        assert (
            tables.entries(session, dataset, after=0, limit=9),
            statements.balance(session, dataset),
        ) == before


@pytest.mark.parametrize("point", ["before-prints", "before-rows"])
def test_repeating_an_erasure_finishes_an_interrupted_erasure(
    installation: Installation,
    dataset: str,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    class Cut(BaseException):
        """Stands for the end of the process."""

    def cut(*_: object) -> None:
        raise Cut

    first, *_ = epochs(installation, dataset)
    with monkeypatch.context() as broken, pytest.raises(Cut):
        broken.setattr(erasure, "_keep" if point == "before-prints" else "_copy", cut)
        erase_unit(installation, OWNER, dataset, unit="ann")
    assert ages(installation, dataset)[0] == [1, 2, 3]
    assert len(prints(installation, dataset, first)) == (
        3 if point == "before-prints" else 1
    )
    assert erase_unit(installation, OWNER, dataset, unit="ann").erased == 3
    assert ages(installation, dataset) == [[2], [4], [6]]
    file = installation.home / row_files.prints_name(dataset, first)
    assert file.exists() is (point == "before-prints"), (
        "prints whose rows nobody can tell are gone"
    )
    assert list(file.parent.glob(".*")) == []


@on_one_database
def test_a_reader_continues_with_the_file_that_it_opened_before_an_erasure(
    installation: Installation, dataset: str
) -> None:
    with row_layout.reading(people.files(installation, dataset)[0]) as reader:
        erase_unit(installation, OWNER, dataset, unit="ann")
        assert reader.read().num_rows == 3


@pytest.mark.parametrize("n_uploads", [0, 1])
def test_a_dataset_that_is_erased_at_that_moment_has_no_unit_to_erase(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, n_uploads: int
) -> None:
    """The dataset is erased between the lookup and the admission book: the call fails
    and states no row count.
    """
    dataset = people.declared(installation, privacy_unit=people.per_patient(3))["id"]
    for rows in UPLOADS[:n_uploads]:
        people.upload(installation, dataset, people.visits(rows))
    take_book = admission.opened_home_book

    def too_late(*arguments: Any, **options: Any) -> Any:
        delete_dataset(installation, OWNER, dataset)
        return take_book(*arguments, **options)

    monkeypatch.setattr(admission, "opened_home_book", too_late)
    with pytest.raises(DatasetDeleted):
        erase_unit(installation, OWNER, dataset, unit="ann")


@on_one_database
def test_a_lost_file_of_rows_is_not_taken_for_an_erased_dataset(
    installation: Installation, dataset: str
) -> None:
    lost = row_files.rows_name(dataset, epochs(installation, dataset)[1])
    installation.files.delete(lost)
    with pytest.raises(FileNotFoundError):
        erase_unit(installation, OWNER, dataset, unit="ann")


@on_one_database
def test_erasing_a_unit_needs_the_owner_and_a_unit_column(
    installation: Installation, dataset: str
) -> None:
    plain = people.declared(installation)["id"]
    with pytest.raises(InvalidRequest):
        erase_unit(installation, OWNER, plain, unit="ann")
    with pytest.raises(NotFound):
        erase_unit(
            installation, type(OWNER)("key_other", OWNER.roles), dataset, unit="ann"
        )
    delete_dataset(installation, OWNER, dataset)
    with pytest.raises(DatasetDeleted):
        erase_unit(installation, OWNER, dataset, unit="ann")


def test_a_dataset_without_uploads_has_no_row_to_erase(
    installation: Installation,
) -> None:
    empty = people.declared(installation, privacy_unit=people.per_patient(3))["id"]
    with pytest.raises(NoRowsOfUnit):
        erase_unit(installation, OWNER, empty, unit="ann")
