"""Creates the schema: keys, datasets, ledger, jobs, models and releases, with the triggers of append-only tables.

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
    _create_access_tables()
    _create_dataset_tables()
    _create_account_tables()
    _create_population_tables()
    _create_entry_tables()
    _create_job_tables()
    _create_model_tables()
    _create_release_tables()


def _create_access_tables() -> None:
    """Creates keys, their grants on datasets, and the stored answers to requests with an ``Idempotency-Key``."""
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
        "grants",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("granted_at", INSTANT, nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "dataset_id", name=op.f("pk_grants")),
        sa.CheckConstraint(
            "role IN ('owner', 'attester', 'analyst', 'predictor', 'auditor')", name=op.f("ck_grants_role_known")
        ),
    )
    op.create_index(op.f("ix_grants_dataset_id"), "grants", ["dataset_id"])
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


def _create_dataset_tables() -> None:
    """Creates the declarations of datasets and their uploads. Rows are files."""
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("living_name", name=op.f("uq_datasets_living_name")),
        sa.CheckConstraint(
            "(deleted_at IS NULL) = (living_name IS NOT NULL)", name=op.f("ck_datasets_living_has_its_name")
        ),
    )
    op.create_index(op.f("ix_datasets_name"), "datasets", ["name"])
    op.create_table(
        "epochs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("ordinal", INTEGER, nullable=False),
        sa.Column("uploaded_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_epochs")),
        sa.UniqueConstraint("dataset_id", "ordinal", name=op.f("uq_epochs_dataset_id_ordinal")),
    )


def _create_account_tables() -> None:
    """Creates accounts with their caps, and the charged and reserved amounts of each scope."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("accountant", sa.Text(), nullable=False),
        sa.Column("adjacency", sa.Text(), nullable=True),
        sa.Column("cap", INTEGER, nullable=False),
        sa.Column("highest_cap", INTEGER, nullable=False),
        sa.Column("delta", sa.Text(), nullable=True),
        sa.Column("delta_set_aside", sa.Text(), nullable=True),
        sa.Column("privacy_unit", sa.Text(), nullable=True),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("last_sequence", INTEGER, nullable=False),
        sa.Column("last_hash", sa.Text(), nullable=False),
        sa.Column("last_at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.CheckConstraint("cap >= 0", name=op.f("ck_accounts_cap_not_negative")),
        sa.CheckConstraint("highest_cap >= cap", name=op.f("ck_accounts_highest_cap_is_highest")),
    )
    op.create_table(
        "account_boxes",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("box", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("charged", INTEGER, nullable=False),
        sa.Column("reserved", INTEGER, nullable=False),
        sa.Column("delta_charged", INTEGER, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "box", name=op.f("pk_account_boxes")),
        sa.CheckConstraint("charged >= 0", name=op.f("ck_account_boxes_charged_not_negative")),
        sa.CheckConstraint("reserved >= 0", name=op.f("ck_account_boxes_reserved_not_negative")),
        sa.CheckConstraint("delta_charged >= 0", name=op.f("ck_account_boxes_delta_charged_not_negative")),
    )


def _create_population_tables() -> None:
    """Creates the properties of populations that accounts lack, and the members of populations."""
    op.create_table(
        "populations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("adjacency", sa.Text(), nullable=True),
        sa.Column("unit_column", sa.Text(), nullable=True),
        sa.Column("declared_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_populations")),
        sa.UniqueConstraint("name", name=op.f("uq_populations_name")),
    )
    op.create_table(
        "population_members",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("population_id", sa.Text(), nullable=False),
        sa.Column("joined_at", INSTANT, nullable=False),
        sa.Column("load", INTEGER, nullable=False),
        sa.Column("reserved", INTEGER, nullable=False),
        sa.Column("tightest_cell", sa.Text(), nullable=False),
        sa.Column("is_exact", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_population_members")),
        sa.CheckConstraint("load >= 0", name=op.f("ck_population_members_load_not_negative")),
        sa.CheckConstraint(
            "reserved >= 0 AND reserved <= load", name=op.f("ck_population_members_reserved_within_load")
        ),
    )
    op.create_index(op.f("ix_population_members_population_id"), "population_members", ["population_id"])


def _create_entry_tables() -> None:
    """Creates the entries and subtree hashes of accounts, both append-only, and the state of every reservation."""
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
        sa.Column("details", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("account_id", "sequence", name=op.f("pk_entries")),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_entries_sequence_from_one")),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_entries_amount_not_negative")),
        sa.CheckConstraint(
            "kind IN ('open', 'reserve', 'charge', 'void', 'expire', 'cap', 'join', 'load')",
            name=op.f("ck_entries_kind_known"),
        ),
    )
    op.create_index(op.f("ix_entries_job_id"), "entries", ["job_id"])
    create_append_only_triggers(op.get_bind(), "entries", key=("account_id", "sequence"))
    op.create_table(
        "log_blocks",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("height", INTEGER, nullable=False, autoincrement=False),
        sa.Column("position", INTEGER, nullable=False, autoincrement=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "height", "position", name=op.f("pk_log_blocks")),
    )
    create_append_only_triggers(op.get_bind(), "log_blocks", key=("account_id", "height", "position"))
    op.create_table(
        "reservations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("part", INTEGER, nullable=False),
        sa.Column("amount", INTEGER, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
        sa.UniqueConstraint("account_id", "job_id", "part", name=op.f("uq_reservations_account_id_job_id_part")),
        sa.CheckConstraint("amount > 0", name=op.f("ck_reservations_amount_positive")),
        sa.CheckConstraint(
            "state IN ('reserved', 'charged', 'void', 'expired')", name=op.f("ck_reservations_state_known")
        ),
    )
    op.create_index(op.f("ix_reservations_job_id"), "reservations", ["job_id"])


def _create_job_tables() -> None:
    """Creates jobs, queue and history in one table, and the datasets that they read."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("task", sa.Text(), nullable=False),
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
        sa.Column("profile_id", sa.Text(), nullable=True),
        sa.Column("evaluation_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_jobs_state_known")
        ),
        sa.CheckConstraint("kind IN ('train', 'profile', 'evaluation')", name=op.f("ck_jobs_kind_known")),
        sa.CheckConstraint(
            "(kind = 'train') = (algorithm IS NOT NULL)", name=op.f("ck_jobs_training_names_its_algorithm")
        ),
        sa.CheckConstraint("(state = 'running') = (lease_token IS NOT NULL)", name=op.f("ck_jobs_running_is_leased")),
        sa.CheckConstraint("state <> 'succeeded' OR charged_at IS NOT NULL", name=op.f("ck_jobs_success_is_charged")),
    )
    op.create_index(op.f("ix_jobs_dataset_id"), "jobs", ["dataset_id"])
    op.create_index(op.f("ix_jobs_state_submitted_at"), "jobs", ["state", "submitted_at"])
    op.create_table(
        "job_datasets",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "dataset_id", name=op.f("pk_job_datasets")),
    )
    op.create_index(op.f("ix_job_datasets_dataset_id"), "job_datasets", ["dataset_id"])


def _create_model_tables() -> None:
    """Creates models, and the facts of their cards that can change after training."""
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
    op.create_index(op.f("ix_models_created_at_id"), "models", ["created_at", "id"])
    op.create_index(op.f("ix_models_dataset_id"), "models", ["dataset_id"])
    op.create_index(op.f("ix_models_digest"), "models", ["digest"])
    op.create_table(
        "dataset_guarantees",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("guarantee", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_dataset_guarantees")),
    )
    op.create_table(
        "dataset_populations",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("population", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_dataset_populations")),
    )


def _create_release_tables() -> None:
    """Creates released profiles and evaluations, and the models of each evaluation."""
    op.create_table(
        "profiles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
        sa.UniqueConstraint("job_id", name=op.f("uq_profiles_job_id")),
    )
    op.create_index(op.f("ix_profiles_dataset_id_created_at_id"), "profiles", ["dataset_id", "created_at", "id"])
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
        sa.UniqueConstraint("job_id", name=op.f("uq_evaluations_job_id")),
    )
    op.create_table(
        "evaluated_models",
        sa.Column("evaluation_id", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("evaluation_id", "model_id", name=op.f("pk_evaluated_models")),
    )
    op.create_index(op.f("ix_evaluated_models_model_id"), "evaluated_models", ["model_id"])
