"""Columns are declared anew until something follows from them; the change is an act that
the verifier checks.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import rfc8785

from app.access.idempotency import IdempotentRequest
from app.core.errors import (
    ChangedMeanwhile,
    DatasetDeleted,
    DeclarationFixed,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from app.datasets.upload_bodies import BodyForm
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services.datasets import change, upload
from app.services.datasets.change import change_columns
from app.services.datasets.declare import check_declaration, register_dataset
from app.services.datasets.erase import delete_dataset, erase_upload
from app.services.datasets.membership import join_population
from app.services.datasets.show import columns_etag, show_dataset
from app.services.ledger.audit import export_acts
from app.services.ledger.external import charge_external
from app.services.releases import requests
from app.services.spending import spend
from app.wire.datasets import DatasetIn, DatasetOut, SchemaIn
from app.wire.reservations import ExternalIn
from app.wire.training import PlanIn, TrainIn
from grovekeeper_verifier import control_export
from tests.support.asking import show_plan, submit_training
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

AGE: dict[str, Any] = {"name": "age", "type": "integer", "lower": 0, "upper": 110}
SEX: dict[str, Any] = {
    "name": "sex",
    "type": "categorical",
    "categories": ["f", "m"],
    "missing": True,
}
SCHEMA: dict[str, Any] = {
    "features": [AGE, SEX],
    "label": {"name": "income", "classes": ["low", "high"]},
}
DECLARATION: dict[str, Any] = {
    "name": "clinic",
    "schema": SCHEMA,
    "budget": {"accountant": "pure", "epsilon": "3"},
    "privacy_unit": {"column": "person", "max_rows": 2},
    "partitions": [
        {"name": "shard", "kind": "hash", "cells": 4},
        {
            "name": "sex",
            "kind": "column",
            "column": "sex",
            "sizes": [
                {"cell": "f", "rows": 10},
                {"cell": "m", "rows": 20},
                {"cell": "OTHER", "rows": 0},
                {"cell": "MISSING", "rows": 0},
            ],
        },
        {"name": "site", "kind": "column", "column": "site", "categories": ["a", "b"]},
        {"name": "month", "kind": "epoch", "how": "by month"},
    ],
}
ROWS = b"age,sex,income,person,site\n30,f,low,ann,a\n"


def _declared(scene: Scene, **changes: object) -> DatasetOut:
    body = DatasetIn.model_validate(DECLARATION | changes)
    answer = register_dataset(scene.installation, OWNER, body, request=None)
    return DatasetOut.model_validate_json(answer.body)


def _tag(shown: DatasetOut) -> str:
    return columns_etag(shown.schema_)


def _other(**changes: object) -> SchemaIn:
    """The columns with another name, bound and class."""
    schema = deepcopy(SCHEMA)
    schema["features"][0] |= {"name": "years", "upper": 120}
    schema["label"]["classes"] = ["low", "middle", "high"]
    return SchemaIn.model_validate(schema | changes)


def _change(scene: Scene, columns: SchemaIn, **options: Any) -> DatasetOut:
    return change_columns(scene.installation, OWNER, "clinic", columns, **options)


def _upload(scene: Scene, rows: bytes = ROWS) -> None:
    body = upload.SpooledBody(
        io.BytesIO(rows),
        upload.UploadTerms(BodyForm.CSV),
        hashlib.sha256(rows).digest(),
    )
    upload.upload_rows(scene.installation, OWNER, "clinic", body, request=None)


def _charge(scene: Scene) -> None:
    body = ExternalIn.model_validate(
        {
            "description": "a mean",
            "per": "row",
            "declared": {"adjacency": "add_remove", "epsilon": "0.1"},
        }
    )
    request = IdempotentRequest(OWNER.key_id, "POST", "first", b"." * 32)
    charge_external(scene.installation, OWNER, "clinic", body, request=request)


def _acts(scene: Scene) -> list[dict[str, Any]]:
    with scene.installation.database.read() as session:
        return control.details_of(session, EntryKind.DATASET_CHANGED)


def test_a_change_is_an_act_with_both_digests_that_the_verifier_checks(
    scene: Scene,
) -> None:
    before = _declared(scene)
    after = _change(scene, _other())
    assert after.schema_["features"][0]["name"] == "years"
    assert _tag(after) != _tag(before)
    same = {"schema_"}
    assert after.model_dump(exclude=same) == before.model_dump(exclude=same)
    assert show_dataset(scene.installation, OWNER, "clinic") == after
    digests = [
        hashlib.sha256(rfc8785.dumps(shown.schema_)).hexdigest()
        for shown in (before, after)
    ]
    (act,) = _acts(scene)
    assert act == {"dataset": after.id, "before": digests[0], "after": digests[1]}
    lines = b"".join(export_acts(scene.installation, ADMIN)).splitlines(keepends=True)
    assert control_export.verify(lines).kinds["dataset-changed"] == 1
    _upload(scene, ROWS.replace(b"age", b"years").replace(b"low", b"middle"))


def test_the_columns_in_force_change_nothing_at_any_time(scene: Scene) -> None:
    declared = _declared(scene)
    _upload(scene)
    same = _change(scene, SchemaIn.model_validate(SCHEMA))
    assert same.schema_ == declared.schema_
    assert not _acts(scene)


def _join(scene: Scene) -> None:
    join_population(scene.installation, OWNER, "clinic", population="people")


def _upload_and_erase(scene: Scene) -> None:
    _upload(scene)
    (epoch,) = show_dataset(scene.installation, OWNER, "clinic").epochs
    erase_upload(scene.installation, OWNER, "clinic", upload=epoch.epoch)


@pytest.mark.parametrize(
    ("fixes", "because"),
    [
        (_upload, "rows were uploaded"),
        (_upload_and_erase, "rows were uploaded"),
        (_charge, "reserved or charged"),
        (_join, "member of a population"),
    ],
)
def test_a_change_is_refused_once_something_follows_from_the_columns(
    scene: Scene, fixes: Any, because: str
) -> None:
    declared = _declared(scene)
    fixes(scene)
    with pytest.raises(DeclarationFixed, match=because) as refused:
        _change(scene, _other())
    assert "declare another dataset" in str(refused.value)
    assert show_dataset(scene.installation, OWNER, "clinic").schema_ == declared.schema_
    assert not _acts(scene)


@pytest.mark.parametrize(
    "features",
    [
        [AGE],
        [AGE, SEX | {"categories": ["f", "m", "x"]}],
        [AGE, SEX | {"categories": ["m", "f"]}],
        [AGE, SEX | {"missing": False}],
        [AGE, {**AGE, "name": "sex"}],
        [AGE, SEX, {**AGE, "name": "person"}],
        [AGE, SEX, {**SEX, "name": "site", "categories": ["a", "b"]}],
    ],
)
def test_unit_and_partitions_stay(scene: Scene, features: list[dict[str, Any]]) -> None:
    _declared(scene)
    with pytest.raises(InvalidRequest) as refused:
        _change(scene, _other(features=features))
    (error,) = refused.value.errors
    assert (error.at, error.problem) == ("/schema", "changes-more-than-columns")
    assert not _acts(scene)


def test_a_name_like_that_of_an_identifier_is_a_warning_of_declaration_and_quote(
    scene: Scene,
) -> None:
    features = [AGE, {**AGE, "name": "patient_id"}]
    without = {"privacy_unit": {"column": None, "max_rows": 1}, "partitions": []}
    body = DECLARATION | {"schema": SCHEMA | {"features": features}, **without}
    checked = check_declaration(
        scene.installation, OWNER, DatasetIn.model_validate(body)
    )
    declared = _declared(scene, **body)
    (warning,) = declared.warnings
    assert "patient_id" in warning
    assert "in a new declaration" in warning  # the unit of this one never changes
    assert checked.warnings == [warning.replace(" in a new declaration", "")]
    assert "--unit" in warning
    plan = PlanIn.model_validate({"dataset": "clinic", "epsilon": "0.1"})
    assert warning in show_plan(scene.installation, OWNER, plan).warnings
    mended = _change(scene, SchemaIn.model_validate(SCHEMA | {"features": [AGE]}))
    assert not mended.warnings


def test_the_columns_obey_the_rules_of_a_declaration(scene: Scene) -> None:
    _declared(scene)
    features = [AGE | {"lower": 120}, SEX, SEX]
    with pytest.raises(InvalidRequest) as refused:
        _change(scene, _other(features=features))
    assert {(error.at, error.problem) for error in refused.value.errors} == {
        ("/schema/features/0/lower", "above-upper"),
        ("/schema/features/2/name", "not-distinct"),
    }


def test_only_owners_change_what_they_have_seen_of_a_living_dataset(
    scene: Scene,
) -> None:
    seen = frozenset({_tag(_declared(scene))})
    with pytest.raises(NotFound):
        change_columns(scene.installation, STRANGER, "clinic", _other())
    _change(scene, _other(), condition=seen)
    late = SchemaIn.model_validate(SCHEMA)
    with pytest.raises(ChangedMeanwhile):
        _change(scene, late, condition=seen)
    _change(scene, _other(), condition=seen)  # repeated: changes nothing
    delete_dataset(scene.installation, OWNER, "clinic")
    with pytest.raises(DatasetDeleted):
        _change(scene, late)
    assert len(_acts(scene)) == 1


def test_the_columns_in_force_are_answered_without_a_write(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = _declared(scene)
    monkeypatch.delattr(change, "write_as")
    assert _change(scene, SchemaIn.model_validate(SCHEMA)) == declared


def test_large_columns_are_hashed_and_shown_while_others_may_write(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite, every writer waits for the transaction of a change."""
    _declared(scene)
    writing: list[str] = []
    begin = change.write_as

    @contextmanager
    def noted(*asked: Any) -> Iterator[Any]:
        with begin(*asked) as begun:
            writing.append("now")
            yield begun
        writing.clear()

    monkeypatch.setattr(change, "write_as", noted)
    slow = (
        "_checked",
        "_written",
        "_digest",
        "columns_etag",
        "same_columns",
        "dataset_out",
    )
    called = set()

    def watched(name: str, work: Any) -> Any:
        def run(*values: Any, **options: Any) -> Any:
            assert not writing, name
            called.add(name)
            return work(*values, **options)

        return run

    for name in slow:
        monkeypatch.setattr(change, name, watched(name, getattr(change, name)))
    _change(scene, _other())
    assert called == set(slow)


