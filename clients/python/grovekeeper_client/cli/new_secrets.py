"""Hands over a secret that the service has just made: to a file that had room for it
before, or once on stdout.

What makes a secret is committed when the answer arrives, so a secret that cannot be
written is lost for good.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Annotated

import typer

from grovekeeper_client.cli.command import WrongUse, check_new
from grovekeeper_client.cli.output import Output
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_common import durable_files
from grovekeeper_common.json_types import JsonObject

SaveOption = Annotated[
    Path | None,
    typer.Option("--save", help="A new file for the secret, which is then not shown."),
]

_ROOM_BYTES = 512
"""Bytes of a file before its secret is made; every secret is shorter."""

_ONCE = (
    "This is shown once. Save it in a file that its owner alone can read (mode 0600)."
)


@contextmanager
def secret_file(file: Path | None) -> Iterator[FileIO | None]:
    """A new file that no other account can read, with room on the disk, made before the
    secret is.

    It is removed unless :func:`hand_over` has written a secret.

    Raises:
        WrongUse: the file exists, or cannot be made or filled.
    """
    check_new(file)
    if file is None:
        yield None
        return
    try:
        stream = FileIO(file, "x", opener=durable_files.open_private)
    except OSError as error:
        raise WrongUse(f"{file} cannot be made: {error.strerror}") from None
    try:
        with stream:
            _take_room(stream, file)
            yield stream
    finally:
        if file.stat().st_size in (0, _ROOM_BYTES):
            file.unlink()


def _take_room(stream: FileIO, file: Path) -> None:
    """Writes blanks, durably: to write over them needs no more space on the disk."""
    try:
        _write_over(stream, b" " * _ROOM_BYTES)
        durable_files.sync_folder(file.absolute().parent)
    except OSError as error:
        raise WrongUse(f"{file} cannot be written: {error.strerror}") from None


def hand_over(
    output: Output,
    answer: JsonObject,
    member: str,
    stream: FileIO | None,
    *,
    again: str,
    kept_in: Path | None = None,
) -> None:
    """Writes the secret of an answer to its file, or prints it. With ``--json`` prints
    the answer and ends the command.

    Args:
        member: of the answer, with the secret.
        again: the command that replaces a lost secret.
        kept_in: another file that has the secret already.
    """
    remedy = (
        f"it is lost, replace it: {again}" if kept_in is None else f"{kept_in} has it"
    )
    try:
        if stream is None:
            output.answer(answer)
            output.say(f"{answer[member]}\n{_ONCE}")
            return
        _save(stream, answer[member])
    except OSError as error:
        output.complain(
            f"done, but the secret of {answer['id']} could not be written: {error.strerror}; {remedy}"
        )
        raise typer.Exit(ExitCode.SECRET_NOT_WRITTEN) from error
    saved = f"saved the secret of {answer['id']} to {stream.name}"
    try:
        output.answer(answer | {member: None, "file": str(stream.name)})
        output.say(f"{saved}; give the file to its owner, and nobody else")
    except OSError as error:
        output.complain(
            f"done: {saved}; the answer could not be printed: {error.strerror}"
        )
        raise typer.Exit(ExitCode.FAILED) from error


def _save(stream: FileIO, secret: str) -> None:
    stream.seek(0)
    line = f"{secret}\n".encode("ascii")
    _write_over(stream, line)
    # after the secret is on the disk: a file of another length has a secret
    stream.truncate(len(line))
    os.fsync(stream.fileno())


def _write_over(stream: FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[stream.write(left) :]
    os.fsync(stream.fileno())
