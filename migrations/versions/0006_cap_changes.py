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
    # SQLite rebuilds the table, and a rebuild keeps no CHECK that is not named here.
    checks = [
        sa.CheckConstraint("cap >= 0", name=op.f("ck_accounts_cap_not_negative")),
        sa.CheckConstraint("highest_cap >= cap", name=op.f("ck_accounts_highest_cap_is_highest")),
    ]
    with op.batch_alter_table("accounts", table_args=checks) as accounts:
        accounts.alter_column("highest_cap", nullable=False, existing_type=INTEGER)
    if op.get_bind().dialect.name == "postgresql":
        op.create_check_constraint(op.f("ck_accounts_highest_cap_is_highest"), "accounts", "highest_cap >= cap")
    op.create_table(
        "dataset_guarantees",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_dataset_guarantees")),
    )
