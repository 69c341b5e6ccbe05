"""Targets that read evidence: exports, proofs, checkpoints and heads. Only genuine
evidence passes.
"""

import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.ledger import checkpoints
from app.ledger.checkpoints import Signer
from grovekeeper_verifier import (
    canonical_json,
    control_export,
    dataset_replay,
    population_replay,
    proofs,
)
from grovekeeper_verifier.checkpoints import (
    ORIGIN,
    Checkpoint,
    NotACheckpoint,
    NotAKey,
    NotSigned,
    read_checkpoint,
    read_public_key,
)
from grovekeeper_verifier.export_lines import NotVerified
from grovekeeper_verifier.member_comparison import MemberLedger
from tests.support.export_writers import Fields, People, Writer, chained
from tests.support.subtrees import subtrees

_AT = "2026-11-20T10:00:00.000000Z"
_SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(b"k" * 32))
_LOG = "ds_test"


def _checkpoint(
    account: str, entries: Sequence[Fields], size: int | None = None
) -> Checkpoint:
    size = size or len(entries)
    return Checkpoint(
        f"{ORIGIN}{account}", size, checkpoints.root_of(size, subtrees(entries)), _AT
    )


@cache
def _dataset() -> Writer:
    writer = Writer(cap="9", shards=2)
    for number in range(4):
        writer.job(
            f"jb_{number}",
            "1",
            ("charge", "void", "expire", None)[number],
            scope={"shard": [number % 2]},
        )
    writer.header["cap"] = "8.5"
    return writer.add("cap", "8.5", details={"reason": "less"})


@cache
def _people() -> People:
    return (
        People(cap="5")
        .join("ds_a")
        .job("ds_a", "jb_1", "1")
        .join("ds_b", shards=2)
        .job("ds_b", "jb_2", "0.5", "void")
        .cap("4")
    )


@cache
def _acts() -> list[Fields]:
    details: list[tuple[str, Fields]] = [
        ("open", {"log": "control"}),
        ("key-made", {"key": "key_a", "roles": ["admin"]}),
        ("grant-made", {"dataset": "ds_a", "key": "key_b", "role": "analyst"}),
        ("key-revoked", {"key": "key_a"}),
    ]
    idle: Fields = {
        "amount": "0",
        "scope": {},
        "event": None,
        "job_id": None,
        "actor": "operator",
        "at": _AT,
    }
    return [
        {"kind": "export", "format": 1, "log": "control"},
        *chained([idle | {"kind": kind, "details": it} for kind, it in details]),
    ]


def _lines(values: Sequence[Fields]) -> list[bytes]:
    return [rfc8785.dumps(value) + b"\n" for value in values]


def _verify_dataset(lines: list[bytes]) -> None:
    dataset_replay.verify(lines, [_checkpoint(_LOG, _dataset().entries)])


def _verify_people(lines: list[bytes]) -> None:
    members = [
        MemberLedger(member.lines(), (), file=name)
        for name, member in _people().members.items()
    ]
    population_replay.verify(
        lines, members, [_checkpoint("pop_test", _people().entries)]
    )


def _verify_acts(lines: list[bytes]) -> None:
    control_export.verify(lines, [_checkpoint("control", _acts()[1:])])


def seeds_of_dataset() -> tuple[bytes, ...]:
    return (
        b"".join(_lines([_dataset().header, *_dataset().entries])),
        b"".join(_dataset().lines()),
    )


def seeds_of_people() -> tuple[bytes, ...]:
    return (b"".join(_people().lines()),)


def seeds_of_acts() -> tuple[bytes, ...]:
    return (b"".join(_lines(_acts())),)


def run_dataset(data: bytes) -> bool:
    return _only_the_genuine(data, _verify_dataset, seeds_of_dataset()[0])


def run_people(data: bytes) -> bool:
    return _only_the_genuine(data, _verify_people, seeds_of_people()[0])


def run_acts(data: bytes) -> bool:
    return _only_the_genuine(data, _verify_acts, seeds_of_acts()[0])


def _only_the_genuine(
    data: bytes, verify: Callable[[list[bytes]], object], genuine: bytes
) -> bool:
    """An export verifies against the checkpoint of all entries only if every line means
    what the genuine line means.

    The hashes of a changed export are also recomputed, as a forger does.
    """
    verified = False
    for lines in (data.splitlines(keepends=True), _rechained(data)):
        try:
            verify(lines)
        except NotVerified:
            continue
        assert [canonical_json.loads(line) for line in lines] == [
            json.loads(line) for line in genuine.splitlines()
        ]
        verified = True
    return verified


