"""Adds the time at which the places of an erased upload's units became free again.

Revision ID: 0017
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0015"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("epochs") as batch:
        batch.add_column(sa.Column("places_freed_at", INSTANT, nullable=True))
