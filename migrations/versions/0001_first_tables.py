"""The first tables: accounts and their entries, jobs, datasets, models, keys.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "account_cells",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("cell", INTEGER, nullable=False, autoincrement=False),
        sa.Column("charged", INTEGER, nullable=False),
        sa.Column("reserved", INTEGER, nullable=False),
        sa.CheckConstraint("charged >= 0", name=op.f("ck_account_cells_charged_not_negative")),
        sa.CheckConstraint("reserved >= 0", name=op.f("ck_account_cells_reserved_not_negative")),
        sa.PrimaryKeyConstraint("account_id", "cell", name=op.f("pk_account_cells")),
    )
    op.create_table(
        "accounts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("accountant", sa.Text(), nullable=False),
        sa.Column("adjacency", sa.Text(), nullable=False),
        sa.Column("cap", INTEGER, nullable=False),
        sa.Column("delta", sa.Text(), nullable=True),
        sa.Column("privacy_unit", sa.Text(), nullable=False),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("last_sequence", INTEGER, nullable=False),
        sa.Column("last_hash", sa.Text(), nullable=False),
        sa.Column("last_at", sa.Text(), nullable=False),
        sa.CheckConstraint("cap >= 0", name=op.f("ck_accounts_cap_not_negative")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("living_name", sa.Text(), nullable=True),
        sa.Column("schema", sa.Text(), nullable=False),
        sa.Column("privacy_unit", sa.Text(), nullable=False),
        sa.Column("protects", sa.Text(), nullable=False),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("public_size", INTEGER, nullable=True),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("population", sa.Text(), nullable=True),
        sa.Column("hash_key", sa.LargeBinary(), nullable=False),
        sa.Column("declared_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("deleted_at", INSTANT, nullable=True),
        sa.CheckConstraint(
            "(deleted_at IS NULL) = (living_name IS NOT NULL)", name=op.f("ck_datasets_living_has_its_name")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("living_name", name=op.f("uq_datasets_living_name")),
    )
    op.create_index(op.f("ix_datasets_name"), "datasets", ["name"], unique=False)
    op.create_table(
        "entries",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("sequence", INTEGER, nullable=False, autoincrement=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("amount", INTEGER, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_entries_amount_not_negative")),
        sa.CheckConstraint(
            "kind IN ('open', 'reserve', 'charge', 'void', 'expire', 'cap')", name=op.f("ck_entries_kind_known")
        ),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_entries_sequence_from_one")),
        sa.PrimaryKeyConstraint("account_id", "sequence", name=op.f("pk_entries")),
    )
    op.create_index(op.f("ix_entries_job_id"), "entries", ["job_id"], unique=False)
    op.create_table(
        "epochs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("ordinal", INTEGER, nullable=False),
        sa.Column("uploaded_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_epochs")),
        sa.UniqueConstraint("dataset_id", "ordinal", name=op.f("uq_epochs_dataset_id_ordinal")),
    )
    op.create_table(
        "grants",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.CheckConstraint("role IN ('owner', 'analyst', 'predictor', 'auditor')", name=op.f("ck_grants_role_known")),
        sa.PrimaryKeyConstraint("key_id", "dataset_id", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_dataset_id"), "grants", ["dataset_id"], unique=False)
    op.create_table(
        "idempotent_answers",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("request_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("status", INTEGER, nullable=False),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("answered_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("principal", "route", "idempotency_key", name=op.f("pk_idempotent_answers")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("price", sa.Text(), nullable=False),
        sa.Column("reservation_id", sa.Text(), nullable=False),
        sa.Column("submitted_by", sa.Text(), nullable=False),
        sa.Column("submitted_at", INSTANT, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("trees_done", INTEGER, nullable=False),
        sa.Column("n_trees", INTEGER, nullable=False),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_until", INSTANT, nullable=True),
        sa.Column("charged_at", INSTANT, nullable=True),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.Column("model_id", sa.Text(), nullable=True),
        sa.CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name=op.f("ck_jobs_running_is_leased")),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_jobs_state_known")
        ),
        sa.CheckConstraint("state <> 'succeeded' OR charged_at IS NOT NULL", name=op.f("ck_jobs_success_is_charged")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_dataset_id"), "jobs", ["dataset_id"], unique=False)
    op.create_index(op.f("ix_jobs_state_submitted_at"), "jobs", ["state", "submitted_at"], unique=False)
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("revoked_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size_bytes", INTEGER, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    op.create_index(op.f("ix_models_created_at_id"), "models", ["created_at", "id"], unique=False)
    op.create_index(op.f("ix_models_dataset_id"), "models", ["dataset_id"], unique=False)
    op.create_index(op.f("ix_models_digest"), "models", ["digest"], unique=False)
    op.create_table(
        "reservations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("amount", INTEGER, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.CheckConstraint("amount > 0", name=op.f("ck_reservations_amount_positive")),
        sa.CheckConstraint(
            "state IN ('reserved', 'charged', 'void', 'expired')", name=op.f("ck_reservations_state_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
        sa.UniqueConstraint("account_id", "job_id", name=op.f("uq_reservations_account_id_job_id")),
    )
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
