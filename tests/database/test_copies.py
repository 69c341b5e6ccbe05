"""The same rows in another packing are recognised as those of an earlier upload of the
same key, and of no other.
"""

import gzip
import io

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from app.access.grants import Role
from app.core.errors import UploadRepeated
from app.datasets import row_layout
from app.datasets.upload_bodies import BodyForm
from app.services.datasets.erase import erase_upload
from app.services.datasets.show import list_uploads
from app.services.datasets.unit_erasure import erase_unit
from app.services.installation import Installation
from app.services.keys import put_grant
from app.services.pagination import PageRequest
from tests.support import people
from tests.support.columnar import COLUMNAR, body_of
from tests.support.crash_scene import OWNER, STRANGER
from tests.support.databases import on_one_database

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

ROWS = b"patient,age,income,ward\nann,39,low,north\nann,40,high,south\n,41,low,north\nbob,42,low,\n"
WARD = {
    "name": "ward",
    "kind": "column",
    "column": "ward",
    "categories": ["north", "south"],
}

OTHER_PACKINGS = {
    "gzip": gzip.compress(ROWS),
    "crlf": ROWS.replace(b"\n", b"\r\n"),
    "mark": b"\xef\xbb\xbf" + ROWS,
    "empty-lines": ROWS.replace(b"\n", b"\n\n"),
    "quotes": ROWS.replace(b"ann", b'"ann"').replace(b"low", b'"low"'),
    "numbers": ROWS.replace(b"39", b" 39.0").replace(b"40", b"4e1"),
    "spellings-of-units": ROWS.replace(b"ann", b"ann "),
    "order-of-columns": b"ward,income,age,patient\nnorth,low,39,ann\nsouth,high,40,ann\nnorth,low,41,\n,low,42,bob\n",
}
OTHER_ROWS = {
    "number": ROWS.replace(b"42", b"43"),
    "class": ROWS.replace(b"42,low", b"42,high"),
    "unit": ROWS.replace(b"bob", b"cid"),
    "a-unit-instead-of-none": ROWS.replace(b"\n,41", b"\nbob,41"),
    "partition": ROWS.replace(b"south", b"north"),
    "row-more": ROWS + b"cid,42,low,\n",
    "row-less": ROWS.removesuffix(b"bob,42,low,\n"),
    "a-row-without-a-unit-more": ROWS + b",42,low,\n",
    "a-row-twice": ROWS + b"bob,42,low,\n",
}


def declared(installation: Installation, max_rows: int = 9) -> str:
    unit = people.per_patient(max_rows)
    return str(
        people.declared(installation, privacy_unit=unit, partitions=[WARD])["id"]
    )


def uploads(installation: Installation, dataset: str) -> list[str]:
    return [
        upload.epoch
        for upload in list_uploads(installation, OWNER, dataset, PageRequest()).uploads
    ]


def columnar(form: BodyForm) -> bytes:
    texts = pa_csv.ConvertOptions(
        column_types={"patient": pa.string(), "ward": pa.string(), "age": pa.int64()}
    )
    return body_of(pa_csv.read_csv(io.BytesIO(ROWS), convert_options=texts), form)


@pytest.mark.covering("packing", "max_rows")
@on_one_database
@pytest.mark.parametrize("packing", [*OTHER_PACKINGS, *COLUMNAR])
@pytest.mark.parametrize("max_rows", [1, 9])
def test_the_same_rows_in_another_packing_are_refused_and_take_no_place(
    installation: Installation, packing: str, max_rows: int
) -> None:
    dataset = declared(installation, max_rows)
    form = (
        BodyForm.GZIP
        if packing == "gzip"
        else BodyForm(packing)
        if packing in COLUMNAR
        else BodyForm.CSV
    )
    body = OTHER_PACKINGS[packing] if packing in OTHER_PACKINGS else columnar(form)
    first = people.upload(installation, dataset, ROWS)
    files = people.row_files_of(installation, dataset)
    with pytest.raises(UploadRepeated) as refused:
        people.upload(installation, dataset, body, form=form)
    assert refused.value.upload == first["epoch"]
    assert (
        uploads(installation, dataset),
        people.row_files_of(installation, dataset),
    ) == ([first["epoch"]], files)
    more = people.upload(
        installation, dataset, b"patient,age,income,ward\nbob,50,low,north\n"
    )
    assert more["dropped"]["over_bound"] == (max_rows == 1), (
        "the refused rows of bob took no place"
    )
    again = people.upload(installation, dataset, body, form=form, again=True)
    assert first["epoch"] in again["warnings"][0]


