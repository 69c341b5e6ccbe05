"""Adds the secret of a webhook that a rotation replaced, and allows entries about rotations.

Processes of the version before leave both columns alone and sign with the new secret.

Revision ID: 0032
Revises: 0031
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load", "state",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "upload-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "storage-key-changed", "rules-changed", "rules-proposed", "job-approved",
    "job-rejected", "history-lost", "alias-moved", "alias-removed", "model-deleted", "webhook-made", "webhook-rotated",
    "webhook-removed",
)  # fmt: skip


def upgrade() -> None:
    op.add_column("webhooks", sa.Column("sealed_earlier_secret", sa.LargeBinary()))
    op.add_column("webhooks", sa.Column("earlier_secret_until", INSTANT))
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
