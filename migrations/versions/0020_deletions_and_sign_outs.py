"""Adds when the last job of a deleted dataset ended, and how often the sessions of a key were ended.

Revision ID: 0020
Revises: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0017"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.add_column("datasets", sa.Column("jobs_ended_at", INSTANT, nullable=True))
    op.execute("UPDATE datasets SET jobs_ended_at = deleted_at")  # until now, a deletion ended all jobs with the mark
    op.add_column("keys", sa.Column("sign_outs", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True))
