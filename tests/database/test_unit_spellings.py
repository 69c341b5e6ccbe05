"""One person is one privacy unit in every format, at an erasure and in hash cells,
however an export spells them.
"""

import io
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core import limits
from app.core.errors import (
    CellsUnread,
    InvalidRequest,
    NoRowsOfUnit,
    RowsInvalid,
    UnreadColumn,
)
from app.datasets import ingest
from app.datasets.unit_names import RAW
from app.datasets.upload_bodies import BodyForm
from app.services.datasets import declare
from app.services.datasets.show import show_dataset
from app.services.datasets.unit_erasure import erase_unit
from app.services.installation import Installation
from grovekeeper_common import suspicions
from tests.support import people
from tests.support.crash_scene import ADMIN, OWNER
from tests.support.databases import on_one_database

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

SPELLINGS = ["17", "17 ", " 17", "\t17", "\uff11\uff17", "17\u200b", "\ufeff17"]


def of_form(form: str | None, max_rows: int = 1) -> dict[str, object]:
    return people.per_patient(max_rows) | ({} if form is None else {"form": form})


def table(names: list[str], form: BodyForm) -> bytes:
    rows = pa.table(
        {
            "patient": names,
            "age": list(range(len(names))),
            "income": ["low"] * len(names),
        }
    )
    file = io.BytesIO()
    if form is BodyForm.PARQUET:
        pq.write_table(rows, file)
    else:
        with pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows)
    return file.getvalue()


def body(names: list[str], form: BodyForm) -> bytes:
    if form is BodyForm.CSV:
        return people.visits([(f'"{name}"', age) for age, name in enumerate(names)])
    return table(names, form)


@on_one_database
@pytest.mark.parametrize(
    "form", [BodyForm.CSV, BodyForm.PARQUET, BodyForm.ARROW_STREAM]
)
@pytest.mark.parametrize("typed", ["17", "\u200b17 "])
def test_one_person_has_one_row_and_an_erasure_erases_it(
    installation: Installation, form: BodyForm, typed: str
) -> None:
    dataset = people.declared(
        installation,
        privacy_unit=of_form(None),
        partitions=[{"name": "shard", "kind": "hash", "cells": 1000}],
    )
    assert dataset["privacy_unit"] == {
        "column": "patient",
        "form": "text",
        "max_rows": 1,
    }
    report = people.upload(
        installation, dataset["id"], body([*SPELLINGS, "017"], form), form=form
    )
    assert report["rows"] == 2
    assert report["dropped"] == {"without_unit": 0, "over_bound": len(SPELLINGS) - 1}
    assert report["warnings"][0].startswith(
        "2 values of the unit column differ from another value"
    )
    assert erase_unit(installation, OWNER, dataset["id"], unit=typed).erased == 1
    assert [len(rows) for rows in people.stored_rows(installation, dataset["id"])] == [
        1
    ]


def test_an_admin_without_the_grant_learns_no_number_of_similar_values(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("text", 9))["id"]
    report = people.upload(
        installation, dataset, body([*SPELLINGS, "017"], BodyForm.CSV), principal=ADMIN
    )
    assert (report["rows"], report["warnings"]) == (None, [])


def test_rows_of_one_person_in_several_spellings_are_in_one_cell(
    installation: Installation,
) -> None:
    dataset = people.declared(
        installation,
        privacy_unit=of_form("text", 9),
        partitions=[{"name": "shard", "kind": "hash", "cells": 1000}],
    )["id"]
    people.upload(installation, dataset, body(SPELLINGS, BodyForm.CSV))
    (rows,) = people.stored_rows(installation, dataset)
    assert len({row_id for row_id, _ in rows}) == 1, (
        "the cell is a function of the row id"
    )


