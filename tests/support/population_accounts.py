"""Opens a population and its members and reserves on them, by the ledger's functions
alone.
"""

import dataclasses
from typing import Any

from sqlalchemy.orm import Session

from app.core import stamps
from app.ledger import accounts, populations, tables
from app.ledger import reservations as ledger
from app.ledger.populations import NewPopulation
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.support import reserving
from tests.support.crash_scene import EVENT, OWNER

SHARDS = Partitions.from_json([{"name": "shard", "kind": "hash", "cells": 3}])

PURE = accounts.NewAccount(
    id="", name="census", accountant="pure", adjacency="add_remove", cap=100, delta=None,
    privacy_unit={"column": None, "max_rows": 1}, partitions=SHARDS,
)  # fmt: skip

ZCDP = dataclasses.replace(PURE, accountant="zcdp", delta="0.000001")


def opened(
    session: Session, *members: str, like: accounts.NewAccount = PURE, cap: int = 100
) -> None:
    """Opens the population and its members."""
    new_population = NewPopulation(
        "pop_a", "patients", like.accountant, cap, like.delta, OWNER.key_id
    )
    populations.open_population(session, new_population, at=stamps.now())
    for name in members:
        account(session, name, like)
        join(session, name)


def account(
    session: Session, name: str, like: accounts.NewAccount = PURE, **changes: Any
) -> None:
    """Opens an account."""
    accounts.open_account(
        session, dataclasses.replace(like, id=name, **changes), actor=OWNER.key_id
    )


def join(session: Session, name: str) -> None:
    """Joins an account to the population."""
    populations.join(session, "pop_a", name, actor=OWNER.key_id, at=stamps.now())


def reserve(session: Session, name: str, amount: int, job: str, *shards: int) -> str:
    """Reserves steps for a job, on the given cells or on all cells."""
    scope = {"shard": shards} if shards else {}
    return reserving.reserve(
        session,
        [ledger.NewReservation(name, amount, Scope(scope), EVENT, job)],
        actor="key_a",
    )[0]


def said(session: Session, name: str = "pop_a") -> list[tuple[str, int]]:
    """Kind and amount of every entry of an account."""
    return [
        (entry.kind.value, entry.amount)
        for entry in tables.entries(session, name, after=0, limit=1_000)
    ]
