"""A job may hold several reservations on one account, on disjoint cells: they are counted.

Revision ID: 0017
Revises: 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("reservations", sa.Column("part", INTEGER, nullable=True))
    op.execute("UPDATE reservations SET part = 0")  # until now each was the only one
    with op.batch_alter_table("reservations") as reservations:
        reservations.alter_column("part", nullable=False, existing_type=INTEGER)
        reservations.drop_constraint(op.f("uq_reservations_account_id_job_id"), type_="unique")
        reservations.create_unique_constraint(
            op.f("uq_reservations_account_id_job_id_part"), ["account_id", "job_id", "part"]
        )
