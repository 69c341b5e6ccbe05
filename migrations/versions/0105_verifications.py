"""Keeps the last verification of an account by each auditor.

Revision ID: 0105
Revises: 0104
"""

import sqlalchemy as sa
from alembic import op

revision = "0105"
down_revision = "0104"
branch_labels = None
depends_on = None

COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "verifications",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("stated_by", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("entries", COUNT, nullable=True),
        sa.Column("checkpoint", sa.Text(), nullable=True),
        sa.Column("stated_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "stated_by", name="pk_verifications"),
    )
