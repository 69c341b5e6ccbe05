"""Lets a webhook keep its last deliveries.

Revision ID: 0103
Revises: 0102
"""

import sqlalchemy as sa
from alembic import op

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # nullable: processes of the version before write rows without it
    op.add_column("webhooks", sa.Column("recent", sa.Text(), nullable=True))
