"""Balances are kept for each distinct box of an account instead of for each of its cells.

Revision ID: 0005
Revises: 0004
"""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    boxes = op.create_table(
        "account_boxes",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("box", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("charged", INTEGER, nullable=False),
        sa.Column("reserved", INTEGER, nullable=False),
        sa.Column("delta_charged", INTEGER, nullable=False),
        sa.CheckConstraint("charged >= 0", name=op.f("ck_account_boxes_charged_not_negative")),
        sa.CheckConstraint("delta_charged >= 0", name=op.f("ck_account_boxes_delta_charged_not_negative")),
        sa.CheckConstraint("reserved >= 0", name=op.f("ck_account_boxes_reserved_not_negative")),
        sa.PrimaryKeyConstraint("account_id", "box", name=op.f("pk_account_boxes")),
    )
    found = _of_reservations()
    if found:
        op.bulk_insert(boxes, found)
    op.drop_table("account_cells")


def _of_reservations() -> list[dict[str, object]]:
    """What the cells held is what was reserved or charged on them. The stored scope is canonical text already."""
    rows = op.get_bind().exec_driver_sql(
        "SELECT account_id, scope, CAST(SUM(CASE state WHEN 'charged' THEN amount ELSE 0 END) AS BIGINT),"
        " CAST(SUM(CASE state WHEN 'reserved' THEN amount ELSE 0 END) AS BIGINT)"
        " FROM reservations WHERE state IN ('charged', 'reserved') GROUP BY account_id, scope"
    )
    return [
        {
            "account_id": account_id,
            "box": hashlib.sha256(scope.encode("utf-8")).hexdigest(),
            "scope": scope,
            "charged": charged,
            "reserved": reserved,
            "delta_charged": 0,
        }
        for account_id, scope, charged, reserved in rows
    ]
