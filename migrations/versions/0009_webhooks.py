"""Creates webhooks and their waiting deliveries, and allows entries about them.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0009"
down_revision = "0008"
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
    "job-rejected", "history-lost", "alias-moved", "alias-removed", "webhook-made", "webhook-removed",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Text(), nullable=True),
        sa.Column("is_low", sa.Boolean(), nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("next_at", INSTANT, nullable=False),
        sa.Column("failures", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index(op.f("ix_webhooks_dataset_id"), "webhooks", ["dataset_id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "ix_webhook_deliveries_webhook_id_created_at_id", "webhook_deliveries", ["webhook_id", "created_at", "id"]
    )
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
