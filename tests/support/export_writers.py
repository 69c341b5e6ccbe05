"""Writes exports like the service's, with a canonical serialiser that is independent of
the verifier's.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import rfc8785

Fields = dict[str, Any]
NANO_EVENT = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "inverse_scale": "1/4",
    "coordinates": 16,
}


def chained(entries: list[Fields]) -> list[Fields]:
    """The entries with sequence, previous_hash and hash recomputed."""
    result: list[Fields] = []
    for sequence, entry in enumerate(entries, start=1):
        linked = {
            **entry,
            "sequence": sequence,
            "previous_hash": result[-1]["hash"] if result else "0" * 64,
        }
        linked.pop("hash", None)
        linked["hash"] = hashlib.sha256(rfc8785.dumps(linked)).hexdigest()
        result.append(linked)
    return result


def at(second: int) -> str:
    """A time in the format of entries."""
    return (datetime(2026, 11, 20, 9, tzinfo=UTC) + timedelta(seconds=second)).strftime(
        "%Y-%m-%dT%H:%M:%S.%fZ"
    )


def decimal(amount: Fraction) -> str:
    """The shortest exact text of a sum of decimals."""
    return format(Decimal(amount.numerator) / Decimal(amount.denominator), "f")


class Writer:
    """Builds an export. Every method returns the writer, so that a history reads as one
    line.
    """

    def __init__(
        self,
        *,
        cap: str = "3",
        shards: int = 0,
        max_rows: int = 1,
        adjacency: str = "add_remove",
        clock: Iterator[int] | None = None,
        **facts: object,
    ) -> None:
        self.clock = clock or itertools.count()
        self.header: Fields = {
            "kind": "export",
            "format": 1,
            "dataset": "ds_test",
            "accountant": "pure",
            "cap": cap,
            "delta": None,
            "adjacency": adjacency,
            "privacy_unit": {
                "column": "person" if max_rows > 1 else None,
                "max_rows": max_rows,
            },
            "partitions": [{"name": "shard", "kind": "hash", "cells": shards}]
            if shards
            else [],
            **facts,
        }
        self.entries: list[Fields] = []
        unbound = ("kind", "format", "cap")
        self.add(
            "open",
            cap,
            details={k: v for k, v in self.header.items() if k not in unbound},
        )

    def add(
        self,
        kind: str,
        amount: str,
        *,
        job_id: str | None = None,
        scope: Fields | None = None,
        event: object = None,
        details: Fields | None = None,
    ) -> "Writer":
        entry: Fields = {
            "kind": kind,
            "amount": amount,
            "scope": scope or {},
            "event": event,
            "job_id": job_id,
            "actor": "key_owner",
            "at": at(next(self.clock)),
        }
        if details is not None:
            entry["details"] = details
        self.entries = chained([*self.entries, entry])
        return self

    def job(
        self,
        job_id: str,
        amount: str,
        end: str | None = "charge",
        *,
        scope: Fields | None = None,
        event: object = NANO_EVENT,
        details: Fields | None = None,
    ) -> "Writer":
        """Adds a reservation and, unless ``end`` is None, its end."""
        steps = ("reserve", end) if end else ("reserve",)
        for kind in steps:
            self.add(
                kind, amount, job_id=job_id, scope=scope, event=event, details=details
            )
        return self

    def lines(self) -> list[bytes]:
        return [
            json.dumps(line, ensure_ascii=False).encode() + b"\n"
            for line in [self.header, *self.entries]
        ]


class People:
    """Builds the export of a population and those of its members, on one clock.

    Loads are computed by a loop over every joint cell of a member. After a test changes
    a line, the later lines stay as they are: :func:`chained` recomputes their hashes
    and nothing else.
    """

    def __init__(
        self, *, cap: str = "3", accountant: str = "pure", delta: str | None = None
    ) -> None:
        self.facts: Fields = {"accountant": accountant, "delta": delta}
        self.header: Fields = {
            "kind": "export",
            "format": 1,
            "population": "pop_test",
            "cap": cap,
            **self.facts,
        }
        self.clock = itertools.count()
        self.members: dict[str, Writer] = {}
        self.highest: dict[str, str] = {}
        self.entries: list[Fields] = []
        self._add("open", cap, {"population": "pop_test", **self.facts})

    def declare(self, dataset: str, *, cap: str = "3", **options: Any) -> "People":
        """Declares a dataset that is not yet a member."""
        self.members[dataset] = Writer(
            dataset=dataset, cap=cap, clock=self.clock, **{**self.facts, **options}
        )
        self.highest[dataset] = cap
        return self

    def join(self, dataset: str, **options: Any) -> "People":
        """Makes a dataset a member, and declares it first if necessary."""
        if dataset not in self.members:
            self.declare(dataset, **options)
        header = self.members[dataset].header
        unit = {
            "adjacency": header["adjacency"],
            "unit_column": header["privacy_unit"]["column"],
        }
        return self._say("join", dataset, **unit, highest_cap=self.highest[dataset])

    def job(
        self,
        dataset: str,
        job_id: str,
        amount: str,
        end: str | None = "charge",
        **options: Any,
    ) -> "People":
        """Adds a reservation on a dataset, a member or not, and its end."""
        self.step(dataset, "reserve", job_id, amount, **options)
        return self.step(dataset, end, job_id, amount, **options) if end else self

    def step(
        self, dataset: str, kind: str, job_id: str, amount: str, **options: Any
    ) -> "People":
        """Adds one entry to a dataset's ledger, and the load entry that follows from
        it.
        """
        self.members[dataset].add(
            kind, amount, job_id=job_id, **{"event": NANO_EVENT, **options}
        )
        joined = {
            entry["details"]["member"]["dataset"]
            for entry in self.entries
            if entry["kind"] == "join"
        }
        return (
            self._say("load", dataset, job_id=job_id)
            if dataset in joined and kind != "charge"
            else self
        )

    def cap(self, amount: str) -> "People":
        """Puts another cap of the population in force."""
        self.header["cap"] = amount
        return self._add("cap", amount, {"reason": "asked for by the board"})

    def load(self, dataset: str) -> str:
        """The largest amount in any joint cell of a dataset."""
        writer = self.members[dataset]
        axes = [
            [(part["name"], cell) for cell in range(part["cells"])]
            for part in writer.header["partitions"]
        ]
        sums = []
        for joint in itertools.product(*axes):
            cell = dict(joint)
            held = [
                entry
                for entry in writer.entries
                if all(cell[name] in cells for name, cells in entry["scope"].items())
            ]
            signs = {"reserve": 1, "void": -1, "expire": -1}
            sums.append(
                sum(
                    (
                        signs.get(each["kind"], 0) * Fraction(each["amount"])
                        for each in held
                    ),
                    Fraction(0),
                )
            )
        return decimal(max(sums))

    def lines(self) -> list[bytes]:
        return [
            json.dumps(line).encode() + b"\n" for line in [self.header, *self.entries]
        ]

    def _say(
        self, kind: str, dataset: str, *, job_id: str | None = None, **facts: object
    ) -> "People":
        newest = self.members[dataset].entries[-1]
        named = {
            "dataset": dataset,
            "sequence": newest["sequence"],
            "hash": newest["hash"],
        }
        return self._add(
            kind, self.load(dataset), {"member": {**named, **facts}}, job_id=job_id
        )

    def _add(
        self, kind: str, amount: str, details: Fields, *, job_id: str | None = None
    ) -> "People":
        entry: Fields = {
            "kind": kind,
            "amount": amount,
            "scope": {},
            "event": None,
            "job_id": job_id,
            "actor": "key_owner",
        }
        self.entries = chained(
            [*self.entries, {**entry, "at": at(next(self.clock)), "details": details}]
        )
        return self
