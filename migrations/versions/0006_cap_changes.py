"""Caps may change: accounts know their highest one, and what datasets guarantee since is kept beside their models.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("accounts", sa.Column("highest_cap", INTEGER, nullable=True))
    op.execute("UPDATE accounts SET highest_cap = cap")  # until now a cap stayed what it was opened with
    with op.batch_alter_table("accounts") as accounts:
        accounts.alter_column("highest_cap", nullable=False, existing_type=INTEGER)
        accounts.create_check_constraint(op.f("ck_accounts_highest_cap_is_highest"), "highest_cap >= cap")
    op.create_table(
        "dataset_guarantees",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_dataset_guarantees")),
    )
