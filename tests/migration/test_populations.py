"""Names of populations from before they meant anything become populations, and what was spent counts."""

import json
from pathlib import Path

from sqlalchemy import create_engine, text

from app.db import migrate
from app.db.engine import parse_url

_DATA = Path(__file__).parent / "data"
_BEFORE = "0009"

_DATASET = (
    "INSERT INTO datasets (id, name, living_name, schema, privacy_unit, protects, partitions, public_size, visibility, "
    "population, hash_key, declared_by, created_at, deleted_at) VALUES ('{id}', '{id}', {living}, '{{}}', '{unit}', "
    "'row', '[]', NULL, 'private', {population}, 'key', '{by}', '2026-11-20T09:3{at}:00.000000Z', {deleted})"
)
_ACCOUNT = (
    "INSERT INTO accounts (id, name, accountant, adjacency, cap, highest_cap, delta, privacy_unit, partitions, "
    "last_sequence, last_hash, last_at) VALUES ('{id}', '{id}', '{accountant}', 'add_remove', {cap}, {cap}, {delta}, "
    "'{unit}', '[]', 1, 'hash', '2026-11-20T09:30:00.000000Z')"
)
_BOX = (
    "INSERT INTO account_boxes (account_id, box, scope, charged, reserved, delta_charged) "
    "VALUES ('{id}', 'box', '{{}}', {charged}, 0, 0)"
)

_MEMBERS = [
    ("ds_1", "people", "people"),
    ("ds_2", "people", "people"),
    ("ds_3", "people-ds_3", "people-ds_3"),
    ("ds_4", "people-ds_4", "people-ds_4"),
    ("ds_5", "people-ds_5", "people-ds_5"),
    ("ds_6", None, None),
    ("ds_a", None, None),
]
"""Of each dataset its population, and the name that its own row has."""


def test_datasets_that_named_one_population_become_its_members(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, revision=_BEFORE)
    statements = (_DATA / f"{_BEFORE}.sql").read_text(encoding="utf-8").splitlines()
    for index, (name, changes) in enumerate(
        {
            "ds_1": {"cap": 100, "charged": 70},
            "ds_2": {"cap": 200, "charged": 60, "deleted": "'2026-11-20T09:40:00.000000Z'", "living": "NULL"},
            "ds_3": {"by": "key_b"},
            "ds_4": {"accountant": "zcdp", "delta": "'0.000001'", "charged": 5, "cap": 50},
            "ds_5": {"unit": json.dumps({"column": "patient", "max_rows": 2})},
            "ds_6": {"population": "NULL"},
        }.items()
    ):
        facts = {
            "id": name, "cap": 30, "charged": 0, "population": "'people'", "by": "key_a", "accountant": "pure",
            "delta": "NULL", "deleted": "NULL", "living": f"'{name}'", "at": index,
            "unit": json.dumps({"column": None, "max_rows": 1}), **changes,
        }  # fmt: skip
        statements += [each.format(**facts) for each in (_DATASET, _ACCOUNT, _BOX)]
    engine = create_engine(parse_url(empty_database_url))
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    migrate.upgrade(empty_database_url)
    with engine.connect() as connection:
        found = connection.execute(
            text(
                "SELECT populations.name, accountant, cap, unit_column, CAST(SUM(load) AS BIGINT) FROM populations "
                "JOIN accounts ON accounts.id = populations.id "
                "JOIN population_members ON population_id = populations.id "
                "GROUP BY populations.name, accountant, cap, unit_column ORDER BY populations.name"
            )
        )
        assert [tuple(row) for row in found] == [
            ("people", "pure", 100, None, 130),
            ("people-ds_3", "pure", 30, None, 0),
            ("people-ds_4", "zcdp", 50, None, 5),
            ("people-ds_5", "pure", 30, "patient", 0),
        ]
        members = connection.execute(
            text(
                "SELECT datasets.id, populations.name, datasets.population FROM datasets "
                "LEFT JOIN population_members ON account_id = datasets.id "
                "LEFT JOIN populations ON populations.id = population_id ORDER BY datasets.id"
            )
        )
        assert [tuple(row) for row in members] == _MEMBERS
        noted = connection.execute(text("SELECT dataset_id, population FROM dataset_populations ORDER BY dataset_id"))
        assert [tuple(row) for row in noted] == [(each[0], each[2]) for each in _MEMBERS if each[2] is not None]
    engine.dispose()
