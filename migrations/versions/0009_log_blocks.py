"""Hashes of large complete subtrees of every account's log, for checkpoints and proofs.

Those that the entries of an existing ledger complete are computed here, in the form of :mod:`app.ledger.log` at this
revision.

Revision ID: 0009
Revises: 0008
"""

import hashlib
import itertools

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
STEP = 8
BATCH = 1 << STEP
LEAVES = sa.text(
    "SELECT hash FROM entries WHERE account_id = :account_id"
    " AND sequence > :low AND sequence <= :high ORDER BY sequence"
)
BLOCKS = sa.text(
    "SELECT hash FROM log_blocks WHERE account_id = :account_id AND height = :height"
    " AND position >= :low AND position < :high ORDER BY position"
)


def upgrade() -> None:
    op.create_table(
        "log_blocks",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("height", INTEGER, nullable=False, autoincrement=False),
        sa.Column("position", INTEGER, nullable=False, autoincrement=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "height", "position", name=op.f("pk_log_blocks")),
    )
    connection = op.get_bind()
    for (account_id,) in connection.execute(sa.text("SELECT id FROM accounts")).all():
        _fill(connection, account_id)
    create_append_only_triggers(connection, "log_blocks", key=("account_id", "height", "position"))


def _fill(connection: sa.Connection, account_id: str) -> None:
    height = STEP
    while _fill_height(connection, account_id, height) >= BATCH:
        height += STEP


def _fill_height(connection: sa.Connection, account_id: str, height: int) -> int:
    """Every complete subtree of one height, each from 2⁸ hashes of the height below; returns their number."""
    lower = LEAVES if height == STEP else BLOCKS
    insert = sa.text("INSERT INTO log_blocks VALUES (:account_id, :height, :position, :hash)")
    for position in itertools.count():
        facts = {"account_id": account_id, "low": position * BATCH, "high": (position + 1) * BATCH}
        facts |= {} if height == STEP else {"height": height - STEP}
        texts = connection.execute(lower, facts).scalars().all()
        if len(texts) < BATCH:
            return position
        hashes = [bytes.fromhex(text) for text in texts]
        level = [hashlib.sha256(b"\x00" + leaf).digest() for leaf in hashes] if height == STEP else hashes
        block = {"account_id": account_id, "height": height, "position": position, "hash": _fold(level).hex()}
        connection.execute(insert, block)
    raise AssertionError("a ledger ends")


def _fold(level: list[bytes]) -> bytes:
    while len(level) > 1:
        level = [hashlib.sha256(b"\x01" + level[at] + level[at + 1]).digest() for at in range(0, len(level), 2)]
    return level[0]
