"""Gives every dataset a data key, wrapped by a storage key, in place of its key of hash partitions.

Rows that earlier revisions stored are not encrypted, and their cells and ids rest on keys that were in the database. So
their datasets become deleted datasets: workers erase the files, and the spend stays. Stored answers to uploads have
exact counts about these rows and are deleted.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

from app.core import stamps
from app.db.base import UtcDateTime

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    datasets = sa.table("datasets", sa.column("deleted_at", UtcDateTime()), sa.column("living_name", sa.Text()))
    living = datasets.c.deleted_at.is_(None)
    op.execute(datasets.update().where(living).values(deleted_at=stamps.now(), living_name=None))
    op.execute("DELETE FROM idempotent_answers WHERE route LIKE 'POST /datasets/%/rows'")
    with op.batch_alter_table("datasets") as batch:
        batch.drop_column("hash_key")
        batch.add_column(sa.Column("wrapped_key", sa.LargeBinary(), nullable=True))
        batch.create_check_constraint(
            op.f("ck_datasets_living_has_its_key"), "(deleted_at IS NULL) = (wrapped_key IS NOT NULL)"
        )
