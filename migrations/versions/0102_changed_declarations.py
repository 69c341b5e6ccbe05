"""Admits the act of a changed declaration to the entries.

Revision ID: 0102
Revises: 0101
"""

from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0102"
down_revision = "0101"
branch_labels = None
depends_on = None

KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load", "state",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared", "dataset-changed",
    "dataset-deleted", "unit-erased", "upload-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "storage-key-changed", "rules-changed", "rules-proposed", "job-approved",
    "job-rejected", "history-lost", "alias-moved", "alias-removed", "model-deleted", "webhook-made", "webhook-rotated",
    "webhook-removed",
)  # fmt: skip
NAME = "ck_entries_kind_known"


def upgrade() -> None:
    known = f"kind IN {KINDS}"
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f(NAME), "entries", type_="check")
        # Validated in a statement of its own, under a lock that writers do not wait
        # for.
        op.execute(
            f"ALTER TABLE entries ADD CONSTRAINT {NAME} CHECK ({known}) NOT VALID"
        )
        op.execute(f"ALTER TABLE entries VALIDATE CONSTRAINT {NAME}")
        return
    with op.batch_alter_table("entries") as entries:
        entries.drop_constraint(op.f(NAME), type_="check")
        entries.create_check_constraint(op.f(NAME), known)
    # the rebuild has dropped them
    create_append_only_triggers(
        op.get_bind(), "entries", key=("account_id", "sequence")
    )
