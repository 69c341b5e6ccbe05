"""Reservations are found by their job, which may hold one on each of several accounts.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_reservations_job_id"), "reservations", ["job_id"], unique=False)
