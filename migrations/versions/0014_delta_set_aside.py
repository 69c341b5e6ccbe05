"""Accounts may set a part of their δ aside for mechanisms that are (ε, δ).

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("accounts", sa.Column("delta_set_aside", sa.Text(), nullable=True))
