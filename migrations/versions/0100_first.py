"""Creates the schema of the first release, with the triggers of append-only tables.

Versions before the first release have revisions below 0100;
:mod:`app.services.backup.move` copies their rows.

Revision ID: 0100
Revises:
"""

import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
KINDS = (
    "open", "reserve", "charge", "void", "expire", "cap", "join", "load", "state",
    "key-made", "key-rotated", "key-revoked", "subject-admitted", "subject-roles",
    "grant-made", "grant-removed", "dataset-declared",
    "dataset-deleted", "unit-erased", "upload-erased", "cap-changed", "population-opened", "population-joined",
    "signer-pinned", "storage-key-changed", "rules-changed", "rules-proposed", "job-approved",
    "job-rejected", "history-lost", "alias-moved", "alias-removed", "model-deleted", "webhook-made", "webhook-rotated",
    "webhook-removed",
)  # fmt: skip


def upgrade() -> None:
    _create_access_tables()
    _create_dataset_tables()
    _create_account_tables()
    _create_entry_tables()
    _create_job_tables()
    _create_model_tables()
    _create_release_tables()
    _create_webhook_tables()


def _create_access_tables() -> None:
    """Creates keys, their grants on datasets, and the stored answers to requests with
    an ``Idempotency-Key``.
    """
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.LargeBinary(), nullable=True),
        sa.Column("issuer", sa.Text(), nullable=True),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("roles_at", INSTANT, nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=True),
        sa.Column("rotated_at", INSTANT, nullable=True),
        sa.Column("revoked_at", INSTANT, nullable=True),
        sa.Column("last_used_at", INSTANT, nullable=True),
        sa.Column("sign_outs", INTEGER, nullable=True),
        sa.CheckConstraint(
            "(roles_at IS NULL) = (issuer IS NULL)", name=op.f("ck_keys_roles_of_token")
        ),
        sa.CheckConstraint(
            "(secret_sha256 IS NULL) = (issuer IS NOT NULL)",
            name=op.f("ck_keys_secret_or_issuer"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
    )
    op.create_table(
        "grants",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("granted_at", INSTANT, nullable=False),
        sa.Column("granted_by", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "role IN ('owner', 'attester', 'analyst', 'predictor', 'auditor')",
            name=op.f("ck_grants_role_known"),
        ),
        sa.PrimaryKeyConstraint("key_id", "dataset_id", name=op.f("pk_grants")),
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
        sa.PrimaryKeyConstraint(
            "principal", "route", "idempotency_key", name=op.f("pk_idempotent_answers")
        ),
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
        sa.Column("population", sa.Text(), nullable=True),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=True),
        sa.Column("declared_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("deleted_at", INSTANT, nullable=True),
        sa.Column("jobs_ended_at", INSTANT, nullable=True),
        sa.CheckConstraint(
            "(deleted_at IS NULL) = (living_name IS NOT NULL)",
            name=op.f("ck_datasets_living_has_its_name"),
        ),
        sa.CheckConstraint(
            "(deleted_at IS NULL) = (wrapped_key IS NOT NULL)",
            name=op.f("ck_datasets_living_has_its_key"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("living_name", name=op.f("uq_datasets_living_name")),
    )
    op.create_index(op.f("ix_datasets_name"), "datasets", ["name"])
    op.create_table(
        "epochs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("ordinal", INTEGER, nullable=False),
        sa.Column("uploaded_at", INSTANT, nullable=False),
        sa.Column("erased_at", INSTANT, nullable=True),
        sa.Column("places_freed_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_epochs")),
        sa.UniqueConstraint(
            "dataset_id", "ordinal", name=op.f("uq_epochs_dataset_id_ordinal")
        ),
    )


def _create_account_tables() -> None:
    """Creates accounts, populations with their members, rules, and the state of every
    reservation.
    """
    op.create_table(
        "accounts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("accountant", sa.Text(), nullable=False),
        sa.Column("adjacency", sa.Text(), nullable=True),
        sa.Column("delta", sa.Text(), nullable=True),
        sa.Column("delta_set_aside", sa.Text(), nullable=True),
        sa.Column("privacy_unit", sa.Text(), nullable=True),
        sa.Column("partitions", sa.Text(), nullable=False),
        sa.Column("last_sequence", INTEGER, nullable=False),
        sa.Column("last_hash", sa.Text(), nullable=False),
        sa.Column("last_at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
    )
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
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_population_members")),
    )
    op.create_index(
        op.f("ix_population_members_population_id"),
        "population_members",
        ["population_id"],
    )
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
        sa.CheckConstraint(
            "approval_above > 0", name=op.f("ck_rules_approval_above_positive")
        ),
        sa.CheckConstraint(
            "largest_job > 0", name=op.f("ck_rules_largest_job_positive")
        ),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_rules")),
    )
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
        sa.Column("reserved_by", sa.Text(), nullable=False),
        sa.Column("is_approved", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "state IN ('reserved', 'charged', 'void', 'expired')",
            name=op.f("ck_reservations_state_known"),
        ),
        sa.CheckConstraint("amount > 0", name=op.f("ck_reservations_amount_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
        sa.UniqueConstraint(
            "account_id",
            "job_id",
            "part",
            name=op.f("uq_reservations_account_id_job_id_part"),
        ),
    )
    op.create_index(
        "ix_reservations_account_id_reserved_by",
        "reservations",
        ["account_id", "reserved_by"],
    )
    op.create_index(op.f("ix_reservations_job_id"), "reservations", ["job_id"])


def _create_entry_tables() -> None:
    """Creates the entries and subtree hashes of accounts, and the signers of heads: all
    append-only.
    """
    op.create_table(
        "entries",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("sequence", INTEGER, autoincrement=False, nullable=False),
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
        sa.CheckConstraint(f"kind IN {KINDS}", name=op.f("ck_entries_kind_known")),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_entries_amount_not_negative")),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_entries_sequence_from_one")),
        sa.PrimaryKeyConstraint("account_id", "sequence", name=op.f("pk_entries")),
    )
    op.create_index(op.f("ix_entries_job_id"), "entries", ["job_id"])
    create_append_only_triggers(
        op.get_bind(), "entries", key=("account_id", "sequence")
    )
    op.create_table(
        "log_blocks",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("height", INTEGER, autoincrement=False, nullable=False),
        sa.Column("position", INTEGER, autoincrement=False, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "account_id", "height", "position", name=op.f("pk_log_blocks")
        ),
    )
    create_append_only_triggers(
        op.get_bind(), "log_blocks", key=("account_id", "height", "position")
    )
    op.create_table(
        "signers",
        sa.Column("ordinal", INTEGER, autoincrement=False, nullable=False),
        sa.Column("verifier_key", sa.Text(), nullable=False),
        sa.Column("pinned_at", INSTANT, nullable=False),
        sa.CheckConstraint("ordinal >= 1", name=op.f("ck_signers_ordinal_from_one")),
        sa.PrimaryKeyConstraint("ordinal", name=op.f("pk_signers")),
    )
    create_append_only_triggers(op.get_bind(), "signers", key=("ordinal",))


