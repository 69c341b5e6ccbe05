"""Checks inclusion and consistency proofs, each one JSON object, against the
checkpoints of a log.

An ``inclusion`` proof shows that an entry is in the log; a ``consistency`` proof that a
log begins with an earlier log.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from grovekeeper_verifier import canonical_json, merkle_tree
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.checkpoints import Checkpoint

_FIELDS = {
    "inclusion": {"kind", "origin", "size", "sequence", "entry", "path"},
    "consistency": {"kind", "origin", "from_size", "size", "path"},
}
_MAX_PATH = 128
_HEX_CHARS = 64


class Disproven(ValueError):
    """The proof fails a check; ``str()`` gives the reason."""


class CheckpointMissing(ValueError):
    """No given checkpoint has the proof's log and size; ``str()`` names the size."""


@dataclass(frozen=True)
class Proven:
    """The statement of a valid proof, in a sentence."""

    kind: str
    statement: str


def is_proof(value: Json) -> bool:
    """Whether a JSON value is marked as a proof."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in _FIELDS


def check(value: Json, checkpoints: Sequence[Checkpoint]) -> Proven:
    """Checks a proof against the checkpoints of the sizes that it names.

    Raises:
        Disproven: a field is invalid, or the path does not lead to the checkpoint's
            root.
        CheckpointMissing: the proof names a log and a size of which no checkpoint is
            given.
    """
    assert isinstance(value, dict), "is_proof() takes objects only"
    kind = str(value["kind"])
    if set(value) != _FIELDS[kind]:
        raise Disproven(
            f"a proof of {kind} has not exactly the fields {', '.join(sorted(_FIELDS[kind]))}"
        )
    path = _path(value["path"])
    try:
        if kind == "inclusion":
            return _inclusion(value, path, checkpoints)
        return _consistency(value, path, checkpoints)
    except merkle_tree.NotProven as error:
        raise Disproven(str(error)) from error


def _inclusion(
    value: dict[str, Json], path: list[bytes], checkpoints: Sequence[Checkpoint]
) -> Proven:
    size = _count(value["size"], "size")
    sequence = _count(value["sequence"], "sequence")
    checkpoint = _checkpoint(value["origin"], size, checkpoints)
    if sequence > size:
        raise Disproven("the sequence is larger than the log")
    entry = value["entry"]
    if not isinstance(entry, dict) or not isinstance(entry.get("hash"), str):
        raise Disproven("the entry is not an object with its hash")
    content = {name: item for name, item in entry.items() if name != "hash"}
    digest = hashlib.sha256(canonical_json.dumps(content)).hexdigest()
    if digest != entry["hash"]:
        raise Disproven(
            "hash is not that of the entry's content: the entry was changed"
        )
    # As JSON, because ``True`` equals 1 in Python.
    if canonical_json.dumps(entry.get("sequence")) != canonical_json.dumps(sequence):
        raise Disproven("the entry has another sequence than the proof")
    merkle_tree.check_inclusion(
        merkle_tree.leaf(digest), sequence - 1, size, path, checkpoint.root
    )
    return Proven(
        "inclusion",
        f"entry {sequence} is in the log of {size} entries that was signed at {checkpoint.at}",
    )


def _consistency(
    value: dict[str, Json], path: list[bytes], checkpoints: Sequence[Checkpoint]
) -> Proven:
    first = _count(value["from_size"], "from_size")
    second = _count(value["size"], "size")
    if first > second:
        raise Disproven("the earlier log is larger than the later one")
    earlier = _checkpoint(value["origin"], first, checkpoints)
    later = _checkpoint(value["origin"], second, checkpoints)
    merkle_tree.check_consistency(first, second, path, (earlier.root, later.root))
    return Proven(
        "consistency",
        f"the log of {second} entries begins with the log of {first}: nothing in it was changed",
    )


def _checkpoint(
    origin: Json, size: int, checkpoints: Sequence[Checkpoint]
) -> Checkpoint:
    """The checkpoint of a size. Two checkpoints that contradict each other are an
    error, not a choice.
    """
    matching = [
        item for item in checkpoints if (item.origin, item.size) == (origin, size)
    ]
    if not matching:
        raise CheckpointMissing(
            f"the proof needs the checkpoint of its log with {size} entries: add --checkpoint FILE"
        )
    if len({item.root for item in matching}) > 1:
        raise Disproven(
            f"two checkpoints of {size} entries contradict each other: the log was forked"
        )
    return matching[0]


def _path(value: Json) -> list[bytes]:
    if not isinstance(value, list) or len(value) > _MAX_PATH:
        raise Disproven("path is not a list of hashes")
    hashes = []
    for item in value:
        if (
            not isinstance(item, str)
            or len(item) != _HEX_CHARS
            or not set(item) <= set("0123456789abcdef")
        ):
            raise Disproven("path is not a list of hashes")
        hashes.append(bytes.fromhex(item))
    return hashes


def _count(value: Json, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Disproven(f"{name} is not a positive integer")
    return value
