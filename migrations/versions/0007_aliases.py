"""Creates the moves of aliases of models, and allows entries about them.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "storage-key-changed", "rules-changed", "rules-proposed", "job-approved",
    "job-rejected", "history-lost", "alias-moved", "alias-removed",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "alias_moves",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("number", INTEGER, nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=True),
        sa.Column("moved_by", sa.Text(), nullable=False),
        sa.Column("moved_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", "alias", "number", name=op.f("pk_alias_moves")),
    )
    op.create_index(op.f("ix_alias_moves_model_id"), "alias_moves", ["model_id"])
    op.create_index("ix_alias_moves_alias_dataset_name", "alias_moves", ["alias", "dataset_name"])
    create_append_only_triggers(op.get_bind(), "alias_moves", key=("dataset_id", "alias", "number"))
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
