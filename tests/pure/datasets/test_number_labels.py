"""A label that is a number is stored as a part of its range by one function on every way
in, and its bounds are part of what a stored file means.
"""

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InstallationError, RowsInvalid
from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.datasets.upload_bodies import BodyForm
from grovekeeper_common.dictionaries import draft_declaration
from grovekeeper_forests.data.sanitiser import (
    codes_of_numbers,
    numbers_of_codes,
    written_numbers,
)
from grovekeeper_forests.data.schema import TARGET_STEPS, Label, Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support.columnar import body_of
from tests.support.uploads import Ingestion, stored_table

LABEL = {"name": "los_days", "type": "number", "lower": 0, "upper": 60}
STATED: dict[str, Any] = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 120}],
    "label": LABEL,
}
SCHEMA = Schema.from_json(STATED)
DAYS = [-1, 0, 0.1, 5, 30, 59.99, 60, 400, math.inf, -math.inf, None]
PARTS = [min(max(day, 0), 60) for day in DAYS[:-1] if day is not None]
CODES = [round(Fraction(part) / 60 * TARGET_STEPS) for part in PARTS] + [-1]


@pytest.fixture
def ingest(tmp_path: Path) -> Ingestion:
    return Ingestion(tmp_path, SCHEMA)


def _codes(
    ingest: Ingestion,
    body: str | bytes,
    **options: Any,
) -> list[int]:
    ingest(body, **options)
    return list(stored_table(ingest.destination).column("label").to_pylist())


def _csv(cells: list[str]) -> str:
    return "".join(["age,los_days\n", *(f"40,{cell}\n" for cell in cells)])


def test_a_label_is_read_as_it_is_written() -> None:
    assert SCHEMA.to_json()["label"] == LABEL
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA
    assert (SCHEMA.n_classes, SCHEMA.label.n_codes) == (0, TARGET_STEPS + 1)
    wider = Schema.from_json({**STATED, "label": {**LABEL, "upper": 61}})
    assert not wider.reads_like(SCHEMA)
    assert wider.has_features_of(SCHEMA)
    renamed = Schema.from_json({**STATED, "label": {**LABEL, "name": "stay"}})
    assert renamed.reads_like(SCHEMA)


def test_a_schema_that_was_damaged_is_refused() -> None:
    for bounds in ((math.nan, 1.0), (0.0, math.inf), (1.0, 0.0), (-1.7e308, 1.7e308)):
        damaged = replace(SCHEMA, label=Label("los_days", bounds=bounds))
        with pytest.raises(ParameterInvalid):
            Schema.from_json(damaged.to_json())


@pytest.mark.parametrize(
    "form",
    [BodyForm.CSV, BodyForm.PARQUET, BodyForm.ARROW_FILE],
)
def test_every_form_of_a_file_stores_the_same_parts(
    ingest: Ingestion, form: BodyForm
) -> None:
    cells = ["" if day is None else str(day) for day in DAYS]
    table = pa.table({"age": [40] * len(DAYS), "los_days": pa.array(DAYS)})
    body = _csv(cells) if form is BodyForm.CSV else body_of(table, form)
    assert _codes(ingest, body, form=form) == CODES
    assert ingest.read().y.tolist() == [code for code in CODES if code >= 0]


def test_a_number_out_of_bounds_is_reported_and_clamped(ingest: Ingestion) -> None:
    report = ingest(_csv(["-1", "61", "60", "", "nan"]))
    label = report.columns[-1]
    assert (label.clamped, label.unknown) == (2, 2)


def test_statistics_read_the_number_that_was_written(ingest: Ingestion) -> None:
    ingest(_csv(["5", "", "0.1", "400"]))
    selection = Selection(SCHEMA, ingest.partitions, WHOLE, keep_unlabelled=True)
    (block,) = private_rows.read_columns(
        [ingest.destination],
        selection,
        {"los_days"},
    )
    numbers = block.columns["los_days"].tolist()
    assert [numbers[0], numbers[2], numbers[3]] == [5.0, 0.1, 60.0]
    assert math.isnan(numbers[1])


def test_a_file_by_other_bounds_is_not_read(ingest: Ingestion) -> None:
    ingest(_csv(["5"]))
    wider = Schema.from_json({**STATED, "label": {**LABEL, "upper": 61}})
    with pytest.raises(InstallationError):
        private_rows.read(
            [ingest.destination], Selection(wider, ingest.partitions, WHOLE)
        )


