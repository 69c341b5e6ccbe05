"""Several labels over the same rows: each is read, stored and counted by itself, and a
job reads one of them.
"""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from app.core.errors import InstallationError
from app.datasets import private_rows, row_layout
from app.datasets.fingerprints import RowHash
from app.datasets.private_rows import Selection
from grovekeeper_common.dictionaries import draft_declaration
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.support.uploads import KEY, Ingestion, stored_table

WHOLE = Scope({})
AGE = Feature("age", "integer", lower=0.0, upper=99.0)
ILL = Label("ill", ("no", "yes"))
BACK = Label("back", ("no", "yes"))
STAY = Label("los_days", ("below 3", "3 or more"), (3.0,))
SCHEMA = Schema((AGE,), ILL, (), (BACK, STAY))
BODY = "back,age,los_days,ill\nno,1,2,yes\n,2,4,no\nyes,3,,\nyes,4,9,no\n"


@pytest.fixture
def ingest(tmp_path: Path) -> Ingestion:
    ingestion = Ingestion(tmp_path, SCHEMA)
    report = ingestion(BODY)
    names = [column.name for column in report.columns]
    assert names == ["age", "ill", "back", "los_days"]
    assert [column.unknown for column in report.columns] == [0, 1, 1, 1]
    return ingestion


def test_a_schema_of_several_labels_is_read_as_it_is_written() -> None:
    written = SCHEMA.to_json()
    assert "label" not in written
    assert Schema.from_json(json.loads(json.dumps(written))).to_json() == written
    of_one = SCHEMA.with_label("back")
    assert of_one.to_json()["label"] == BACK.to_json()
    assert of_one.labels == (BACK,)
    assert SCHEMA.with_label(None) is SCHEMA
    with pytest.raises(ValueError, match="no such label"):
        SCHEMA.with_label("age")


def test_a_problem_names_the_label() -> None:
    wrong = Schema((AGE,), ILL, (), (BACK, Label("ill", ("no",))))
    with pytest.raises(ParameterInvalid) as refused:
        Schema.from_json(wrong.to_json())
    found = [(each.place[1:], each.problem) for each in refused.value.problems]
    assert found == [
        (("labels", 2, "name"), "not-distinct"),
        (("labels", 2, "classes"), "too-few"),
    ]


def test_labels_are_stored_beside_each_other(ingest: Ingestion) -> None:
    table = stored_table(ingest.destination)
    columns = [name for name in table.column_names if name.startswith("label")]
    assert columns == ["label", "label1", "label2"]
    codes = [table.column(name).to_pylist() for name in columns]
    assert codes == [[1, 0, -1, 0], [0, -1, 1, 1], [0, 1, -1, 1]]


@pytest.mark.parametrize(
    ("label", "ages", "classes"),
    [
        (None, [1, 2, 4], [1, 0, 0]),
        ("ill", [1, 2, 4], [1, 0, 0]),
        ("back", [1, 3, 4], [0, 1, 1]),
        ("los_days", [1, 2, 4], [0, 1, 1]),
    ],
)
def test_a_row_is_kept_by_the_label_that_is_read_alone(
    ingest: Ingestion, label: str | None, ages: list[int], classes: list[int]
) -> None:
    selection = Selection(SCHEMA, ingest.partitions, WHOLE, label=label)
    rows = private_rows.read([ingest.destination], selection)
    assert rows.features.columns[0].tolist() == ages
    assert rows.y.tolist() == classes
    (block,) = private_rows.read_columns(
        [ingest.destination], selection, {"age", label or "ill"}
    )
    assert block.columns["age"].tolist() == ages
    assert block.columns[label or "ill"].tolist() == classes
    every = Selection(
        SCHEMA, ingest.partitions, WHOLE, label=label, keep_unlabelled=True
    )
    kept = private_rows.read([ingest.destination], every)
    assert kept.features.n_rows == 4
    assert kept.y.tolist().count(-1) == 1


