"""The command: reads a file, prints what was found, and ends with 0, 1 or 2."""

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from app.verifier.amounts import SYMBOLS
from app.verifier.export import Header
from app.verifier.replay import MAX_LINE_BYTES, NotVerified, Summary, verify

VERIFIED, NOT_VERIFIED, UNREADABLE = 0, 1, 2

CUT_TAIL = "A cut tail can only be found with a checkpoint: an export that ends early looks like this one."
NOT_BOUND = (
    "The header's facts are not repeated in the first entry, as ledgers of early versions do not: "
    "compare them with the owner's declaration."
)


def main(arguments: Sequence[str]) -> int:
    """Runs the verifier on the command line's arguments.

    Returns:
        0 if every check holds, 1 if one fails, 2 if the file cannot be read. Wrong use exits with 2 as well.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # no locale may turn a result into a crash
    parser = argparse.ArgumentParser(
        prog="verify", description="Checks a ledger export: chain, balances, cap and prices.", allow_abbrev=False
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the export, JSON Lines")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    return run(options.file, as_json=options.json)


def run(file: Path, *, as_json: bool) -> int:
    """Checks one file and prints the result on stdout; returns the exit code."""
    try:
        with file.open("rb") as stream:
            summary = verify(_lines(stream))
    except OSError as error:
        print(f"cannot read {file}: {error.strerror or 'unreadable'}", file=sys.stderr)
        return UNREADABLE
    except NotVerified as failure:
        found = {"verified": False, "line": failure.line, "reason": failure.reason}
        _print(json.dumps(found) if as_json else f"NOT VERIFIED: {file}\n{failure}")
        return NOT_VERIFIED
    _print(json.dumps(to_json(summary)) if as_json else to_text(summary))
    return VERIFIED


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
        "charged": summary.header.text(tightest.charged),
        "reserved": summary.header.text(tightest.reserved),
        "remaining": summary.header.text(summary.cap - tightest.load),
        "tightest_cell": tightest.cell,
        "last_hash": summary.last.hash,
        "header_bound": summary.header_bound,
        "note": CUT_TAIL,
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
        ("cap", facts["cap"]),
        ("charged", facts["charged"]),
        ("reserved", facts["reserved"]),
        ("remaining", facts["remaining"]),
        ("tightest cell", cell),
        ("last hash", summary.last.hash),
    ]
    table = "\n".join(f"  {name:<14}{value}" for name, value in rows)
    checks = "Chain, sequence, times, every balance, the cap at every step and every price were recomputed and hold."
    notes = [CUT_TAIL] if summary.header_bound else [NOT_BOUND, CUT_TAIL]
    return "\n".join(["VERIFIED", table, checks, *notes])


def _account(header: Header) -> str:
    at = "" if header.delta is None else f" at δ = {header.delta}"
    return f"{header.accountant}, counted in {SYMBOLS[header.accountant]}{at}, adjacency {header.adjacency}"
