"""Creates the public keys of the signers of heads, append-only, and allows entries of administrative acts.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load",
    "key-made", "key-revoked", "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "signers",
        sa.Column("ordinal", INTEGER, nullable=False, autoincrement=False),
        sa.Column("verifier_key", sa.Text(), nullable=False),
        sa.Column("pinned_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("ordinal", name=op.f("pk_signers")),
        sa.CheckConstraint("ordinal >= 1", name=op.f("ck_signers_ordinal_from_one")),
    )
    create_append_only_triggers(op.get_bind(), "signers", key=("ordinal",))
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
