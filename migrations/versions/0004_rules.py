"""Creates the rules of datasets and the decisions about waiting jobs, and names the key of every reservation.

Revision ID: 0004
Revises: 0003
"""

import json

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "rules-changed", "rules-proposed", "job-approved", "job-rejected",
)  # fmt: skip


def upgrade() -> None:
    _create_tables()
    _name_the_keys_of_reservations()
    _let_jobs_wait()
    listed = ", ".join(f"'{kind}'" for kind in KINDS)
    with op.batch_alter_table("entries") as batch:
        batch.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_entries_kind_known"), f"kind IN ({listed})")
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))


def _create_tables() -> None:
    op.create_table(
        "rules",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("largest_job", INTEGER, nullable=True),
        sa.Column("approval_above", INTEGER, nullable=True),
        sa.Column("quotas", sa.Text(), nullable=False),
        sa.Column("is_frozen", sa.Boolean(), nullable=False),
        sa.Column("erase_rows_at", INSTANT, nullable=True),
        sa.Column("proposal", sa.Text(), nullable=True),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("changed_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_rules")),
        sa.CheckConstraint("largest_job > 0", name=op.f("ck_rules_largest_job_positive")),
        sa.CheckConstraint("approval_above > 0", name=op.f("ck_rules_approval_above_positive")),
    )
    op.create_table(
        "approvals",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("job_id", "dataset_id", name=op.f("pk_approvals")),
        sa.CheckConstraint("decision IN ('approve', 'reject')", name=op.f("ck_approvals_decision_known")),
        sa.CheckConstraint(
            "(decision IS NULL) = (decided_by IS NULL) AND (decision IS NULL) = (decided_at IS NULL)",
            name=op.f("ck_approvals_decision_is_of_a_key"),
        ),
    )
    op.create_index(op.f("ix_approvals_dataset_id"), "approvals", ["dataset_id"])


def _name_the_keys_of_reservations() -> None:
    """The key of a job's reservation is the actor of its first entry, of another reservation its attester."""
    op.add_column("reservations", sa.Column("reserved_by", sa.Text(), nullable=True))
    op.add_column("reservations", sa.Column("is_approved", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute(
        "UPDATE reservations SET reserved_by = (SELECT MIN(entries.actor) FROM entries WHERE"
        " entries.account_id = reservations.account_id AND entries.job_id = reservations.job_id"
        " AND entries.kind = 'reserve') WHERE job_id IS NOT NULL"
    )
    external = sa.table("reservations", *map(sa.column, ("id", "job_id", "details", "reserved_by")))
    rows = op.get_bind().execute(sa.select(external.c.id, external.c.details).where(external.c.job_id.is_(None)))
    for reservation_id, details in rows.all():
        attested_by = json.loads(details)["attested_by"]
        op.execute(external.update().where(external.c.id == reservation_id).values(reserved_by=attested_by))
    with op.batch_alter_table("reservations") as batch:
        batch.alter_column("reserved_by", existing_type=sa.Text(), nullable=False)
        batch.alter_column("is_approved", existing_type=sa.Boolean(), server_default=None)
    op.create_index(op.f("ix_reservations_account_id_reserved_by"), "reservations", ["account_id", "reserved_by"])


def _let_jobs_wait() -> None:
    op.add_column("jobs", sa.Column("waits_since", INSTANT, nullable=True))
    op.execute("UPDATE jobs SET waits_since = submitted_at")
    with op.batch_alter_table("jobs") as batch:
        batch.alter_column("waits_since", existing_type=INSTANT, nullable=False)
        batch.drop_constraint(op.f("ck_jobs_state_known"), type_="check")
        batch.create_check_constraint(
            op.f("ck_jobs_state_known"),
            "state IN ('waiting', 'queued', 'running', 'succeeded', 'failed', 'cancelled')",
        )
