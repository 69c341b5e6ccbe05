"""Adds the worker processes that live.

Revision ID: 0028
Revises: 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0020"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seen_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
