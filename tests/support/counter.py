"""Increments a counter in a database, as a process that tests start and kill.

``python -m tests.support.counter <url> <times>`` adds one to the counter, ``<times>``
times, each in its own transaction. With ``<times>`` 0, it begins one write transaction,
prints ``holding`` and keeps the transaction open.
"""

import sys
import time

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.db.database import Database


def count_up(database: Database, times: int) -> None:
    """Reads the counter, adds one and writes it, so that a lost update shows in the
    sum.
    """
    for _ in range(times):
        with database.write() as session:
            add_one(session)


def add_one(session: Session) -> None:
    """Increments the counter inside a write transaction."""
    locked = " FOR UPDATE" if session.get_bind().dialect.name == "postgresql" else ""
    value = session.execute(text(f"SELECT value FROM counter{locked}")).scalar_one()
    session.execute(text("UPDATE counter SET value = :value"), {"value": value + 1})


def _hold_transaction(database: Database) -> None:
    with database.write() as session:
        add_one(session)
        print("holding", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    opened = Database.open(sys.argv[1])
    times = int(sys.argv[2])
    if times:
        count_up(opened, times)
    else:
        _hold_transaction(opened)
