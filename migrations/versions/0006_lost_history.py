"""Allows entries about a changed storage key, and about entries that a restore did not bring back.

Revision ID: 0006
Revises: 0005
"""

from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "storage-key-changed", "rules-changed", "rules-proposed", "job-approved",
    "job-rejected", "history-lost",
)  # fmt: skip


def upgrade() -> None:
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
