"""Jobs may read a second, unlabelled dataset, whose account pays for its own part.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("unlabelled_dataset_id", sa.Text(), nullable=True))
    op.create_index(op.f("ix_jobs_unlabelled_dataset_id"), "jobs", ["unlabelled_dataset_id"], unique=False)
