"""Uploads to datasets whose privacy unit is a column, on both databases: the rows that
are stored or dropped.
"""

import pyarrow as pa
import pytest
from sqlalchemy.orm import Session

from app.core.errors import RowsInvalid, Unavailable
from app.datasets import catalog, row_files, row_layout
from app.datasets.catalog import EpochRow
from app.services.datasets.erase import delete_dataset
from app.services.installation import Installation
from tests.support import people
from tests.support.columnar import COLUMNAR, body_of
from tests.support.crash_scene import OWNER
from tests.support.databases import on_one_database

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]


def ages(installation: Installation, dataset_id: str, patient: str) -> list[list[int]]:
    own = people.id_of(installation, dataset_id, patient)
    return [
        [age for row_id, age in epoch if row_id == own]
        for epoch in people.stored_rows(installation, dataset_id)
    ]


def test_order_of_arrival_decides_over_all_epochs_and_the_owner_is_told(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(2))["id"]
    first = people.upload(
        installation,
        dataset,
        people.visits([("ann", 1), ("ben", 2), ("", 3), ("ann", 4), ("ann", 5)]),
    )
    second = people.upload(
        installation,
        dataset,
        people.visits([("ann", 6), ("ben", 7), ("ben", 8), ("cleo", 9)]),
    )

    assert first["dropped"] == {"without_unit": 1, "over_bound": 1}
    assert second["dropped"] == {"without_unit": 0, "over_bound": 2}
    assert ages(installation, dataset, "ann") == [[1, 4], []]
    assert ages(installation, dataset, "ben") == [[2], [7]]
    assert [len(epoch) for epoch in people.stored_rows(installation, dataset)] == [3, 2]
    with installation.database.read() as session:
        epochs = [epoch.id for epoch in catalog.epochs(session, dataset)]
    stored = row_layout.stored_uploads(
        installation.files, dataset, epochs, key=people.data_key(installation, dataset)
    )
    assert sum(upload.n_rows for upload in stored.values()) == 5
    assert [first["rows"], second["rows"]] == [
        upload.n_rows for upload in stored.values()
    ]


def test_the_same_file_again_is_no_second_copy(installation: Installation) -> None:
    """A repeated upload stores no row if every unit has its rows, with another
    idempotency key or without a key.
    """
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    body = people.visits([("ann", 1), ("ben", 2)])
    people.upload(installation, dataset, body)
    again = people.upload(installation, dataset, body, again=True)

    assert again["dropped"] == {"without_unit": 0, "over_bound": 2}
    assert [len(epoch) for epoch in people.stored_rows(installation, dataset)] == [2, 0]


def test_an_idempotent_replay_counts_once(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(2))["id"]
    body = people.visits([("ann", 1)])
    first = people.upload(installation, dataset, body, key="k")

    assert people.upload(installation, dataset, body, key="k") == first
    assert ages(installation, dataset, "ann") == [[1]]
    people.upload(installation, dataset, people.visits([("ann", 2), ("ann", 3)]))
    assert ages(installation, dataset, "ann") == [[1], [2]]


def test_a_refused_upload_takes_no_place(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    with pytest.raises(RowsInvalid):
        people.upload(
            installation, dataset, people.visits([("ann", 1)]) + b"ben,old,low\n"
        )
    people.upload(installation, dataset, people.visits([("ann", 2)]))

    assert ages(installation, dataset, "ann") == [[2]]


@on_one_database
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"age,income\n1,low\n", ("patient", "missing-column", 1)),
        (
            b"patient,patient,age,income\na,b,1,low\n",
            ("patient", "duplicate-column", 2),
        ),
        (b"patient,age,income\n\xff,1,low\n", ("patient", "not-text", 1)),
        (b'patient,age,income\n"a\nb",1,low\n', ("patient", "line-break", 1)),
    ],
)
def test_a_unit_column_that_cannot_be_read_is_refused(
    installation: Installation, body: bytes, problem: tuple[str, str, int]
) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    with pytest.raises(RowsInvalid) as refused:
        people.upload(installation, dataset, body)
    assert [
        (column.name, column.problem, column.count) for column in refused.value.columns
    ] == [problem]
    assert people.stored_rows(installation, dataset) == []


def test_an_epoch_that_came_in_between_is_noticed_without_locks(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without locks, the dataset's row shows that another upload ended
    in the meantime.
    """
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    epochs = catalog.epochs

    def then_another_ends(session: Session, dataset_id: str) -> list[EpochRow]:
        result = epochs(session, dataset_id)
        monkeypatch.setattr(catalog, "epochs", epochs)
        catalog.add_epoch(
            session,
            dataset_id,
            epoch_id="ep_other",
        )
        return result

    monkeypatch.setattr(catalog, "epochs", then_another_ends)
    with pytest.raises(Unavailable):
        people.upload(installation, dataset, people.visits([("ben", 1)]))
    files = {
        file.name
        for file in (
            installation.home / row_files.admission_name(dataset)
        ).parent.iterdir()
    }
    assert files == {"units.sqlite3"}, "its rows are gone"


def test_deletion_takes_the_book_with_the_rows(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    people.upload(installation, dataset, people.visits([("ann", 1)]))
    assert (installation.home / row_files.admission_name(dataset)).exists()
    delete_dataset(installation, OWNER, dataset)
    assert (
        list((installation.home / row_files.admission_name(dataset)).parent.iterdir())
        == []
    )


@on_one_database
@pytest.mark.parametrize(
    "kind",
    [
        pa.float64(),
        pa.float32(),
        pa.decimal128(30, 2),
        pa.dictionary(pa.int8(), pa.float64()),
    ],
)
def test_numbers_that_are_spelt_in_several_ways_name_no_unit(
    installation: Installation, kind: pa.DataType
) -> None:
    """A table with a gap turns whole numbers into these: 12345678901 is
    1.2345678901e+10 then, another unit.
    """
    dataset = people.declared(installation, privacy_unit=people.per_patient(1))["id"]
    values = pa.array([1, None], pa.int64()).cast(
        kind.value_type if pa.types.is_dictionary(kind) else kind
    )
    units = values.dictionary_encode() if pa.types.is_dictionary(kind) else values
    table = pa.table({"patient": units, "age": [2, 3], "income": ["low", "low"]})
    for form in COLUMNAR:
        with pytest.raises(RowsInvalid) as refused:
            people.upload(installation, dataset, body_of(table, form), form=form)
        assert [(column.name, column.problem) for column in refused.value.columns] == [
            ("patient", "unsupported-type")
        ]
    whole = table.set_column(0, "patient", pa.array([1, None], pa.int64()))
    report = people.upload(
        installation, dataset, body_of(whole, COLUMNAR[0]), form=COLUMNAR[0]
    )
    assert (report["rows"], report["dropped"]) == (
        1,
        {"without_unit": 1, "over_bound": 0},
    )
