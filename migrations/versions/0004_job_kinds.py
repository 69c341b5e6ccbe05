"""Jobs of several kinds: what a job is, and what it made besides a model.

Revision ID: 0004
Revises: 0003
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("kind", sa.Text(), nullable=False, server_default="train"))
        batch.add_column(sa.Column("profile_id", sa.Text(), nullable=True))
        batch.add_column(sa.Column("evaluation_id", sa.Text(), nullable=True))
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("kind", server_default=None)
        batch.alter_column("algorithm", existing_type=sa.Text(), nullable=True)
        batch.create_check_constraint(op.f("ck_jobs_kind_known"), "kind IN ('train', 'profile', 'evaluation')")
        batch.create_check_constraint(
            op.f("ck_jobs_training_names_its_algorithm"), "(kind = 'train') = (algorithm IS NOT NULL)"
        )
    _name_the_work()


def _name_the_work() -> None:
    """What a queued job will run stands under ``work`` now; jobs that wait during an upgrade run afterwards."""
    connection = op.get_bind()
    jobs = sa.table("jobs", sa.column("id", sa.Text()), sa.column("task", sa.Text()))
    for job_id, text in connection.execute(sa.select(jobs.c.id, jobs.c.task)).all():
        task = json.loads(text)
        if "plan" in task:
            task["work"] = {"plan": task.pop("plan")}
            written = json.dumps(task, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
            connection.execute(jobs.update().where(jobs.c.id == job_id).values(task=written))