@given(
    st.floats(-1e9, 1e9),
    st.floats(1e-6, 1e9),
    st.lists(
        st.floats(allow_nan=True),
        min_size=1,
        max_size=20,
    ),
)
def test_codes_are_record_wise_total_and_nearest(
    lower: float, width: float, values: list[float]
) -> None:
    label = Label("y", bounds=(lower, lower + width))
    if not lower < lower + width:
        return
    cells = np.array(values)
    codes = codes_of_numbers(label, cells)
    assert codes.dtype == np.int32
    for value, code in zip(values, codes.tolist(), strict=True):
        alone = codes_of_numbers(label, np.array([value]))
        assert alone.tolist() == [code]
        assert (code == -1) is math.isnan(value)
        assert -1 <= code <= TARGET_STEPS
    known = codes >= 0
    clamped = np.clip(cells[known], lower, lower + width)
    step = width / TARGET_STEPS
    # half a part, and the rounding of floats beside large bounds
    slack = 0.5 * step + 8 * np.spacing(abs(lower) + width)
    assert np.all(np.abs(numbers_of_codes(label, codes[known]) - clamped) <= slack)


@given(
    st.integers(0, 60_000),
    st.sampled_from([1, 10, 100, 1_000]),
)
def test_a_decimal_is_read_back_exactly(whole: int, unit: int) -> None:
    value = min(whole / unit, 60.0)
    codes = codes_of_numbers(SCHEMA.label, np.array([value]))
    assert written_numbers(SCHEMA.label, codes).tolist() == [value]


def test_whole_numbers_are_declared_and_fractions_refused(tmp_path: Path) -> None:
    whole = Schema.from_json({**STATED, "label": {**LABEL, "type": "integer"}})
    assert whole.label.is_whole
    assert whole.to_json()["label"] == {**LABEL, "type": "integer"}
    ingest = Ingestion(tmp_path, whole)
    assert _codes(ingest, _csv(["5", "61", ""])) == [CODES[3], TARGET_STEPS, -1]
    (tmp_path / "other").mkdir()
    with pytest.raises(RowsInvalid) as refused:
        Ingestion(tmp_path / "other", whole)(_csv(["5.5"]))
    assert [each.problem for each in refused.value.columns] == ["not-an-integer"]
    wide = Label("cost", bounds=(0.0, 2.0**29), is_whole=True)
    codes = codes_of_numbers(wide, np.array([123_456_789.0]))
    assert written_numbers(wide, codes).tolist() == [123_456_789.0]
    with pytest.raises(ParameterInvalid, match="not-an-integer"):
        Schema.from_json(
            {**STATED, "label": {**LABEL, "type": "integer", "upper": 60.5}}
        )


def test_a_draft_takes_the_bounds_of_the_dictionary() -> None:
    text = b"""{"fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}},
        {"name": "los_days", "type": "number", "constraints": {"minimum": 0, "maximum": 60}},
        {"name": "cost", "type": "number"}]}"""
    draft = draft_declaration(text, name="stays", labels={"los_days": ()})
    assert draft.declaration["schema"]["label"] == LABEL
    whole = draft_declaration(text, name="stays", labels={"age": ()})
    assert whole.declaration["schema"]["label"]["type"] == "integer"
    of_draft = json.dumps(whole.declaration).encode()
    assert draft_declaration(of_draft).declaration == whole.declaration
    gaps = draft_declaration(text, name="stays", labels={"cost": ()})
    label = gaps.declaration["schema"]["label"]
    assert label == {"name": "cost", "type": "number", "lower": None, "upper": None}
    places = [remark.at for remark in gaps.lacking]
    assert {"/schema/label/lower", "/schema/label/upper"} <= set(places)
    cut = draft_declaration(
        text,
        name="stays",
        labels={"los_days": (3, 7)},
    )
    assert cut.declaration["schema"]["label"] == {
        "name": "los_days",
        "cuts": [3, 7],
    }
    again = draft_declaration(
        b'{"name": "stays", "schema": {"features": [], "label": '
        b'{"name": "los_days", "type": "number", "lower": 0, "upper": 60}}}'
    )
    assert again.declaration["schema"]["label"] == LABEL
