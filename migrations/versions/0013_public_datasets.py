"""Fixes the visibility of datasets, and adds to models whether they have a privacy guarantee.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

from app.db.fixed_columns import create_fixed_column_trigger

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("datasets") as batch:
        batch.create_check_constraint(op.f("ck_datasets_visibility_known"), "visibility IN ('private', 'public')")
    create_fixed_column_trigger(op.get_bind(), "datasets", "visibility")
    with op.batch_alter_table("models") as batch:
        batch.add_column(sa.Column("privacy", sa.Text(), nullable=False, server_default="differential"))
        batch.create_check_constraint(op.f("ck_models_privacy_known"), "privacy IN ('differential', 'none')")
    with op.batch_alter_table("models") as batch:
        batch.alter_column("privacy", existing_type=sa.Text(), existing_nullable=False, server_default=None)
