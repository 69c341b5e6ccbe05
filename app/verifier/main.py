"""The command: reads a file, prints what was found, and ends with 0, 1 or 2."""

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.verifier import canonical, proofs
from app.verifier.amounts import SYMBOLS
from app.verifier.checkpoints import Checkpoint, NotAKey, NotSigned, read_checkpoint, read_public_key
from app.verifier.export import Header
from app.verifier.proofs import Disproven
from app.verifier.reading import MAX_LINE_BYTES, NotVerified
from app.verifier.replay import Summary, verify

VERIFIED, NOT_VERIFIED, UNREADABLE = 0, 1, 2

CUT_TAIL = "A cut tail can only be found with a checkpoint: an export that ends early looks like this one."
NOT_BOUND = (
    "The header's facts are not repeated in the first entry, as ledgers of early versions do not: "
    "compare them with the owner's declaration."
)


@dataclass(frozen=True)
class Evidence:
    """Files of checkpoints, and of the key that signed them; both or neither."""

    checkpoints: tuple[Path, ...] = ()
    public_key: Path | None = None


class _Unreadable(Exception):
    """A file that was named is not there, or is not what it was named as. ``str()`` says which."""


def main(arguments: Sequence[str]) -> int:
    """Runs the verifier on the command line's arguments.

    Returns:
        0 if every check holds, 1 if one fails, 2 if a file cannot be read. Wrong use exits with 2 as well.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # no locale may turn a result into a crash
    parser = argparse.ArgumentParser(
        prog="verify", description="Checks a ledger export, or a proof, against checkpoints.", allow_abbrev=False
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the export, JSON Lines, or a proof")
    parser.add_argument(
        "--checkpoint", metavar="FILE", type=Path, action="append", default=[], help="a signed head; may be repeated"
    )
    parser.add_argument("--public-key", metavar="FILE", type=Path, help="the key that signed the checkpoints")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    if bool(options.checkpoint) != (options.public_key is not None):
        parser.error("a checkpoint is checked with a public key: give both, or neither")
    return run(options.file, Evidence(tuple(options.checkpoint), options.public_key), as_json=options.json)


def run(file: Path, evidence: Evidence = Evidence(), *, as_json: bool) -> int:
    """Checks one file and prints the result on stdout; returns the exit code."""
    try:
        checkpoints = _checkpoints(evidence)
        facts, text = _check(file, checkpoints)
    except OSError as error:
        return _unreadable(f"cannot read {error.filename or file}: {error.strerror or 'unreadable'}", as_json=as_json)
    except _Unreadable as error:
        return _unreadable(str(error), as_json=as_json)
    except NotVerified as failure:
        found = {"verified": False, "line": failure.line, "reason": failure.reason}
        _print(json.dumps(found) if as_json else f"NOT VERIFIED: {file}\n{failure}")
        return NOT_VERIFIED
    except (NotSigned, Disproven) as failure:
        _print(json.dumps({"verified": False, "line": None, "reason": str(failure)}) if as_json else _not(failure))
        return NOT_VERIFIED
    _print(json.dumps(facts) if as_json else text)
    return VERIFIED


def _unreadable(reason: str, *, as_json: bool) -> int:
    if as_json:
        _print(json.dumps({"verified": False, "line": None, "reason": reason}))
    else:
        print(reason, file=sys.stderr)
    return UNREADABLE


def _not(failure: Exception) -> str:
    return f"NOT VERIFIED\n{failure}"


def _checkpoints(evidence: Evidence) -> list[Checkpoint]:
    if evidence.public_key is None:
        return []
    try:
        key = read_public_key(evidence.public_key)
    except NotAKey as error:
        raise _Unreadable(f"{evidence.public_key} is not a public key: {error}") from error
    found = []
    for file in evidence.checkpoints:
        try:
            found.append(read_checkpoint(file, key))
        except NotSigned as error:
            raise NotSigned(f"checkpoint {file}: {error}") from error
    return found


def _check(file: Path, checkpoints: Sequence[Checkpoint]) -> tuple[dict[str, object], str]:
    with file.open("rb") as stream:
        proof = _proof(stream.readline(MAX_LINE_BYTES))
        if proof is not None:
            if not checkpoints:
                raise _Unreadable("a proof is held to checkpoints: give --checkpoint and --public-key")
            proven = proofs.check(proof, checkpoints)
            return {"verified": True, "kind": proven.kind, "statement": proven.statement}, _proven(proven)
        stream.seek(0)
        summary = verify(_lines(stream), checkpoints)
    return to_json(summary), to_text(summary)


def _proof(line: bytes) -> canonical.Json:
    try:
        value = canonical.loads(line)
    except canonical.NotStrictJson:
        return None  # whatever it is, the export's own checks name it
    return value if proofs.is_proof(value) else None


def _proven(proven: proofs.Proven) -> str:
    return f"VERIFIED\n{proven.statement[0].upper()}{proven.statement[1:]}."


def _print(text: str) -> None:
    """A reader that leaves early (``| head``) does not change the result."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends; a longer one comes without an end, so that a file without line ends fits in memory."""
    while line := stream.readline(MAX_LINE_BYTES):
        yield line


