"""A declaration is checked by the rules that declare it, and nothing of the check
stays.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, select

from app.core.errors import InvalidRequest, NameTaken
from app.db.base import Base
from app.ledger import reservations as ledger
from app.services.datasets.declare import check_declaration, register_dataset
from app.services.datasets.show import show_dataset
from app.services.ledger.balances import show_balance
from app.wire.datasets import DatasetIn
from app.wire.training import PlanIn
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support import reserving
from tests.support.asking import show_plan
from tests.support.crash_scene import EVENT, OWNER, STRANGER, Scene
from tests.support.databases import on_one_database

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

AGE: dict[str, Any] = {"name": "age", "type": "integer", "lower": 0, "upper": 110}
DECLARATION: dict[str, Any] = {
    "name": "clinic",
    "schema": {
        "features": [AGE],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "budget": {"accountant": "pure", "epsilon": "3"},
    "public_size": 30_123,
    "population": "people",
    "privacy_unit": {"column": "person", "max_rows": 1},
}


def _declared(**changes: object) -> DatasetIn:
    return DatasetIn.model_validate(DECLARATION | changes)


def _counts(scene: Scene) -> dict[str, int]:
    with scene.installation.database.read() as session:
        return {
            table.name: session.execute(
                select(func.count()).select_from(table)
            ).scalar_one()
            for table in Base.metadata.sorted_tables
        }


def test_a_check_says_what_a_declaration_becomes_and_stores_nothing(
    scene: Scene,
) -> None:
    before = _counts(scene)
    checked = check_declaration(scene.installation, OWNER, _declared())
    assert (
        checked.name,
        checked.account.cap,
        checked.public_size,
        checked.warnings,
    ) == ("clinic", "3", 30_000, [])
    assert _counts(scene) == before
    register_dataset(scene.installation, OWNER, _declared(), request=None)
    stored = show_dataset(scene.installation, OWNER, "clinic")
    guarantee = show_balance(scene.installation, OWNER, "clinic", scope={}).guarantee
    public = stored.model_dump() | {"guarantee": guarantee}
    assert checked.model_dump() == {
        name: value for name, value in public.items() if name in dict(checked)
    }


SPENT = {"name": "spent", "budget": {"accountant": "pure", "epsilon": "100"}}
SET_ASIDE = {
    "accountant": "zcdp",
    "epsilon": "3",
    "delta": "0.000001",
    "delta_set_aside": "0.0000005",
}
OTHERS: list[dict[str, object]] = [
    {},
    {"population": None},
    {"population": None, "budget": SET_ASIDE},
    {"budget": SET_ASIDE},
    {"population": "everybody"},
    {"budget": {"accountant": "pure", "epsilon": "200"}},
    {"budget": {"accountant": "zcdp", "epsilon": "3", "delta": "0.000001"}},
    {"privacy_unit": {"column": "patient", "max_rows": 2}},
    {"protects": "label", "privacy_unit": {"column": None, "max_rows": 1}},
    {"name": "spent"},
    {"partitions": [{"name": "shard", "kind": "hash", "cells": 4}]},
]


@pytest.mark.parametrize("changes", OTHERS)
def test_a_check_and_a_declaration_agree_beside_a_population_that_spent(
    scene: Scene, changes: dict[str, Any]
) -> None:
    declare = partial(register_dataset, scene.installation, OWNER, request=None)
    spent = json.loads(declare(_declared(**SPENT)).body)
    with scene.installation.database.write() as session:
        reservation = ledger.NewReservation(
            spent["id"], 7_000_000, WHOLE, EVENT, "jb_1"
        )
        reserving.reserve(session, [reservation], actor=OWNER.key_id)
    answers = []
    for call in (partial(check_declaration, scene.installation, OWNER), declare):
        try:
            answers.append(call(_declared(**changes)))
        except GrovekeeperError as refused:
            answers.append((type(refused), vars(refused)))
    checked, declared = answers
    if isinstance(checked, tuple):
        assert checked == declared
        return
    stored = json.loads(declared.body)
    assert checked.model_dump(exclude={"guarantee"}) == {
        name: stored[name] for name in dict(checked) if name in stored
    }
    if checked.account is not None:
        guarantee = show_balance(
            scene.installation, OWNER, "clinic", scope={}
        ).guarantee
        assert checked.guarantee == guarantee


def test_a_check_waits_for_no_writer(scene: Scene) -> None:
    """On SQLite there is one write lock, and a form checks at every pause in typing."""
    with scene.installation.database.write(), ThreadPoolExecutor() as pool:
        checking = pool.submit(
            check_declaration, scene.installation, OWNER, _declared()
        )
        assert checking.result(timeout=60).name == "clinic"


@on_one_database
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"budget": {"accountant": "pure", "epsilon": "1e-10"}}, InvalidRequest),
        ({"schema": {"features": [{**AGE, "upper": None}], "label": {"name": "y", "classes": ["a", "b"]}}},
         InvalidRequest),
        ({"partitions": [{"name": "region", "kind": "column", "column": "income"}]}, InvalidRequest),
        ({"visibility": "public"}, InvalidRequest),
        ({"name": "taken"}, NameTaken),
    ],
)  # fmt: skip
def test_a_check_refuses_what_a_declaration_is_refused_for(
    scene: Scene, changes: dict[str, object], error: type[GrovekeeperError]
) -> None:
    register_dataset(
        scene.installation,
        OWNER,
        _declared(name="taken", population=None),
        request=None,
    )
    before = _counts(scene)
    refusals = []
    for call in (
        check_declaration,
        lambda *values: register_dataset(*values, request=None),
    ):
        with pytest.raises(error) as refused:
            call(scene.installation, OWNER, _declared(**changes))
        refusals.append((str(refused.value), getattr(refused.value, "errors", None)))
    assert refusals[0] == refusals[1]
    assert _counts(scene) == before


@on_one_database
@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"schema": {**DECLARATION["schema"], "features": [{**AGE, "name": "gr\u00f6\u00dfe"}, AGE,
                                                           {**AGE, "name": "gro\u0308\u00dfe"}]}},
         "/schema/features/2/name"),
        ({"schema": {"features": [{**AGE, "name": "caf\u00e9"}],
                     "label": {"name": "cafe\u0301", "classes": ["low", "high"]}}}, "/schema/label/name"),
        ({"schema": {**DECLARATION["schema"], "features": [{**AGE, "name": "\u00e9"}]},
          "privacy_unit": {"column": "e\u0301", "max_rows": 1}}, "/privacy_unit/column"),
        ({"schema": {**DECLARATION["schema"], "features": [{**AGE, "name": "\u00e9"}]},
          "partitions": [{"name": "x", "kind": "column", "column": "e\u0301", "categories": ["a"]}]},
         "/partitions/0/column"),
    ],
)  # fmt: skip
def test_two_columns_that_look_the_same_are_refused(
    scene: Scene, changes: dict[str, object], at: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_declaration(scene.installation, OWNER, _declared(**changes))
    assert [(problem.at, problem.problem) for problem in refused.value.errors] == [
        (at, "not-distinct")
    ]


def test_a_population_of_another_key_refuses_the_check(scene: Scene) -> None:
    register_dataset(scene.installation, OWNER, _declared(), request=None)
    with pytest.raises(GrovekeeperError):
        check_declaration(scene.installation, STRANGER, _declared(name="other"))


def test_bounds_that_were_read_off_the_rows_are_warned_of(scene: Scene) -> None:
    features = [
        {**AGE, "name": f"f{n}", "bounds": "rounded-from-data"} for n in range(7)
    ] + [AGE]
    schema = {**DECLARATION["schema"], "features": features}
    declared = _declared(schema=schema, population=None)
    (warning,) = check_declaration(scene.installation, OWNER, declared).warnings
    assert "f0, f1, f2, f3, f4 and 2 more" in warning
    assert "age" not in warning
    register_dataset(scene.installation, OWNER, declared, request=None)
    assert show_dataset(scene.installation, OWNER, "clinic").warnings == [warning]
    plan = PlanIn.model_validate(
        {"dataset": "clinic", "algorithm": "rdt-ta", "epsilon": "0.1"}
    )
    assert warning in show_plan(scene.installation, OWNER, plan).warnings
