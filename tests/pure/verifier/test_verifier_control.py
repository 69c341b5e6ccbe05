"""The export of the control chain: every check of its acts, and the output of the
command.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from app.ledger.tables import FIRST_PREVIOUS_HASH, Entry, EntryKind
from grovekeeper_verifier import control_export
from grovekeeper_verifier.checkpoints import Checkpoint
from grovekeeper_verifier.export_lines import NotVerified
from grovekeeper_verifier.main import NOT_VERIFIED, VERIFIED, run

HEADER = {"kind": "export", "format": 1, "log": "control"}
ACTS: list[tuple[EntryKind, dict[str, Any]]] = [
    (EntryKind.OPEN, {"log": "control"}),
    (EntryKind.KEY_MADE, {"key": "key_a", "roles": ["admin"]}),
    (EntryKind.GRANT_MADE, {"dataset": "ds_a", "key": "key_b", "role": "analyst"}),
    (EntryKind.GRANT_REMOVED, {"dataset": "ds_a", "key": "key_b"}),
    (
        EntryKind.KEY_ROTATED,
        {"key": "key_b", "expires_at": "2027-01-01T00:00:00.000000Z"},
    ),
    (
        EntryKind.HISTORY_LOST,
        {"account": "ds_a", "entries": 2, "head": {"size": 3, "root": "00" * 32}},
    ),
    (EntryKind.HISTORY_LOST, {"account": "ds_b", "entries": 2}),
    (EntryKind.KEY_REVOKED, {"key": "key_a"}),
]


def _entries(
    acts: list[tuple[EntryKind, dict[str, Any]]] = ACTS, **changes: Any
) -> list[Entry]:
    """Sealed entries; ``changes`` are fields of the last one."""
    entries: list[Entry] = []
    for sequence, (kind, details) in enumerate(acts, start=1):
        entry = Entry(
            sequence=sequence,
            kind=kind,
            amount=0,
            scope={},
            event=None,
            job_id=None,
            actor="operator",
            at="2026-11-20T09:30:00.000000Z",
            previous_hash=entries[-1].hash if entries else FIRST_PREVIOUS_HASH,
            places=9,
            details=details,
        )
        entries.append(
            replace(entry, **(changes if sequence == len(acts) else {})).sealed()
        )
    return entries


def _lines(entries: list[Entry], header: dict[str, object] = HEADER) -> list[bytes]:
    return [
        rfc8785.dumps(line) + b"\n"
        for line in (header, *(entry.to_json() for entry in entries))
    ]


def test_a_control_chain_is_verified() -> None:
    summary = control_export.verify(_lines(_entries()))
    assert (summary.last.sequence, sum(summary.kinds.values())) == (8, 8)


def test_every_kind_of_act_has_its_details() -> None:
    of_accounts = {
        "reserve",
        "charge",
        "void",
        "expire",
        "cap",
        "join",
        "load",
        "state",
    }
    assert (
        set(control_export._DETAILS) == {kind.value for kind in EntryKind} - of_accounts
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"details": {"key": "key_a", "unit": "bob"}}, "details of key-revoked"),
        ({"details": None}, "details of key-revoked"),
        ({"details": {"key": "key_a", "expires_at": "2027"}}, "details of key-revoked"),
        ({"kind": EntryKind.CHARGE}, "not one of administrative acts"),
        ({"amount": 1}, "carries an amount"),
        ({"scope": {"shard": [0]}}, "carries an amount"),
        ({"job_id": "jb_a"}, "carries an amount"),
        ({"previous_hash": "1" * 64}, "previous_hash"),
        ({"at": "2026-11-19T09:30:00.000000Z"}, "time is before"),
    ],
)
def test_an_act_of_another_form_is_not_verified(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotVerified, match=reason) as failure:
        control_export.verify(_lines(_entries(**changes)))
    assert failure.value.line == 9


def _changes(*columns: tuple[str, str, object]) -> list[bytes]:
    """An export of changes: dataset, and digests before and after."""
    acts = [
        (
            EntryKind.DATASET_CHANGED,
            {"dataset": dataset, "before": before, "after": after},
        )
        for dataset, before, after in columns
    ]
    return _lines(_entries([ACTS[0], *acts]))


A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def test_changes_of_columns_follow_one_another() -> None:
    lines = _changes(("ds_a", A, B), ("ds_b", C, A), ("ds_a", B, A), ("ds_a", A, C))
    assert control_export.verify(lines).kinds["dataset-changed"] == 4


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (("ds_a", A, C), "before is not the after"),
        (("ds_a", B, B), "changes no columns"),
        (("ds_a", B.upper(), C), "before is not 64"),
        (("ds_a", B, "c" * 63), "after is not 64"),
        (("ds_a", B, 7), "after is not 64"),
    ],
)
def test_a_change_of_columns_that_does_not_follow_is_not_verified(
    last: tuple[str, str, object], reason: str
) -> None:
    with pytest.raises(NotVerified, match=reason):
        control_export.verify(_changes(("ds_a", A, B), last))


def test_a_changed_or_missing_act_is_not_verified() -> None:
    lines = _lines(_entries())
    with pytest.raises(NotVerified, match="the entry was changed"):
        control_export.verify([line.replace(b"key_b", b"key_c") for line in lines])
    with pytest.raises(NotVerified, match="sequence is 3"):
        control_export.verify([*lines[:2], *lines[3:]])
    covers = Checkpoint(
        "grovekeeper/ledger/control",
        len(ACTS),
        bytes(32),
        "2026-11-20T09:30:00.000000Z",
    )
    with pytest.raises(NotVerified, match="truncated"):
        control_export.verify(lines[:-1], [covers])
    with pytest.raises(NotVerified, match="root was signed"):
        control_export.verify(lines, [covers])


@pytest.mark.parametrize(
    "header", [HEADER | {"log": "other"}, HEADER | {"cap": "1"}, HEADER | {"format": 2}]
)
def test_another_header_is_not_verified(header: dict[str, object]) -> None:
    with pytest.raises(NotVerified) as failure:
        control_export.verify(_lines(_entries(), header))
    assert failure.value.line == 1


def test_the_command_prints_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "acts.jsonl"
    file.write_bytes(b"".join(_lines(_entries())))
    assert run(file, as_json=False) == VERIFIED
    assert "8 (1 open, 1 key-made" in capsys.readouterr().out
    assert run(file, as_json=True) == VERIFIED
    assert json.loads(capsys.readouterr().out)["kinds"]["key-revoked"] == 1
    file.write_bytes(file.read_bytes().replace(b"key_b", b"key_c"))
    assert run(file, as_json=False) == NOT_VERIFIED