def test_a_copy_is_refused_where_each_row_is_a_unit(installation: Installation) -> None:
    dataset = people.declared(installation)["id"]
    body = b"age,income\n39,low\n40,high\n"
    people.upload(installation, dataset, body)
    with pytest.raises(UploadRepeated):
        people.upload(installation, dataset, gzip.compress(body), form=BodyForm.GZIP)
    assert people.upload(installation, dataset, body + b"41,low\n")["rows"] == 3


@on_one_database
@pytest.mark.parametrize("difference", OTHER_ROWS)
def test_other_rows_are_no_copy(installation: Installation, difference: str) -> None:
    dataset = declared(installation)
    people.upload(installation, dataset, ROWS)
    assert (
        people.upload(installation, dataset, OTHER_ROWS[difference])["warnings"] == []
    )


def test_nothing_is_compared_between_keys_and_between_datasets(
    installation: Installation,
) -> None:
    dataset, other = declared(installation), declared(installation)
    put_grant(installation, OWNER, dataset, STRANGER.key_id, role=Role.OWNER.value)
    packed = gzip.compress(ROWS)
    first = people.upload(installation, dataset, ROWS)["epoch"]
    sent = people.upload(
        installation, dataset, packed, form=BodyForm.GZIP, principal=STRANGER
    )
    elsewhere = people.upload(installation, other, packed, form=BodyForm.GZIP)
    assert sent["warnings"] == elsewhere["warnings"] == []
    stored = [
        *stored_uploads(installation, dataset, [first, sent["epoch"]]).values(),
        *stored_uploads(installation, other, [elsewhere["epoch"]]).values(),
    ]
    assert len({upload.cells for upload in stored}) == len(stored), (
        "a digest says nothing to another key or dataset"
    )


def stored_uploads(
    installation: Installation, dataset: str, epochs: list[str]
) -> dict[str, row_layout.StoredUpload]:
    key = people.data_key(installation, dataset)
    return row_layout.stored_uploads(installation.files, dataset, epochs, key=key)


def test_a_copy_is_judged_by_its_own_rows_and_never_by_those_that_are_stored(
    installation: Installation,
) -> None:
    """Else the list of uploads, which is public, would say something about rows of
    other uploads.
    """
    dataset = declared(installation, max_rows=1)
    people.upload(installation, dataset, b"patient,age,income,ward\nann,1,low,north\n")
    over = people.upload(
        installation, dataset, b"patient,age,income,ward\nann,2,low,north\n"
    )
    also_over = people.upload(
        installation, dataset, b"patient,age,income,ward\nann,3,low,north\n"
    )
    assert (over["rows"], also_over["rows"]) == (0, 0)


def test_an_erased_upload_is_no_longer_recognised(installation: Installation) -> None:
    dataset = declared(installation)
    first = people.upload(installation, dataset, ROWS)["epoch"]
    erase_upload(installation, OWNER, dataset, upload=first)
    assert stored_uploads(installation, dataset, [first])[first].cells is None
    assert (
        people.upload(installation, dataset, gzip.compress(ROWS), form=BodyForm.GZIP)[
            "rows"
        ]
        == 3
    )


def test_an_upload_is_recognised_after_the_erasure_of_a_person(
    installation: Installation,
) -> None:
    """As an equal body is: the rows of the person would come back."""
    dataset = declared(installation)
    first = people.upload(installation, dataset, ROWS)["epoch"]
    before = stored_uploads(installation, dataset, [first])[first]
    assert erase_unit(installation, OWNER, dataset, unit="bob").erased == 1
    after = stored_uploads(installation, dataset, [first])[first]
    assert (after.body, after.cells, after.n_rows) == (
        before.body,
        before.cells,
        before.n_rows - 1,
    )
    for body, form in ((ROWS, BodyForm.CSV), (gzip.compress(ROWS), BodyForm.GZIP)):
        with pytest.raises(UploadRepeated):
            people.upload(installation, dataset, body, form=form)


def test_the_digests_are_in_no_text_of_an_upload() -> None:
    assert "12345" not in repr(row_layout.StoredUpload(1, b"12345", b"12345"))
