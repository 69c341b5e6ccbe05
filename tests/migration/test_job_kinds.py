"""Jobs that were queued by a version that only trained run after the upgrade."""

import json

from sqlalchemy import create_engine, text

from app.db import migrate
from app.db.engine import parse_url

_COLUMNS = (
    "id, dataset_id, dataset_name, algorithm, name, task, price, reservation_id, submitted_by, submitted_at, state, "
    "trees_done, n_trees"
)


def test_a_queued_job_keeps_its_plan_and_becomes_one_that_trains(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, revision="0003")
    engine = create_engine(parse_url(empty_database_url))
    task = {"cells": [0, 2], "epochs": ["ep_a"], "plan": {"algorithm": "mrf", "epsilon": "1/3", "n_trees": 8}}
    row = ("jb_a", "ds_a", "census", "mrf", None, json.dumps(task), "{}", "rs_a", "key_a", "2026-11-20T09:30:01Z")
    with engine.begin() as connection:
        connection.execute(
            text(f"INSERT INTO jobs ({_COLUMNS}) VALUES (:{', :'.join(_COLUMNS.split(', '))})"),
            dict(zip(_COLUMNS.split(", "), (*row, "queued", 0, 8), strict=True)),
        )
    migrate.upgrade(empty_database_url, revision="0004")
    with engine.begin() as connection:
        kind, algorithm, stored = connection.execute(text("SELECT kind, algorithm, task FROM jobs")).one()
    engine.dispose()
    assert (kind, algorithm) == ("train", "mrf")
    assert json.loads(stored) == {"cells": [0, 2], "epochs": ["ep_a"], "work": {"plan": task["plan"]}}
