"""Makes tables append-only with triggers and grants of the database.

Migrations call :func:`create_append_only_triggers` when they create an append-only
table, and again after a batch rebuild, which drops triggers on SQLite. Alembic's
autogenerate does not see triggers; tests/database/migrations checks them.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, text

_PREFIX = "append_only"


def create_append_only_triggers(
    connection: Connection, table: str, *, key: Sequence[str]
) -> None:
    """Refuses UPDATE, DELETE, an INSERT whose ``key`` is taken, and on PostgreSQL
    TRUNCATE.

    May be called again: triggers of the same table are replaced.

    Args:
        connection: in a migration, ``op.get_bind()``.
        key: columns that identify a row for ever, such as ``("account_id",
            "sequence")``.
    """
    quote = connection.dialect.identifier_preparer.quote
    taken = " AND ".join(f"{quote(column)} = NEW.{quote(column)}" for column in key)
    if connection.dialect.name == "sqlite":
        _create_on_sqlite(connection, table, taken=taken)
    else:
        _create_on_postgresql(connection, table, taken=taken)


def _create_on_sqlite(connection: Connection, table: str, *, taken: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote(table)
    refuse = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    conditions = {
        "UPDATE": "",
        "DELETE": "",
        "INSERT": f"WHEN EXISTS (SELECT 1 FROM {quoted} WHERE {taken})",
    }
    for change, condition in conditions.items():
        name = f"{_PREFIX}_{table}_{change.lower()}"
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(
            f"CREATE TRIGGER {name} BEFORE {change} ON {quoted} FOR EACH ROW {condition} {refuse}"
        )


def _create_on_postgresql(connection: Connection, table: str, *, taken: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote(table)
    refuse = f"RAISE EXCEPTION USING ERRCODE = 'restrict_violation', MESSAGE = '{table} is append-only'"
    bodies = {
        "UPDATE": f"BEGIN {refuse}; END",
        "DELETE": f"BEGIN {refuse}; END",
        "TRUNCATE": f"BEGIN {refuse}; END",
        "INSERT": f"BEGIN IF EXISTS (SELECT 1 FROM {quoted} WHERE {taken}) THEN {refuse}; END IF; RETURN NEW; END",
    }
    for change, body in bodies.items():
        name = f"{_PREFIX}_{table}_{change.lower()}"
        # A statement-level trigger refuses an UPDATE or DELETE even if no row matches
        # it.
        level = "ROW" if change == "INSERT" else "STATEMENT"
        connection.exec_driver_sql(
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $body$ {body} $body$"
        )
        connection.exec_driver_sql(
            f"CREATE OR REPLACE TRIGGER {name} BEFORE {change} ON {quoted} FOR EACH {level} EXECUTE FUNCTION {name}()"
        )
        # ALWAYS: otherwise session_replication_role = replica would turn the trigger
        # off.
        connection.exec_driver_sql(f"ALTER TABLE {quoted} ENABLE ALWAYS TRIGGER {name}")


def append_only_tables(connection: Connection) -> frozenset[str]:
    """The tables that have the UPDATE trigger above, according to the database's
    catalogue.
    """
    if connection.dialect.name == "sqlite":
        query = "SELECT tbl_name, name FROM sqlite_schema WHERE type = 'trigger'"
    else:
        query = (
            "SELECT relname, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
            " WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal"
        )
    # by the name, since a foreign key has triggers of its own
    triggers = connection.execute(text(query))
    return frozenset(
        table for table, name in triggers if name == f"{_PREFIX}_{table}_update"
    )


def grant_to_service(connection: Connection, role: str) -> None:
    """Grants the service's role on PostgreSQL the rights that it needs; run by the
    owner after every upgrade.

    Append-only tables: SELECT and INSERT. The revision table: SELECT. Every other
    table: SELECT, INSERT, UPDATE and DELETE. The role gets no TRUNCATE, no ownership
    and no right to drop or disable a trigger.

    Args:
        connection: a connection of the role that owns the tables, inside a transaction.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    schema = quote(connection.execute(text("SELECT current_schema()")).scalar_one())
    append_only = append_only_tables(connection)
    names = connection.execute(
        text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    ).scalars()
    connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {quote(role)}")
    connection.exec_driver_sql(
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {quote(role)}"
    )
    for name in names.all():
        # Revoked first: an earlier version or an operator may have granted more.
        rights = "SELECT, INSERT, UPDATE, DELETE"
        if name in append_only:
            rights = "SELECT, INSERT"
        elif name == "alembic_version":
            # the service checks the revision, and never sets it
            rights = "SELECT"
        connection.exec_driver_sql(
            f"REVOKE ALL ON {schema}.{quote(name)} FROM {quote(role)}"
        )
        connection.exec_driver_sql(
            f"GRANT {rights} ON {schema}.{quote(name)} TO {quote(role)}"
        )
