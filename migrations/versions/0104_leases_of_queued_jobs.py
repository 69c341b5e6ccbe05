"""Lets claims pass over queued jobs that were put back.

Revision ID: 0104
Revises: 0103
"""

import sqlalchemy as sa
from alembic import op

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None


def upgrade() -> None:
    queued = sa.text("state = 'queued'")
    op.create_index(
        "ix_jobs_state_lease_until_submitted_by",
        "jobs",
        ["state", "lease_until", "submitted_by", "submitted_at", "id"],
        sqlite_where=queued,
        postgresql_where=queued,
    )
    leased = sa.text("lease_until IS NOT NULL")
    op.create_index(
        "ix_jobs_submitted_by_lease_until",
        "jobs",
        ["submitted_by", "lease_until"],
        sqlite_where=leased,
        postgresql_where=leased,
    )