@pytest.mark.parametrize(
    ("with_tag", "refusal"), [(False, Unavailable), (True, ChangedMeanwhile)]
)
def test_of_two_changes_at_once_the_later_is_refused(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    with_tag: bool,
    refusal: type[Exception],
) -> None:
    tag = _tag(_declared(scene))
    check = change._checked

    def change_meanwhile(*asked: Any) -> Any:
        monkeypatch.undo()
        _change(scene, _other())
        return check(*asked)

    monkeypatch.setattr(change, "_checked", change_meanwhile)
    later = _other(label={"name": "wage", "classes": ["low", "high"]})
    with pytest.raises(refusal):
        _change(scene, later, condition=frozenset({tag}) if with_tag else None)
    shown = show_dataset(scene.installation, OWNER, "clinic")
    assert shown.schema_["label"]["name"] == "income"
    assert len(_acts(scene)) == 1


def test_a_change_to_the_columns_of_another_dataset_warns_that_losses_add_up(
    scene: Scene,
) -> None:
    _declared(scene)
    other = _declared(scene, name="ward", schema=_other().model_dump(exclude_none=True))
    (warning,) = _change(scene, _other()).warnings
    assert f"ward ({other.id})" in warning
    assert "their losses add up" in warning
    assert not _change(scene, _other()).warnings  # nothing changed


