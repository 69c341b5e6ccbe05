"""Allows entries that state the state of an account.

Balances are the fold of the entries, so nothing reads or writes the table ``account_boxes``, ``cap`` and
``highest_cap`` of ``accounts``, and ``load``, ``reserved``, ``tightest_cell`` and ``is_exact`` of
``population_members`` any more. They stay for the processes of the version before, which still run during an upgrade.
The next revision that contracts the schema drops them.

Revision ID: 0031
Revises: 0030
"""

from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load", "state",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "upload-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "storage-key-changed", "rules-changed", "rules-proposed", "job-approved",
    "job-rejected", "history-lost", "alias-moved", "alias-removed", "model-deleted", "webhook-made", "webhook-removed",
)  # fmt: skip


def upgrade() -> None:
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
