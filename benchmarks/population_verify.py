"""Measures the verification of a population, alone and together with the export of its
one busy member.

Run ``python -m benchmarks.population_verify`` (about two minutes; ``--jobs 1000`` for a
look). The script writes the exports as the service does: every job is reserved on one
of thirty distinct boxes and charged, every tenth voided instead. The output is CPU of
this process for each job, because other work shares the machine.
"""

import argparse
import hashlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import rfc8785

from grovekeeper_verifier import dataset_replay, population_replay
from grovekeeper_verifier.member_comparison import MemberLedger

Fields = dict[str, Any]
CELLS = 10
N_BOXES = 30
CAP = "1000000"
FREE = {"type": "sequential/1", "parts": []}
FACTS = {"accountant": "pure", "delta": None}


@dataclass
class Export:
    """An export under construction; ``facts`` are the account's facts in its header and
    its first entry.
    """

    facts: Fields
    lines: list[bytes] = field(default_factory=list)
    newest: Fields = field(default_factory=lambda: {"sequence": 0, "hash": "0" * 64})

    def add(self, kind: str, amount: str, **more: Any) -> None:
        body = {
            "sequence": self.newest["sequence"] + 1, "kind": kind, "amount": amount, "scope": {}, "event": None,
            "job_id": None, "actor": "key_a", "at": "2026-11-20T09:00:00.000000Z",
            "previous_hash": self.newest["hash"], **more,
        }  # fmt: skip
        self.newest = {**body, "hash": hashlib.sha256(rfc8785.dumps(body)).hexdigest()}
        self.lines.append(rfc8785.dumps(self.newest) + b"\n")

    def file(self) -> list[bytes]:
        header = {"kind": "export", "format": 1, "cap": CAP, **self.facts}
        return [rfc8785.dumps(header) + b"\n", *self.lines]


def history(n_jobs: int, n_partitions: int) -> tuple[Export, Export]:
    """The exports of a population and of its member, which paid 1 ε for each job."""
    partitions = [
        {"name": f"p{axis}", "kind": "hash", "cells": CELLS}
        for axis in range(n_partitions)
    ]
    unit = {
        "adjacency": "add_remove",
        "privacy_unit": {"column": None, "max_rows": 1},
        "partitions": partitions,
    }
    member = Export({"dataset": "ds_a", **FACTS, **unit})
    member.add("open", CAP, details=member.facts)
    people = Export({"population": "pop_a", **FACTS})
    people.add("open", CAP, details=people.facts)
    joined = {"adjacency": "add_remove", "unit_column": None, "highest_cap": CAP}
    people.add("join", "0", details={"member": {**named(member), **joined}})
    chosen = random.Random(1)
    boxes = [box(chosen, n_partitions) for _ in range(N_BOXES)]
    joint = list(product(range(CELLS), repeat=n_partitions))
    covered = [
        [at for at, cell in enumerate(joint) if lies_in(cell, scope)] for scope in boxes
    ]
    loads = [0] * len(joint)
    for number in range(n_jobs):
        index, job_id = chosen.randrange(N_BOXES), f"jb_{number}"
        for kind in ("reserve", "void" if number % 10 == 0 else "charge"):
            member.add(kind, "1", scope=boxes[index], job_id=job_id, event=FREE)
            if kind == "charge":
                continue
            for at in covered[index]:
                loads[at] += 1 if kind == "reserve" else -1
            people.add(
                "load",
                str(max(loads)),
                job_id=job_id,
                details={"member": named(member)},
            )
    return people, member


def lies_in(cell: tuple[int, ...], scope: Fields) -> bool:
    """Whether a joint cell lies in a box."""
    return all(cell[int(name[1:])] in cells for name, cells in scope.items())


def named(member: Export) -> Fields:
    """The newest entry of a member, as the entries of its population name it."""
    return {
        "dataset": "ds_a",
        "sequence": member.newest["sequence"],
        "hash": member.newest["hash"],
    }


def box(chosen: random.Random, n_partitions: int) -> Fields:
    """One cell, half of the cells or all of them, of each partition."""
    sizes = {
        f"p{axis}": chosen.choice((1, CELLS // 2, CELLS))
        for axis in range(n_partitions)
    }
    return {
        name: sorted(chosen.sample(range(CELLS), size))
        for name, size in sizes.items()
        if size < CELLS
    }


def seconds(check: Callable[[], object]) -> float:
    """CPU seconds of one verification."""
    begun = time.process_time()
    check()
    return time.process_time() - begun


def rows(n_jobs: int) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| partitions | jobs | member alone µs | population alone µs | both, compared µs |"
    yield "|---|---|---|---|---|"
    for n_partitions in range(4):
        people, member = (export.file() for export in history(n_jobs, n_partitions))
        ledgers = [MemberLedger(member, (), file="member")]
        costs = [
            seconds(partial(dataset_replay.verify, member)),
            seconds(partial(population_replay.verify, people)),
            seconds(partial(population_replay.verify, people, ledgers)),
        ]
        yield (
            f"| {n_partitions} | {n_jobs:,} | "
            + " | ".join(f"{1e6 * cost / n_jobs:.0f}" for cost in costs)
            + " |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    for row in rows(parser.parse_args().jobs):
        print(row, flush=True)
