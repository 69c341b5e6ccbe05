"""A waiting job names its box, and no longer the cells of the only partition.

Revision ID: 0007
Revises: 0006
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    jobs = sa.table("jobs", *(sa.column(name, sa.Text()) for name in ("id", "dataset_id", "task")))
    datasets = sa.table("datasets", *(sa.column(name, sa.Text()) for name in ("id", "partitions")))
    declared = {row.id: json.loads(row.partitions) for row in connection.execute(sa.select(datasets))}
    for row in connection.execute(sa.select(jobs)).all():
        task = json.loads(row.task)
        if "cells" not in task:
            continue
        cells = task.pop("cells")
        partition = declared.get(row.dataset_id)
        task["scope"] = {} if cells is None or not partition else {partition[0]["name"]: cells}
        written = json.dumps(task, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        connection.execute(jobs.update().where(jobs.c.id == row.id).values(task=written))
