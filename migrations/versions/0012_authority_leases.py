"""Adds the leases under which API processes cache authority, and allows entries about deleted models.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "upload-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "storage-key-changed", "rules-changed", "rules-proposed", "job-approved",
    "job-rejected", "history-lost", "alias-moved", "alias-removed", "model-deleted", "webhook-made", "webhook-removed",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "authority_leases",
        sa.Column("process_id", sa.Text(), nullable=False),
        sa.Column("renewals", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("last_act", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("process_id", name=op.f("pk_authority_leases")),
    )
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