def test_a_job_that_names_one_label_cannot_read_another(ingest: Ingestion) -> None:
    of_one = Selection(SCHEMA, ingest.partitions, WHOLE, label="back")
    (block,) = private_rows.read_columns(
        [ingest.destination], of_one, {"back", "ill", "los_days"}
    )
    assert set(block.columns) == {"back"}
    every = Selection(SCHEMA, ingest.partitions, WHOLE, keep_unlabelled=True)
    (block,) = private_rows.read_columns(
        [ingest.destination], every, {"back", "ill", "los_days"}
    )
    assert set(block.columns) == {"back", "ill", "los_days"}


def test_each_of_several_labels_is_read_from_its_own_column(ingest: Ingestion) -> None:
    every = Selection(SCHEMA, ingest.partitions, WHOLE, keep_unlabelled=True)
    names = ["ill", "back", "los_days"]
    (block,) = private_rows.read_columns([ingest.destination], every, names)
    assert [block.columns[name].tolist() for name in names] == [
        [1, 0, -1, 0],
        [0, -1, 1, 1],
        [0, 1, -1, 1],
    ]


@pytest.mark.parametrize(
    "other",
    [
        Schema((AGE,), BACK, (), (ILL, STAY)),
        Schema((AGE,), ILL, (), (BACK,)),
        Schema((AGE,), ILL),
        Schema((AGE,), ILL, (), (BACK, Label("los_days", ("a", "b")))),
    ],
)
def test_rows_are_not_read_by_other_labels(ingest: Ingestion, other: Schema) -> None:
    """Equal classes do not make two labels one: a job would read what it did not name."""
    with pytest.raises(InstallationError):
        private_rows.read(
            [ingest.destination], Selection(other, ingest.partitions, WHOLE)
        )


def test_the_layout_of_one_label_is_what_it_was() -> None:
    form = row_layout.arrow_schema(Schema((AGE,), ILL), Partitions(()))
    assert form.names == ["f0", "label", "row_id"]


def test_every_label_is_in_the_fingerprint_of_a_row() -> None:
    ages = pa.array([1.0] * 4)
    ill = pa.array([0, 0, 0, 1], pa.int32())
    back = pa.array([0, 0, 1, 0], pa.int32())
    days = pa.array([4.0, 5.0, 4.0, 4.0])
    prints = RowHash(KEY, SCHEMA).of_rows([ages, ill, back, days])
    assert len(set(prints.tolist())) == 4


def _dictionary() -> bytes:
    fields = [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
        {"name": "los_days", "type": "number"},
        {"name": "ill", "type": "string", "constraints": {"enum": ["no", "yes"]}},
        {"name": "back", "type": "string"},
    ]
    return json.dumps({"name": "visits", "fields": fields}).encode()


def test_a_draft_has_several_labels() -> None:
    draft = draft_declaration(
        _dictionary(), labels={"ill": (), "los_days": (3, 7), "back": ()}
    )
    schema = draft.declaration["schema"]
    assert "label" not in schema
    assert schema["labels"] == [
        {"name": "ill", "classes": ["no", "yes"]},
        {"name": "los_days", "cuts": [3, 7]},
        {"name": "back", "classes": None},
    ]
    assert [feature["name"] for feature in schema["features"]] == ["age"]
    lacking = [remark.at for remark in draft.lacking]
    assert lacking == ["/schema/labels/2/classes", "/budget"]
    again = draft_declaration(json.dumps(draft.declaration).encode())
    assert again.declaration["schema"]["labels"] == schema["labels"]
    of_one = draft_declaration(
        json.dumps(draft.declaration).encode(), labels={"ill": ()}
    )
    features = {
        feature["name"]: feature["type"]
        for feature in of_one.declaration["schema"]["features"]
    }
    assert features == {"age": "integer", "los_days": "numeric", "back": "categorical"}
