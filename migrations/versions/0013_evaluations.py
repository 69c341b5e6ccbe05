"""Evaluations of models, and which models each of them speaks of.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
        sa.UniqueConstraint("job_id", name=op.f("uq_evaluations_job_id")),
    )
    op.create_table(
        "evaluated_models",
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("evaluation_id", "model_id", name=op.f("pk_evaluated_models")),
    )
    op.create_index(op.f("ix_evaluated_models_model_id"), "evaluated_models", ["model_id"])
