"""Removes the leases of cached authority, and the index of queued jobs by the datasets that they read.

Revision ID: 0030
Revises: 0029
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("authority_leases")
    with op.batch_alter_table("jobs") as batch:
        batch.drop_index("ix_jobs_state_submitted_by_reads_submitted_at_id")
        batch.alter_column("reads", existing_type=sa.Text(), nullable=True)
