"""Fixes the visibility of datasets, and adds to models whether they have a privacy guarantee.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("datasets") as batch:
        batch.create_check_constraint(op.f("ck_datasets_visibility_known"), "visibility IN ('private', 'public')")
    _create_fixed_column_trigger(op.get_bind(), "datasets", "visibility")
    with op.batch_alter_table("models") as batch:
        batch.add_column(sa.Column("privacy", sa.Text(), nullable=False, server_default="differential"))
        batch.create_check_constraint(op.f("ck_models_privacy_known"), "privacy IN ('differential', 'none')")
    with op.batch_alter_table("models") as batch:
        batch.alter_column("privacy", existing_type=sa.Text(), existing_nullable=False, server_default=None)


def _create_fixed_column_trigger(connection: sa.Connection, table: str, column: str) -> None:
    """Refuses every UPDATE that changes a column's value. May be called again: the trigger is replaced.

    Args:
        connection: in a migration, ``op.get_bind()``.
        table: an existing table.
        column: a column of the table.
    """
    quote = connection.dialect.identifier_preparer.quote
    name, message = f"fixed_{table}_{column}", f"{column} of {table} never changes"
    quoted, of_table = quote(column), quote(table)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(
            f"CREATE TRIGGER {name} BEFORE UPDATE ON {of_table} FOR EACH ROW"
            f" WHEN NEW.{quoted} IS NOT OLD.{quoted} BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
        return
    refuse = f"RAISE EXCEPTION USING ERRCODE = 'restrict_violation', MESSAGE = '{message}'"
    connection.exec_driver_sql(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN {refuse}; END $body$"
    )
    connection.exec_driver_sql(
        f"CREATE OR REPLACE TRIGGER {name} BEFORE UPDATE ON {of_table} FOR EACH ROW"
        f" WHEN (NEW.{quoted} IS DISTINCT FROM OLD.{quoted}) EXECUTE FUNCTION {name}()"
    )
    # ALWAYS: otherwise session_replication_role = replica would turn the trigger off.
    connection.exec_driver_sql(f"ALTER TABLE {of_table} ENABLE ALWAYS TRIGGER {name}")