def _create_job_tables() -> None:
    """Creates jobs (queue and history in one table), the datasets that they read,
    approvals, and workers.
    """
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
        sa.Column("waits_since", INSTANT, nullable=False),
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
        sa.CheckConstraint(
            "(kind = 'train') = (algorithm IS NOT NULL)",
            name=op.f("ck_jobs_training_names_its_algorithm"),
        ),
        sa.CheckConstraint(
            "(state = 'running') = (lease_token IS NOT NULL)",
            name=op.f("ck_jobs_running_is_leased"),
        ),
        sa.CheckConstraint(
            "kind IN ('train', 'profile', 'evaluation')",
            name=op.f("ck_jobs_kind_known"),
        ),
        sa.CheckConstraint(
            "state <> 'succeeded' OR charged_at IS NOT NULL",
            name=op.f("ck_jobs_success_is_charged"),
        ),
        sa.CheckConstraint(
            "state IN ('waiting', 'queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_dataset_id"), "jobs", ["dataset_id"])
    op.create_index("ix_jobs_state_submitted_at", "jobs", ["state", "submitted_at"])
    op.create_index(
        "ix_jobs_state_submitted_by_submitted_at_id",
        "jobs",
        ["state", "submitted_by", "submitted_at", "id"],
    )
    op.create_index(
        "ix_jobs_submitted_by_charged_at_finished_at",
        "jobs",
        ["submitted_by", "charged_at", "finished_at"],
    )
    op.create_table(
        "job_datasets",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "dataset_id", name=op.f("pk_job_datasets")),
    )
    op.create_index(op.f("ix_job_datasets_dataset_id"), "job_datasets", ["dataset_id"])
    op.create_table(
        "approvals",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("decided_at", INSTANT, nullable=True),
        sa.CheckConstraint(
            "decision IN ('approve', 'reject')",
            name=op.f("ck_approvals_decision_known"),
        ),
        sa.CheckConstraint(
            "(decision IS NULL) = (decided_by IS NULL) AND (decision IS NULL) = (decided_at IS NULL)",
            name=op.f("ck_approvals_decision_is_of_a_key"),
        ),
        sa.PrimaryKeyConstraint("job_id", "dataset_id", name=op.f("pk_approvals")),
    )
    op.create_index(op.f("ix_approvals_dataset_id"), "approvals", ["dataset_id"])
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seen_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )


