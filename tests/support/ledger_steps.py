"""The steps of which programs for a ledger and its model are made."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

UPLOADS = "month"
"""The partition whose cells are uploads."""

PARTITIONS: dict[str, dict[str, Any]] = {
    "shard": {"kind": "hash", "cells": 3},
    "coin": {"kind": "hash", "cells": 2},
    "region": {"kind": "column", "column": "land", "feature": False, "sizes": None, "cells": ["EU", "US", "OTHER"]},
    UPLOADS: {"kind": "epoch", "how": "one file per month"},
}


class Kind(Enum):
    """What an account protects: (adjacency, unit column, rows per unit, whether δ is set aside)."""

    ROW = ("add_remove", None, 1, False)
    PATIENT = ("add_remove", "patient", 2, False)
    LABEL = ("label", None, 1, False)
    ASIDE = ("add_remove", None, 1, True)


@dataclass(frozen=True)
class Open:
    """A new account."""

    accountant: str
    kind: Kind
    cap: int
    names: list[str]


@dataclass(frozen=True)
class Reserve:
    """Asks for an amount in a box, which picks cells of some partitions by number (counted round); ``exactly`` = what
    fits, ``over`` = one step more. A job on two accounts asks the second one for one step everywhere; a job with two
    parts on one account, for one step in cells that the first part leaves out, if it leaves out any."""

    account: int
    size: int | str
    picks: dict[str, frozenset[int]]
    also: int | None


@dataclass(frozen=True)
class Elsewhere:
    """Charges at once for a mechanism that runs elsewhere; with δ, where the account sets some aside."""

    account: int
    size: int | str
    picks: dict[str, frozenset[int]]
    delta: int


@dataclass(frozen=True)
class Settle:
    """Ends an earlier job (counted round), which may have ended before."""

    job: int
    end: str


@dataclass(frozen=True)
class Cap:
    """Puts another cap in force, of an account or (``None``) of the population."""

    account: int | None
    cap: int


@dataclass(frozen=True)
class Join:
    """An account becomes a member, if it may."""

    account: int


@dataclass(frozen=True)
class Upload:
    """A new cell of an account, where uploads are cells."""

    account: int


@dataclass(frozen=True)
class Erase:
    """The rows of an account go: jobs that wait are void, nothing is admitted any more, and its spend stays."""

    account: int


@dataclass(frozen=True)
class Crash:
    """A step whose transaction ends before its commit, when all of it has been written."""

    step: "Step"


Step: TypeAlias = Open | Reserve | Elsewhere | Settle | Cap | Join | Upload | Erase | Crash
