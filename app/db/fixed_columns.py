"""Makes a column unchangeable with a trigger of the database.

Migrations call :func:`create_fixed_column_trigger`, and again after a batch rebuild, which drops triggers on SQLite.
"""

from sqlalchemy import Connection


def create_fixed_column_trigger(connection: Connection, table: str, column: str) -> None:
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