def to_json(summary: Summary) -> dict[str, object]:
    """The summary for programs; amounts are exact decimal text."""
    tightest = summary.tightest
    return {
        "verified": True,
        "dataset": summary.header.dataset,
        "accountant": summary.header.accountant,
        "adjacency": summary.header.adjacency,
        "entries": summary.last.sequence,
        "kinds": summary.kinds,
        "cap": summary.header.text(summary.cap),
        "highest_cap": summary.header.text(summary.highest_cap),
        "attested": summary.attested,
        "charged": summary.header.text(tightest.charged),
        "reserved": summary.header.text(tightest.reserved),
        "remaining": summary.header.text(max(summary.cap - tightest.load, 0)),
        "tightest_cell": tightest.cell,
        "last_hash": summary.last.hash,
        "header_bound": summary.header_bound,
        "checkpoints": [{"size": item.size, "at": item.at} for item in summary.checkpoints],
        "note": _tail(summary),
    }


def to_text(summary: Summary) -> str:
    """The summary for people."""
    facts = to_json(summary)
    kinds = ", ".join(f"{count} {kind}" for kind, count in summary.kinds.items())
    cell = ", ".join(f"{name}={index}" for name, index in summary.tightest.cell.items()) or "the whole dataset"
    rows = [
        ("dataset", summary.header.dataset),
        ("account", _account(summary.header)),
        ("entries", f"{summary.last.sequence} ({kinds})"),
        ("cap", _cap(summary)),
        ("charged", facts["charged"]),
        ("reserved", facts["reserved"]),
        ("remaining", facts["remaining"]),
        ("tightest cell", cell),
        ("last hash", summary.last.hash),
    ]
    table = "\n".join(f"  {name:<14}{value}" for name, value in rows)
    checks = "Chain, sequence, times, every balance, the cap at every step and every price were recomputed and hold."
    notes = [_tail(summary)] if summary.header_bound else [NOT_BOUND, _tail(summary)]
    if summary.attested:
        said = ", ".join(f"{count} by {key}" for key, count in summary.attested.items())
        notes.insert(
            0, f"Mechanisms that ran elsewhere are charged on somebody's word, not recomputed from draws: {said}."
        )
    return "\n".join(["VERIFIED", table, checks, *notes])


def _cap(summary: Summary) -> str:
    """On accounts with a δ every guarantee is that of the highest cap; on pure ones what was charged is its own."""
    cap, highest = summary.header.text(summary.cap), summary.header.text(summary.highest_cap)
    if summary.header.accountant == "pure" or cap == highest:
        return cap
    return f"{cap} (guarantees are those of the highest one, {highest})"


def _tail(summary: Summary) -> str:
    """What is known of the end of the export."""
    if not summary.checkpoints:
        return CUT_TAIL
    newest, total = summary.checkpoints[-1], summary.last.sequence
    if newest.size == total:
        return f"A checkpoint of {newest.at} covers all {total} entries: until then nothing is missing at the end."
    return (
        f"A checkpoint of {newest.at} covers the first {newest.size} of {total} entries: "
        "what may be missing after the last one can only be found with a later checkpoint."
    )


def _account(header: Header) -> str:
    at = "" if header.delta is None else f" at δ = {header.delta}"
    return f"{header.accountant}, counted in {SYMBOLS[header.accountant]}{at}, adjacency {header.adjacency}"
