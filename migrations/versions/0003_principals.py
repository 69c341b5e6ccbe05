"""Lets keys expire and rotate, adds subjects of an identity provider, and allows entries of these acts.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned",
)  # fmt: skip


def upgrade() -> None:
    with op.batch_alter_table("keys") as batch:
        batch.alter_column("secret_sha256", existing_type=sa.LargeBinary(), nullable=True)
        batch.add_column(sa.Column("issuer", sa.Text(), nullable=True))
        batch.add_column(sa.Column("roles_at", INSTANT, nullable=True))
        batch.add_column(sa.Column("expires_at", INSTANT, nullable=True))
        batch.add_column(sa.Column("rotated_at", INSTANT, nullable=True))
        batch.create_check_constraint(
            op.f("ck_keys_secret_or_issuer"), "(secret_sha256 IS NULL) = (issuer IS NOT NULL)"
        )
        batch.create_check_constraint(op.f("ck_keys_roles_of_token"), "(roles_at IS NULL) = (issuer IS NULL)")
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
