"""Puts models, profiles and evaluations into one table of releases, so that a new kind
of release needs no table.

Revision ID: 0101
Revises: 0100
"""

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")

COPIES = (
    """
    INSERT INTO releases
        (id, kind, name, dataset_id, dataset_name, job_id, algorithm, digest, size_bytes, body, created_at)
    SELECT id, 'train', name, dataset_id, dataset_name, job_id, algorithm, digest, size_bytes, NULL, created_at
    FROM models
    """,
    """
    INSERT INTO releases
        (id, kind, name, dataset_id, dataset_name, job_id, algorithm, digest, size_bytes, body, created_at)
    SELECT id, 'profile', name, dataset_id, dataset_name, job_id, NULL, NULL, NULL, body, created_at
    FROM profiles
    """,
    """
    INSERT INTO releases
        (id, kind, name, dataset_id, dataset_name, job_id, algorithm, digest, size_bytes, body, created_at)
    SELECT id, 'evaluation', name, dataset_id, dataset_name, job_id, NULL, NULL, NULL, body, created_at
    FROM evaluations
    """,
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # Otherwise a worker could register a model between the copy of its table and
        # the end of the table. A worker locks its job before it adds a release: the
        # same order, or both would wait for each other.
        op.execute(
            "LOCK TABLE jobs, models, profiles, evaluations, evaluated_models IN ACCESS EXCLUSIVE MODE"
        )
    op.create_table(
        "releases",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("dataset_id", sa.Text(), nullable=False),
        sa.Column("dataset_name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("size_bytes", INTEGER, nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.CheckConstraint(
            "(digest IS NULL) = (size_bytes IS NULL) AND (digest IS NULL) = (body IS NOT NULL)",
            name=op.f("ck_releases_file_or_body"),
        ),
        sa.CheckConstraint(
            "(kind = 'train') = (algorithm IS NOT NULL)",
            name=op.f("ck_releases_model_has_algorithm"),
        ),
        sa.CheckConstraint(
            "kind <> 'train' OR digest IS NOT NULL",
            name=op.f("ck_releases_model_is_file"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
        sa.UniqueConstraint("job_id", name=op.f("uq_releases_job_id")),
    )
    for copy in COPIES:
        op.execute(copy)
    op.create_index(
        "ix_releases_kind_created_at_id", "releases", ["kind", "created_at", "id"]
    )
    op.create_index(
        "ix_releases_dataset_id_kind_created_at_id",
        "releases",
        ["dataset_id", "kind", "created_at", "id"],
    )
    op.create_index(op.f("ix_releases_digest"), "releases", ["digest"])
    for table in ("models", "profiles", "evaluations"):
        op.drop_table(table)
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("release_id", sa.Text(), nullable=True))
        jobs.drop_constraint(op.f("ck_jobs_kind_known"), type_="check")
    op.execute(
        "UPDATE jobs SET release_id = COALESCE(model_id, profile_id, evaluation_id)"
    )
    with op.batch_alter_table("jobs") as jobs:
        for column in ("model_id", "profile_id", "evaluation_id"):
            jobs.drop_column(column)
