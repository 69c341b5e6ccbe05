"""Implements the verifier's command line: verifies a file, prints the result, and exits
with 0, 1 or 2.
"""

import argparse
import codecs
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from grovekeeper_verifier import (
    canonical_json,
    control_export,
    dataset_replay,
    population_export,
    population_replay,
    proofs,
    result_text,
)
from grovekeeper_verifier.checkpoints import (
    Checkpoint,
    NotACheckpoint,
    NotAKey,
    NotSigned,
    read_checkpoint,
    read_public_key,
)
from grovekeeper_verifier.export_lines import MAX_LINE_BYTES, NotVerified
from grovekeeper_verifier.member_comparison import MemberLedger

VERIFIED, NOT_VERIFIED, UNREADABLE = 0, 1, 2
_FAILED = {"verified": False, "verdict": "NOT VERIFIED"}
_FIRST_OF_CSV = b"sequence,"
_FIRST_OF_GZIP = b"\x1f\x8b"
_BLANK_LINES = (b"\n", b"\r\n")
_NO_SIGNATURES = (
    "nothing was checked: signatures of checkpoints need the Python package cryptography "
    "(pip install grovekeeper-verifier[signatures]); "
    "without --checkpoint and --public-key, an export needs none"
)


@dataclass(frozen=True)
class Evidence:
    """Files to verify an export against: checkpoints with the public key that signed
    them (both or neither) and, for a population, exports of members; for a dataset,
    exports of the erased datasets whose accounts it continues.
    """

    checkpoints: tuple[Path, ...] = ()
    public_key: Path | None = None
    members: tuple[Path, ...] = ()
    erased: tuple[Path, ...] = ()


class _Unreadable(Exception):
    """A named file is missing, or has another content than its option says; ``str()``
    gives the reason.
    """