def _create_model_tables() -> None:
    """Creates models, their aliases, and the facts of their cards that can change after
    training.
    """
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
    op.create_index("ix_models_created_at_id", "models", ["created_at", "id"])
    op.create_index(op.f("ix_models_dataset_id"), "models", ["dataset_id"])
    op.create_index(op.f("ix_models_digest"), "models", ["digest"])
    op.create_table(
        "alias_moves",
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("number", INTEGER, nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=True),
        sa.Column("moved_by", sa.Text(), nullable=False),
        sa.Column("moved_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint(
            "dataset_id", "alias", "number", name=op.f("pk_alias_moves")
        ),
    )
    op.create_index(
        "ix_alias_moves_alias_dataset_name", "alias_moves", ["alias", "dataset_name"]
    )
    op.create_index(op.f("ix_alias_moves_model_id"), "alias_moves", ["model_id"])
    create_append_only_triggers(
        op.get_bind(), "alias_moves", key=("dataset_id", "alias", "number")
    )
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
    """Creates profiles and evaluations, and the models that were evaluated."""
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
    op.create_index(
        "ix_profiles_dataset_id_created_at_id",
        "profiles",
        ["dataset_id", "created_at", "id"],
    )
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
        sa.PrimaryKeyConstraint(
            "evaluation_id", "model_id", name=op.f("pk_evaluated_models")
        ),
    )
    op.create_index(
        op.f("ix_evaluated_models_model_id"), "evaluated_models", ["model_id"]
    )


def _create_webhook_tables() -> None:
    """Creates webhooks, and the events that wait for them."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Text(), nullable=True),
        sa.Column("is_low", sa.Boolean(), nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("next_at", INSTANT, nullable=False),
        sa.Column("failures", INTEGER, nullable=False),
        sa.Column("sealed_earlier_secret", sa.LargeBinary(), nullable=True),
        sa.Column("earlier_secret_until", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index(op.f("ix_webhooks_dataset_id"), "webhooks", ["dataset_id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "ix_webhook_deliveries_webhook_id_created_at_id",
        "webhook_deliveries",
        ["webhook_id", "created_at", "id"],
    )
