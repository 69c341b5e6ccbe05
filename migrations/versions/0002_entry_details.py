"""Entries and reservations have details: public facts that only some of them carry.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Both databases add a column that may be NULL in place, so no table is rebuilt and no trigger is lost.
    op.add_column("entries", sa.Column("details", sa.Text(), nullable=True))
    op.add_column("reservations", sa.Column("details", sa.Text(), nullable=True))
