"""The population of a dataset is kept beside its models, for the cards of those that were made before it joined.

Revision ID: 0016
Revises: 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "dataset_populations",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("population", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_dataset_populations")),
    )
    op.execute(
        "INSERT INTO dataset_populations (dataset_id, population) "
        "SELECT id, population FROM datasets WHERE population IS NOT NULL"
    )
