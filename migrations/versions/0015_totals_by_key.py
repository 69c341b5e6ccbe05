"""Stores the totals of scopes in the order of their key on SQLite: an admission sums them in half of the time.

Revision ID: 0015
Revises: 0014
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        with op.batch_alter_table("account_boxes", recreate="always", table_kwargs={"sqlite_with_rowid": False}):
            pass
