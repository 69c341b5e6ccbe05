"""Sends several statements to PostgreSQL in one round trip. SQLite is in this process and has none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session


@contextmanager
def sent_together(session: Session) -> Iterator[None]:
    """Sends the statements of the block together when the block ends; nobody reads rows of them.

    A SELECT that locks goes through ``session.connection()``, because the session would read its rows. The server runs
    the statements in order, and none after one that failed.

    Raises:
        DBAPIError: a statement failed, or the connection did, as if the statement had been sent alone.
    """
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        yield
        return
    driver: Any = connection.connection.driver_connection
    dialect: Dialect = connection.dialect
    try:
        with driver.pipeline():
            yield
    except dialect.loaded_dbapi.Error as error:
        is_lost = dialect.is_disconnect(error, driver, None)
        raise DBAPIError.instance(
            None,
            None,
            error,
            dialect.loaded_dbapi.Error,
            hide_parameters=True,
            connection_invalidated=is_lost,
            dialect=dialect,
        ) from error