@on_one_database
@pytest.mark.parametrize("form", [BodyForm.CSV, BodyForm.PARQUET])
@pytest.mark.parametrize("name", ["017", "17 ", "+17", "17.0", "\uff11\uff17"])
def test_another_spelling_of_an_integer_is_refused_with_its_row(
    installation: Installation, form: BodyForm, name: str
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("integer"))["id"]
    with pytest.raises(RowsInvalid) as refused:
        people.upload(installation, dataset, body(["1", "20", name], form), form=form)
    (column,) = refused.value.columns
    assert (column.name, column.problem, column.count, column.row) == (
        "patient",
        "not-a-plain-integer",
        1,
        3,
    )
    assert people.stored_rows(installation, dataset) == []
    with pytest.raises(InvalidRequest) as mistyped:
        erase_unit(installation, OWNER, dataset, unit=name)
    assert [(error.at, error.problem) for error in mistyped.value.errors] == [
        ("/unit", "not-a-plain-integer")
    ]


@on_one_database
def test_integers_of_parquet_and_text_of_csv_are_one_person(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("integer"))["id"]
    people.upload(installation, dataset, body(["17", "0"], BodyForm.CSV))
    file = io.BytesIO()
    pq.write_table(
        pa.table({"patient": [17, 5], "age": [1, 2], "income": ["low", "low"]}), file
    )
    report = people.upload(
        installation, dataset, file.getvalue(), form=BodyForm.PARQUET
    )
    assert report["dropped"] == {"without_unit": 0, "over_bound": 1}


@on_one_database
@pytest.mark.parametrize("name", ["", " ", "\u200b"])
def test_a_name_of_nothing_is_no_person(installation: Installation, name: str) -> None:
    dataset = people.declared(installation, privacy_unit=of_form(None))["id"]
    report = people.upload(installation, dataset, body(["1", name], BodyForm.CSV))
    assert report["dropped"] == {"without_unit": 1, "over_bound": 0}
    with pytest.raises(InvalidRequest):
        erase_unit(installation, OWNER, dataset, unit=name)


@on_one_database
@pytest.mark.parametrize(
    "form", [BodyForm.CSV, BodyForm.PARQUET, BodyForm.ARROW_STREAM]
)
@pytest.mark.parametrize("unit_form", ["text", None])
def test_marks_for_missing_names_are_no_person_unless_the_owner_insists(
    installation: Installation, form: BodyForm, unit_form: str | None
) -> None:
    with nullcontext() if unit_form else _of_an_earlier_version():
        dataset = people.declared(installation, privacy_unit=of_form("text", 2))["id"]
    people.upload(installation, dataset, body(["ann"], form), form=form)
    stored = people.row_files_of(installation, dataset)
    names = ["z1", "NA", "", "NA", "nan", "-"]
    with pytest.raises(CellsUnread) as refused:
        people.upload(installation, dataset, body(names, form), form=form)
    assert refused.value.columns == [
        UnreadColumn("patient", "missing-mark", 4, 66.7, row=2)
    ]
    assert refused.value.columns[0].suspected == suspicions.MARK
    assert people.row_files_of(installation, dataset) == stored, "nothing is stored"
    report = people.upload(
        installation, dataset, body(names, form), form=form, accept_unknown=True
    )
    assert (report["rows"], report["dropped"]) == (
        5,
        {"without_unit": 1, "over_bound": 0},
    ), "and no place was taken"


@on_one_database
@pytest.mark.parametrize(
    "mark",
    [
        "NA",
        "N/A",
        "#N/A",
        "nan",
        "NaN",
        "NULL",
        "null",
        "None",
        "-",
        ".",
        "\uff2e\uff21",
        "NA ",
    ],
)
def test_a_refusal_for_a_mark_depends_on_the_body_alone(
    installation: Installation, mark: str
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("text"))["id"]
    people.upload(
        installation, dataset, body(["ann", mark], BodyForm.CSV), accept_unknown=True
    )
    with pytest.raises(CellsUnread):
        people.upload(installation, dataset, body(["ann", mark, "ben"], BodyForm.CSV))