def _rechained(data: bytes) -> list[bytes]:
    header, *rest = data.splitlines(keepends=True) or [b""]
    try:
        entries: list[Any] = [canonical_json.loads(line) for line in rest]
    except canonical_json.NotStrictJson:
        return []
    return (
        [header, *_lines(chained(entries))]
        if all(isinstance(entry, dict) for entry in entries)
        else []
    )


def run_rewritten(data: bytes) -> bool:
    """Without a checkpoint, a rewritten history may verify. Its balances are still
    within its cap.
    """
    try:
        summary = dataset_replay.verify(_rechained(data))
    except NotVerified:
        return False
    tightest = summary.tightest
    assert tightest.charged >= 0
    assert tightest.reserved >= 0
    assert tightest.charged + tightest.reserved <= max(
        summary.header.cap, summary.highest_cap
    )
    return True


def seeds_of_proofs() -> tuple[bytes, ...]:
    entries = _dataset().entries
    size, tree = len(entries), subtrees(entries)
    facts: list[Fields] = [
        {
            "kind": "inclusion",
            "path": checkpoints.inclusion(4, size, tree),
            "sequence": 5,
            "entry": entries[4],
        },
        {
            "kind": "consistency",
            "path": checkpoints.consistency(6, size, tree),
            "from_size": 6,
        },
    ]
    return tuple(
        rfc8785.dumps(
            {
                **fact,
                "origin": f"{ORIGIN}{_LOG}",
                "size": size,
                "path": [node.hex() for node in fact["path"]],
            }
        )
        for fact in facts
    )


def run_proof(data: bytes) -> bool:
    """A proof passes only for an entry of the log, at its place."""
    entries = _dataset().entries
    try:
        value = canonical_json.loads(data)
    except canonical_json.NotStrictJson:
        return False
    if not proofs.is_proof(value):
        return False
    assert isinstance(value, dict)
    try:
        proofs.check(
            value, [_checkpoint(_LOG, entries, size) for size in (6, len(entries))]
        )
    except (proofs.Disproven, proofs.CheckpointMissing):
        return False
    if value["kind"] == "inclusion":
        sequence = value["sequence"]
        assert isinstance(sequence, int)
        assert value["entry"] == entries[sequence - 1]
    return True


@cache
def _note() -> str:
    writer = _dataset()
    size = len(writer.entries)
    return _SIGNER.sign(
        checkpoints.Checkpoint(
            _LOG, size, checkpoints.root_of(size, subtrees(writer.entries)), _AT
        )
    )


def seeds_of_notes() -> tuple[bytes, ...]:
    other = Signer(Ed25519PrivateKey.from_private_bytes(b"j" * 32))
    witnessed = (
        _note()
        + other.sign(checkpoints.Checkpoint(_LOG, 1, b"r" * 32, _AT)).rpartition(
            "\n\n"
        )[2]
    )
    return (_note().encode(), witnessed.encode())


def run_note(data: bytes) -> bool:
    """A note passes only with the genuine text, in the service, which reads heads, and
    in the verifier.
    """
    signed = _note().partition("\n\n")[0]
    accepted = False
    text = data.decode("utf-8", "replace")
    read = checkpoints.read_checkpoint(_LOG, text)
    if read is not None and checkpoints.is_signed(text, [_SIGNER.verifier_key]):
        assert read == checkpoints.read_checkpoint(_LOG, _note())
        accepted = True
    try:
        checkpoint = read_checkpoint(
            _as_file(data), read_public_key(_as_file(_SIGNER.public_pem.encode()))
        )
    except (NotACheckpoint, NotSigned):
        return accepted
    assert checkpoint == _checkpoint(_LOG, _dataset().entries)
    assert text.removeprefix("\ufeff").replace("\r\n", "\n").startswith(signed)
    return True


def seeds_of_keys() -> tuple[bytes, ...]:
    return (_SIGNER.public_pem.encode(), _SIGNER.verifier_key.encode())


def run_key(data: bytes) -> bool:
    """A file that passes for a public key has one of the two forms."""
    try:
        key = read_public_key(_as_file(data))
    except NotAKey:
        return False
    assert len(key) == 32
    return True


@cache
def _descriptor() -> int:
    return os.memfd_create("fuzzed")


def _as_file(data: bytes) -> Path:
    """A file in memory with this content, until the next call."""
    file = _descriptor()
    os.ftruncate(file, 0)
    os.pwrite(file, data, 0)
    return Path(f"/proc/self/fd/{file}")
