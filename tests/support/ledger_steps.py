"""Defines the steps of random programs for the ledger and its model."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

UPLOADS = "month"
"""The partition whose cells are uploads."""

PARTITIONS: dict[str, dict[str, Any]] = {
    "shard": {"kind": "hash", "cells": 3},
    "coin": {"kind": "hash", "cells": 2},
    "region": {
        "kind": "column",
        "column": "land",
        "feature": False,
        "sizes": None,
        "cells": ["EU", "US", "OTHER"],
    },
    UPLOADS: {"kind": "epoch", "how": "one file per month"},
}


class Kind(Enum):
    """A kind of account: adjacency, unit column, rows per unit, and whether δ is set
    aside.
    """

    ROW = ("add_remove", None, 1, False)
    PATIENT = ("add_remove", "patient", 2, False)
    LABEL = ("label", None, 1, False)
    ASIDE = ("add_remove", None, 1, True)


@dataclass(frozen=True)
class Open:
    """Opens an account."""

    accountant: str
    kind: Kind
    cap: int
    names: list[str]


@dataclass(frozen=True)
class Reserve:
    """Submits a job that reserves an amount on a box.

    Attributes:
        account: number of the account, modulo the number of accounts.
        size: the amount, or ``exactly`` the largest amount that fits, or one step
            ``over`` that amount.
        picks: numbers of cells per partition of the box, modulo the number of cells.
        second_account: account of the job's second part, of one step: everywhere on
            another account; on the same account, in cells that the first part leaves
            out, if there are any.
    """

    account: int
    size: int | str
    picks: dict[str, frozenset[int]]
    second_account: int | None


@dataclass(frozen=True)
class External:
    """Charges for an external mechanism; with δ if the account sets δ aside."""

    account: int
    size: int | str
    picks: dict[str, frozenset[int]]
    delta: int


@dataclass(frozen=True)
class Settle:
    """Settles an earlier job (by number, modulo the number of jobs), which may be
    settled already.
    """

    job: int
    end: str


@dataclass(frozen=True)
class Cap:
    """Changes the cap of an account, or of the population (``None``)."""

    account: int | None
    cap: int


@dataclass(frozen=True)
class Join:
    """Joins an account to the population, if the two match."""

    account: int


@dataclass(frozen=True)
class Upload:
    """Adds an upload to an account, as a new cell of its partition by upload."""

    account: int


@dataclass(frozen=True)
class Erase:
    """Deletes the dataset of an account: voids its queued jobs and ends admission; the
    spend stays.
    """

    account: int


@dataclass(frozen=True)
class Crash:
    """Takes a step and rolls its transaction back instead of the commit."""

    step: "Step"


Step: TypeAlias = (
    Open | Reserve | External | Settle | Cap | Join | Upload | Erase | Crash
)
