"""Writes exports as the service would, with another canonical serialiser than the verifier's own."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
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
    """The entries with sequence, previous_hash and hash made good again."""
    result: list[Fields] = []
    for sequence, entry in enumerate(entries, start=1):
        linked = {**entry, "sequence": sequence, "previous_hash": result[-1]["hash"] if result else "0" * 64}
        linked.pop("hash", None)
        linked["hash"] = hashlib.sha256(rfc8785.dumps(linked)).hexdigest()
        result.append(linked)
    return result


class Writer:
    """An export in the making. Every method returns the writer, so that a history reads as one line."""

    def __init__(
        self,
        *,
        cap: str = "3",
        shards: int = 0,
        max_rows: int = 1,
        adjacency: str = "add_remove",
        bound: bool = True,
        **facts: object,
    ) -> None:
        self.header: Fields = {
            "kind": "export",
            "format": 1,
            "dataset": "ds_test",
            "accountant": "pure",
            "cap": cap,
            "delta": None,
            "adjacency": adjacency,
            "privacy_unit": {"column": "person" if max_rows > 1 else None, "max_rows": max_rows},
            "partitions": [{"name": "shard", "kind": "hash", "cells": shards}] if shards else [],
            **facts,
        }
        self.entries: list[Fields] = []
        unbound = ("kind", "format", "cap")
        self.add("open", cap, details={k: v for k, v in self.header.items() if k not in unbound} if bound else None)

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
        at = datetime(2026, 11, 20, 9, tzinfo=UTC) + timedelta(seconds=len(self.entries))
        entry: Fields = {
            "kind": kind,
            "amount": amount,
            "scope": scope or {},
            "event": event,
            "job_id": job_id,
            "actor": "key_owner",
            "at": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
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
        """A reservation and, unless ``end`` is None, how it ended."""
        steps = ("reserve", end) if end else ("reserve",)
        for kind in steps:
            self.add(kind, amount, job_id=job_id, scope=scope, event=event, details=details)
        return self

    def lines(self) -> list[bytes]:
        return [json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in [self.header, *self.entries]]


@pytest.fixture
def export() -> Callable[..., Writer]:
    """Starts an export: ``export(cap="3", shards=4).job("jb_1", "1")``."""
    return Writer


@pytest.fixture
def rechained() -> Callable[[list[Fields]], list[Fields]]:
    """Redoes the chain, as a forger who can compute SHA-256 would."""
    return chained
