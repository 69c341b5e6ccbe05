"""Adds the datasets that a job reads to its row, and the index through which a claim passes jobs of closed datasets.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

READS = {
    "sqlite": "UPDATE jobs SET reads = coalesce((SELECT group_concat(dataset_id, ' ') FROM "
    "(SELECT dataset_id FROM job_datasets WHERE job_id = jobs.id ORDER BY dataset_id)), '')",
    "postgresql": "UPDATE jobs SET reads = coalesce((SELECT string_agg(dataset_id, ' ' ORDER BY dataset_id) "
    "FROM job_datasets WHERE job_id = jobs.id), '')",
}


def upgrade() -> None:
    with op.batch_alter_table("jobs") as batch:
        batch.add_column(sa.Column("reads", sa.Text(), nullable=False, server_default=""))
    op.execute(READS[op.get_bind().dialect.name])
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("reads", existing_type=sa.Text(), existing_nullable=False, server_default=None)
    op.create_index(
        "ix_jobs_state_submitted_by_reads_submitted_at_id",
        "jobs",
        ["state", "submitted_by", "reads", "submitted_at", "id"],
    )
