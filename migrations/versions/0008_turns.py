"""Adds the indexes through which a claim reads a few jobs of every submitter.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_jobs_state_submitted_by_submitted_at_id", "jobs", ["state", "submitted_by", "submitted_at", "id"]
    )
    op.create_index(
        "ix_jobs_submitted_by_charged_at_finished_at", "jobs", ["submitted_by", "charged_at", "finished_at"]
    )