WRITTEN_FOR_A_MISSING_VALUE = (
    "#NULL! #NULL (null) [NULL] <null> #NA -nan -NaN 1.#QNAN -1.#IND #VALUE! #REF! #DIV/0! #NAME? #NUM! # ######## #NV "
    "#N/D ._ .A .z missing undefined N.A. UNKNOWN"
)


@on_one_database
@pytest.mark.parametrize("mark", ["#N/A N/A", *WRITTEN_FOR_A_MISSING_VALUE.split()])
def test_marks_of_databases_statistics_programs_and_spreadsheets_are_no_person(
    installation: Installation, mark: str
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("text"))["id"]
    with pytest.raises(CellsUnread) as refused:
        people.upload(
            installation, dataset, body(["ann", mark, "ben", mark, mark], BodyForm.CSV)
        )
    assert refused.value.columns == [
        UnreadColumn("patient", "missing-mark", 3, 60.0, row=2)
    ]


@on_one_database
@pytest.mark.parametrize("form", ["text", "integer"])
def test_one_value_with_many_rows_over_the_bound_is_a_warning_that_does_not_name_it(
    installation: Installation, form: str
) -> None:
    """No list has every mark: 0, 999 and "withheld" are people where nothing says
    otherwise.
    """
    dataset = people.declared(installation, privacy_unit=of_form(form, 2))["id"]
    names = ["1", "999", "", "2", "2", "2", *["999"] * 22, "3"]
    report = people.upload(installation, dataset, body(names, BodyForm.CSV))
    assert report["dropped"] == {"without_unit": 1, "over_bound": 22}
    (warning,) = report["warnings"]
    assert warning.startswith(
        "One value of the unit column has 21 rows beyond the bound, the first in row 8; they were"
    )
    assert "999" not in warning


@on_one_database
@pytest.mark.parametrize(("n_rows", "n_others"), [(22, 0), (30, 3000)])
def test_few_rows_over_the_bound_are_no_warning(
    installation: Installation, n_rows: int, n_others: int
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("integer", 2))["id"]
    names = ["999"] * n_rows + [str(number) for number in range(1000, 1000 + n_others)]
    report = people.upload(
        installation, dataset, body(names, BodyForm.CSV), accept_unknown=True
    )
    assert report["warnings"] == []


def test_who_is_no_owner_by_a_grant_reads_no_warning_about_units(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("integer"))["id"]
    report = people.upload(
        installation, dataset, body(["999"] * 40, BodyForm.CSV), principal=ADMIN
    )
    assert (report["rows"], report["dropped"], report["warnings"]) == (None, None, [])


@on_one_database
def test_a_value_with_many_rows_is_found_among_units_with_a_row_over_the_bound(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("integer"))["id"]
    names = [str(number) for number in range(1, 2001) for _ in range(2)]
    names[1::40] = ["0"] * 100
    with (
        patch.object(limits, "MAX_BLOCK_ROWS", 500),
        patch.object(ingest, "_KEPT_UNITS", 10),
    ):
        report = people.upload(
            installation, dataset, body(names, BodyForm.CSV), accept_unknown=True
        )
    (warning,) = report["warnings"]
    assert warning.startswith(
        "One value of the unit column has 99 rows beyond the bound, the first in row 42; they were"
    )


@on_one_database
def test_a_name_that_contains_a_mark_is_a_name(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("text"))["id"]
    names = ["NA1", "Ann-Na", "0", "n a", "nano", "-1", "#1", ".ab", "#NULL!x", "null!"]
    assert people.upload(installation, dataset, body(names, BodyForm.CSV))[
        "rows"
    ] == len(names)