def test_an_upload_that_read_the_columns_before_a_change_is_not_stored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _declared(scene)
    ingest = upload._Upload._ingest

    def change_meanwhile(self: Any, body: Any) -> Any:
        report = ingest(self, body)
        _change(scene, _other())
        return report

    monkeypatch.setattr(upload._Upload, "_ingest", change_meanwhile)
    with pytest.raises(Unavailable, match="declaration changed"):
        _upload(scene)
    assert not show_dataset(scene.installation, OWNER, "clinic").epochs
    monkeypatch.undo()
    renamed = ROWS.replace(b"age", b"years")
    _upload(scene, renamed)


def test_old_columns_and_new_ones_are_shown_as_json(scene: Scene) -> None:
    """A column without a declared bound stays one number, however it was written."""
    _declared(scene)
    features = [{**AGE, "upper": 1e300}, SEX]
    shown = _change(scene, _other(features=features))
    assert json.loads(json.dumps(shown.schema_))["features"][0]["upper"] == 1e300
    assert _change(scene, _other(features=features)).schema_ == shown.schema_


def _submit(scene: Scene) -> None:
    body = TrainIn(dataset="clinic", algorithm="rdt-ta", epsilon="0.1")  # type: ignore[arg-type]
    request = IdempotentRequest(OWNER.key_id, "POST /train", "one", b"." * 32)
    submit_training(scene.installation, OWNER, body, request=request)


def _change_and_upload(scene: Scene) -> None:
    _change(scene, _other())
    _upload(scene, ROWS.replace(b"age", b"years"))


def test_a_job_that_was_planned_before_a_change_is_not_accepted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _declared(scene)
    plan = requests._planned_before

    def change_after(*asked: Any) -> Any:
        planned = plan(*asked)
        _change_and_upload(scene)
        return planned

    monkeypatch.setattr(requests, "_planned_before", change_after)
    with pytest.raises(Unavailable, match="changed while the job was planned"):
        _submit(scene)
    monkeypatch.undo()
    _submit(scene)


def test_a_job_that_waits_for_the_locks_of_a_change_is_not_accepted(
    postgresql_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite, no transaction changes anything between the reading and the locks."""
    scene = postgresql_scene
    _declared(scene)
    authorize = spend.Opened.authorize

    def change_after(self: Any, *asked: Any) -> Any:
        authorized = authorize(self, *asked)
        with ThreadPoolExecutor(1) as other:
            other.submit(_change_and_upload, scene).result(60)
        return authorized

    monkeypatch.setattr(spend.Opened, "authorize", change_after)
    with pytest.raises(Unavailable, match="changed while the job was planned"):
        _submit(scene)
    monkeypatch.undo()
    _submit(scene)