def console() -> None:
    """Runs the verifier as the command ``grovekeeper-verifier``."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Runs the verifier on command-line arguments.

    Returns:
        0 if every check passes, 1 if a check fails, 2 if a file cannot be read. Invalid
        usage exits with 2, too.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a locale must not turn a result into a crash
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = argparse.ArgumentParser(
        prog="grovekeeper-verifier",
        description="Verifies the export of a ledger, or a proof about it.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="an export (JSON Lines) or a proof (JSON)",
    )
    _add_files(parser, "--checkpoint", "a checkpoint to compare with; may be repeated")
    parser.add_argument(
        "--public-key",
        metavar="FILE",
        type=Path,
        help="the public key that signed the checkpoints",
    )
    _add_files(
        parser,
        "--member",
        "the export of a member, if FILE is the export of its population; may be repeated",
    )
    _add_files(
        parser,
        "--erased",
        "the export of the erased dataset whose account FILE continues; may be repeated for the accounts before",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object instead of a table; its verdict is what a program reads",
    )
    options = parser.parse_args(arguments)
    if bool(options.checkpoint) != (options.public_key is not None):
        missing = "--public-key" if options.checkpoint else "--checkpoint"
        parser.error(f"--checkpoint and --public-key go together: {missing} is missing")
    evidence = Evidence(
        tuple(options.checkpoint),
        options.public_key,
        tuple(options.member),
        tuple(options.erased),
    )
    return run(options.file, evidence, as_json=options.json)


def _add_files(parser: argparse.ArgumentParser, option: str, text: str) -> None:
    """Adds an option that names files, and may be repeated."""
    parser.add_argument(
        option, metavar="FILE", type=Path, action="append", default=[], help=text
    )


def run(file: Path, evidence: Evidence = Evidence(), *, as_json: bool) -> int:
    """Verifies one file, prints the result on stdout and returns the exit code."""
    try:
        checkpoints = _checkpoints(evidence)
        facts, text = _check(file, evidence, checkpoints)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        return _unreadable(_NO_SIGNATURES, as_json=as_json)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return _unreadable(
            "cannot read a gzip file: it is damaged or cut off", as_json=as_json
        )
    except OSError as error:
        return _unreadable(
            f"cannot read {error.filename or file}: {error.strerror or 'unreadable'}",
            as_json=as_json,
        )
    except (_Unreadable, proofs.CheckpointMissing) as error:
        return _unreadable(str(error), as_json=as_json)
    except NotVerified as failure:
        where = failure.file or str(file)
        result = {
            "verified": False,
            "verdict": "NOT VERIFIED",
            "file": where,
            "line": failure.line,
            "reason": failure.reason,
        }
        _print(
            json.dumps(result)
            if as_json
            else f"NOT VERIFIED: {result_text.shown(where)}\n{result_text.shown(failure)}"
        )
        return NOT_VERIFIED
    except (NotSigned, proofs.Disproven) as failure:
        _print(
            json.dumps({**_FAILED, "line": None, "reason": str(failure)})
            if as_json
            else _not(failure)
        )
        return NOT_VERIFIED
    _print(json.dumps(facts) if as_json else text)
    return VERIFIED


def _unreadable(reason: str, *, as_json: bool) -> int:
    if as_json:
        _print(
            json.dumps(
                {
                    "verified": False,
                    "verdict": "UNREADABLE",
                    "line": None,
                    "reason": reason,
                }
            )
        )
    else:
        print(result_text.shown(reason), file=sys.stderr)
    return UNREADABLE


def _not(failure: Exception) -> str:
    return f"NOT VERIFIED\n{result_text.shown(failure)}"


def _checkpoints(evidence: Evidence) -> list[Checkpoint]:
    if evidence.public_key is None:
        return []
    try:
        key = read_public_key(evidence.public_key)
    except NotAKey as error:
        raise _Unreadable(
            f"{evidence.public_key} is not a public key: {error}"
        ) from error
    checkpoints = []
    for file in evidence.checkpoints:
        try:
            checkpoints.append(read_checkpoint(file, key))
        except NotACheckpoint as error:
            raise _Unreadable(f"{file} is not a checkpoint: {error}") from error
        except NotSigned as error:
            raise NotSigned(f"checkpoint {file}: {error}") from error
    return checkpoints


def _check(
    file: Path, evidence: Evidence, checkpoints: Sequence[Checkpoint]
) -> tuple[dict[str, object], str]:
    """The result, as a JSON object and as text."""
    with _opened(file) as stream:
        first = _first(stream)
        if first is None and stream.readline(len(_FIRST_OF_CSV)) == _FIRST_OF_CSV:
            raise _Unreadable(
                f"{file} is a CSV export; only an export as JSON Lines (--format jsonl) can be verified"
            )
        stream.seek(0)
        is_population = population_export.is_population(first)
        if evidence.members and first is not None and not is_population:
            raise _Unreadable("--member needs the export of a population")
        if evidence.erased and (
            is_population or control_export.is_control(first) or proofs.is_proof(first)
        ):
            raise _Unreadable("--erased needs the export of a dataset")
        if proofs.is_proof(first):
            if not checkpoints:
                raise _Unreadable("a proof needs --checkpoint and --public-key")
            proven = proofs.check(first, checkpoints)
            return {
                "verified": True,
                "verdict": result_text.VERIFIED,
                "kind": proven.kind,
                "statement": proven.statement,
            }, _proven(proven)
        if control_export.is_control(first):
            acts = control_export.verify(_lines(stream), checkpoints)
            return result_text.acts_to_json(acts), result_text.acts_to_text(acts)
        if is_population:
            together = _check_population(stream, evidence.members, checkpoints)
            return result_text.population_to_json(
                together
            ), result_text.population_to_text(together)
        summary = _check_dataset(stream, evidence.erased, checkpoints)
        return result_text.to_json(summary), result_text.to_text(summary)


def _check_dataset(
    stream: BinaryIO, erased: Sequence[Path], checkpoints: Sequence[Checkpoint]
) -> dataset_replay.Summary:
    with ExitStack() as opened:
        readings = [
            dataset_replay.read(
                _lines(opened.enter_context(_opened(file))), checkpoints, file=str(file)
            )
            for file in erased
        ]
        datasets = [reading.account.header.dataset for reading in readings]
        if len(set(datasets)) < len(datasets):
            raise _Unreadable(
                "two files with --erased are exports of one dataset: give one export of each"
            )
        return dataset_replay.verify(_lines(stream), checkpoints, readings)


def _check_population(
    stream: BinaryIO, members: Sequence[Path], checkpoints: Sequence[Checkpoint]
) -> population_replay.PopulationSummary:
    with ExitStack() as opened:
        ledgers: dict[str, MemberLedger] = {}
        for file in members:
            export = opened.enter_context(_opened(file))
            ledger = MemberLedger(_lines(export), checkpoints, file=str(file))
            if ledger.dataset in ledgers:
                raise _Unreadable(
                    f"{file} is a second export of {ledger.dataset}: give one export of each member"
                )
            ledgers[ledger.dataset] = ledger
        return population_replay.verify(
            _lines(stream), tuple(ledgers.values()), checkpoints
        )


def _opened(file: Path) -> BinaryIO:
    """A file, unpacked as it is read if it is gzip: of its lines, one is in memory at a
    time.

    Raises:
        _Unreadable: ``-``, which elsewhere is standard input: an export is read twice.
    """
    if file == Path("-"):
        raise _Unreadable("an export is read from a file: name one in place of -")
    with file.open("rb") as stream:
        is_gzip = stream.read(len(_FIRST_OF_GZIP)) == _FIRST_OF_GZIP
    return cast(BinaryIO, gzip.open(file)) if is_gzip else file.open("rb")


def _first(stream: BinaryIO) -> canonical_json.Json:
    """The first line, or None if it cannot be read: the checks of the export then say
    why.
    """
    line = stream.readline(MAX_LINE_BYTES)
    stream.seek(0)
    try:
        return canonical_json.loads(line.removeprefix(codecs.BOM_UTF8))
    except canonical_json.NotStrictJson:
        return None


def _proven(proven: proofs.Proven) -> str:
    return f"VERIFIED\n{result_text.shown(proven.statement[0].upper() + proven.statement[1:])}."


def _print(text: str) -> None:
    """Prints; a reader that closes the pipe early (``| head``) does not change the exit
    code.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with line ends, without a byte order mark of the file and a blank line at
    its end. A line over the limit is cut, so that a file without line ends fits in
    memory.
    """
    mark = codecs.BOM_UTF8
    while line := stream.readline(MAX_LINE_BYTES):
        if line in _BLANK_LINES:
            after = stream.readline(MAX_LINE_BYTES)
            if not after:
                return
            yield line
            line = after
        yield line.removeprefix(mark)
        mark = b""