@on_one_database
@pytest.mark.parametrize("form", [BodyForm.CSV, BodyForm.PARQUET])
def test_a_mark_among_integers_is_the_suspected_cause(
    installation: Installation, form: BodyForm
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("integer"))["id"]
    with pytest.raises(RowsInvalid) as refused:
        people.upload(installation, dataset, body(["1", "NA"], form), form=form)
    (column,) = refused.value.columns
    assert (column.problem, column.row, column.suspected) == (
        "not-a-plain-integer",
        2,
        suspicions.MARK,
    )


@on_one_database
def test_spellings_of_a_number_are_counted_and_an_erasure_says_what_it_left(
    installation: Installation,
) -> None:
    """pandas writes 17.0 for 17 where the column has a gap."""
    dataset = people.declared(installation, privacy_unit=of_form("text", 2))["id"]
    names = ["17", "17.0", "17", "17.0", "5", "170"]
    report = people.upload(installation, dataset, body(names, BodyForm.CSV))
    assert (report["rows"], report["warnings"][0][:8]) == (6, "2 values")
    names = ["4711", "4.711E+03", "+4711", "4711.0", "4,711", "017", "47"]
    report = people.upload(installation, dataset, body(names, BodyForm.CSV))
    assert report["warnings"][0][:8] == "5 values"
    erased = erase_unit(installation, OWNER, dataset, unit="17")
    assert (erased.erased, erased.similar_units) == (2, 2)
    erased = erase_unit(installation, OWNER, dataset, unit="17.0")
    assert (erased.erased, erased.similar_units) == (2, 1)
    assert erase_unit(installation, ADMIN, dataset, unit="4711").similar_units is None
    assert erase_unit(installation, OWNER, dataset, unit="4,711").similar_units == 3
    assert erase_unit(installation, OWNER, dataset, unit="5").similar_units == 0


@on_one_database
def test_a_refused_erasure_tells_an_owner_what_is_spelt_alike(
    installation: Installation,
) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("text", 2))["id"]
    names = ["00003", "3.0", "Ann"]
    people.upload(installation, dataset, body(names, BodyForm.CSV))
    for unit, n_similar in (("3", 2), ("ann", 1), ("nobody", 0)):
        with pytest.raises(NoRowsOfUnit) as refused:
            erase_unit(installation, OWNER, dataset, unit=unit)
        assert refused.value.similar_units == n_similar
        with pytest.raises(NoRowsOfUnit) as refused:
            erase_unit(installation, ADMIN, dataset, unit=unit)
        assert refused.value.similar_units is None


@on_one_database
def test_an_erased_integer_has_no_similar_unit(installation: Installation) -> None:
    dataset = people.declared(installation, privacy_unit=of_form("integer"))["id"]
    people.upload(installation, dataset, body(["17", "170"], BodyForm.CSV))
    erased = erase_unit(installation, OWNER, dataset, unit="17")
    assert (erased.erased, erased.similar_units) == (1, 0)


def test_a_form_needs_a_column(installation: Installation) -> None:
    with pytest.raises(InvalidRequest):
        people.declared(installation, privacy_unit={"column": None, "form": "text"})


def test_a_dataset_of_an_earlier_version_keeps_every_spelling_and_says_so(
    installation: Installation,
) -> None:
    with _of_an_earlier_version():
        dataset = people.declared(installation, privacy_unit=of_form(None))["id"]
    assert show_dataset(installation, OWNER, dataset).privacy_unit["form"] == RAW
    report = people.upload(
        installation, dataset, body(["17", "17 ", " 17"], BodyForm.CSV)
    )
    assert report["dropped"] == {"without_unit": 0, "over_bound": 0}
    assert erase_unit(installation, OWNER, dataset, unit="17").erased == 1
    assert erase_unit(installation, OWNER, dataset, unit="17 ").erased == 1


def _of_an_earlier_version() -> AbstractContextManager[object]:
    """Declarations store units without a form, in the dataset, in the account and in
    its first entry.
    """
    return patch.object(
        declare,
        "_stored_unit",
        lambda unit: {"column": unit.column, "max_rows": unit.max_rows},
    )
