"""Tampering with a dataset's export: every value of every line changed, removed or
added, and found.

The history has every kind of entry, every kind of partition, details of every form, and
δ set aside. The changes are enumerated from the lines themselves, so the test covers a
new field of the export without a change.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.ledger import checkpoints
from grovekeeper_verifier.checkpoints import ORIGIN, Checkpoint
from grovekeeper_verifier.dataset_replay import Summary, verify
from grovekeeper_verifier.export_lines import NotVerified
from tests.support.subtrees import subtrees
from tests.support.tampering import changed, every_change, places

Export = Callable[..., Any]
PARTITIONS = [
    {"name": "shard", "kind": "hash", "cells": 4},
    {
        "name": "region",
        "kind": "column",
        "column": "land",
        "feature": False,
        "cells": ["EU", "US", "OTHER"],
        "sizes": [1000, 2000, 100],
    },
    {"name": "upload", "kind": "epoch", "how": "one file per month"},
]
NOISE = {
    "type": "rounded-gaussian/1",
    "adjacency": "add_remove",
    "l2_sensitivity_squared": "1",
    "sigma_squared": "100",
    "coordinates": 4,
}
TREES = {"type": "sequential/1", "parts": [{"times": 2, "event": NOISE}]}
SHARDS = {
    "type": "parallel/1",
    "over": "shards",
    "parts": [{"times": 4, "event": NOISE}],
}
WORD = {
    "attested_by": "key_ann",
    "description": "another team's training",
    "per": "row",
}
DP_SGD = {
    **WORD,
    "declared": {"adjacency": "add_remove", "epsilon": "0.1", "delta": "0.00001"},
    "delta": "0.00001",
}
CONTINUED = {
    "dataset": "ds_erased",
    "sequence": 9,
    "hash": "ab" * 32,
    "highest_cap": "0.2",
    "delta": "0.000001",
}


@pytest.fixture
def history(export: Export) -> Any:
    facts = {
        "accountant": "zcdp",
        "delta": "0.0001",
        "delta_set_aside": "0.00002",
        "partitions": PARTITIONS,
    }
    writer = export(cap="0.1", **facts)
    writer.add("load", "0.001", details={"continues": CONTINUED})
    writer.job("jb_1", "0.01", event=TREES).job(
        "jb_2", "0.01", "void", event=TREES, scope={"region": ["EU", "US"]}
    )
    writer.add("cap", "0.08", details={"reason": "asked for by the board"})
    writer.job(
        "jb_3",
        "0.01",
        "expire",
        event=SHARDS,
        scope={"shard": [0, 3], "upload": ["ep_1", "ep_2"]},
    )
    writer.job("rs_4", "0.01", event=None, details=DP_SGD)
    writer.job("rs_5", "0.005", event=NOISE, details=WORD, scope={"shard": [1]})
    writer.job("jb_6", "0.005", None, event=SHARDS)
    writer.job(
        "jb_7",
        "0.005",
        event=SHARDS,
        details={"purpose": "the yearly report"},
        scope={"shard": [2]},
    )
    writer.header["cap"] = "0.08"
    return writer


def _failure(
    lines: list[dict[str, Any]], checkpoints: tuple[Checkpoint, ...] = ()
) -> NotVerified | None:
    try:
        verify([json.dumps(line).encode() + b"\n" for line in lines], checkpoints)
    except NotVerified as failure:
        return failure
    return None


def _checkpoint(writer: Any) -> Checkpoint:
    size = len(writer.entries)
    return Checkpoint(
        f"{ORIGIN}ds_test",
        size,
        checkpoints.root_of(size, subtrees(writer.entries)),
        "2026-11-20T10:00:00.000000Z",
    )


def test_the_history_is_verified_and_rich(history: Any) -> None:
    summary: Summary = verify(history.lines(), [_checkpoint(history)])
    assert set(summary.kinds) == {
        "open",
        "load",
        "reserve",
        "charge",
        "void",
        "expire",
        "cap",
    }
    assert summary.attested == {"key_ann": 2}
    assert sum(1 for entry in history.entries for _ in places(entry)) > 250


def test_every_change_of_an_entry_is_detected_on_its_line(
    history: Any, step: int
) -> None:
    lines = [history.header, *history.entries]
    for number, entry in enumerate(history.entries, start=2):
        for path, forged in every_change(entry, step=step):
            failure = _failure([*lines[: number - 1], forged, *lines[number:]])
            assert failure is not None, (number, path, forged)
            assert failure.line == number, (number, path, failure)


def test_every_change_of_the_header_is_detected_before_the_second_entry(
    history: Any,
) -> None:
    for path in places(history.header):
        for forged in changed(history.header, path):
            failure = _failure([forged, *history.entries])
            assert failure is not None, (path, forged)
            assert failure.line in (1, 2), (path, failure)


def test_every_change_with_a_recomputed_chain_contradicts_a_checkpoint(
    history: Any,
    rechained: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    step: int,
) -> None:
    """Some changed histories look honest: other actors, other times. Only a checkpoint
    detects them.
    """
    checkpoint = _checkpoint(history)
    accepted_without, enough = 0, 20
    for index, entry in enumerate(history.entries):
        for path, forged in every_change(entry, step=step):
            if path[0] in ("hash", "previous_hash", "sequence"):
                continue  # recomputed with the chain
            entries = rechained(
                [*history.entries[:index], forged, *history.entries[index + 1 :]]
            )
            if accepted_without < enough:
                accepted_without += _failure([history.header, *entries]) is None
            assert _failure([history.header, *entries], (checkpoint,)) is not None, (
                index,
                path,
                forged,
            )
    assert accepted_without == enough, "otherwise the chain alone would do"


def test_entries_dropped_doubled_or_moved_contradict_a_checkpoint_even_with_a_new_chain(
    history: Any, rechained: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    checkpoint, entries = _checkpoint(history), history.entries
    for index in range(len(entries)):
        dropped = [*entries[:index], *entries[index + 1 :]]
        doubled = [*entries[: index + 1], *entries[index:]]
        moved = [
            *entries[:index],
            *entries[index + 1 : index + 2],
            entries[index],
            *entries[index + 2 :],
        ]
        is_last = index + 1 == len(entries)
        assert _failure([history.header, *doubled]) is not None
        assert is_last or _failure([history.header, *dropped]) is not None
        assert is_last or _failure([history.header, *moved]) is not None
        for forged in (dropped, doubled, moved):
            failure = _failure([history.header, *rechained(forged)], (checkpoint,))
            assert failure is not None or (is_last and forged is moved), index
    for kept in range(1, len(entries)):
        failure = _failure(
            [{**history.header, "cap": "0.1" if kept < 6 else "0.08"}, *entries[:kept]],
            (checkpoint,),
        )
        assert failure is not None
        assert "the export was truncated" in failure.reason
