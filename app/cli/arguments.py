"""Parses and checks arguments and options that several commands share."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from app.cli.command import WrongUse
from app.cli.output import Output

DatasetArgument: TypeAlias = Annotated[str, typer.Argument(help="Name or id of the dataset.", show_default=False)]
AccountArgument: TypeAlias = Annotated[
    str, typer.Argument(help="Name or id of a dataset, or id of a population.", show_default=False)
]
ModelArgument: TypeAlias = Annotated[str, typer.Argument(help="Id or alias of the model.", show_default=False)]
JobArgument: TypeAlias = Annotated[str, typer.Argument(help="Id of the job.", show_default=False)]
KeyArgument: TypeAlias = Annotated[
    str, typer.Argument(help="Id of the key, the part before the dot.", show_default=False)
]


ScopeOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--scope", help="region=EU, shard=0,1 (may be repeated), or JSON; default all cells.", show_default=False
    ),
]


DeltaOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--delta", help="Such as 1e-6; default the δ of the account, if it has one.", show_default=False),
]
PurposeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--purpose", help="Why; auditors read it beside the charge, for good.", show_default=False),
]
AttemptOption: TypeAlias = Annotated[str | None, typer.Option(help="Continue an earlier attempt.")]
WaitOption: TypeAlias = Annotated[bool, typer.Option("--wait", help="Wait for the job.")]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ReceiptOption: TypeAlias = Annotated[
    bool, typer.Option("--receipt", help="Print every draw that the price pays for, and why they add up.")
]


def read_scope(typed: list[str] | None, declaration: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A scope as it was typed: ``region=EU``, ``shard=0,1``, repeated as needed; or one JSON object.

    Categories that contain a comma need the JSON form.

    Args:
        typed: by the user.
        declaration: fetches the dataset; called only for a cell of digits, which is a number in a hash partition and
            text in a column partition.

    Raises:
        WrongUse: the text has neither form, or mixes them.
    """
    scope: dict[str, list[str]] = {}
    for word in typed or ():
        if word.startswith("{"):
            if len(typed or ()) > 1:
                raise WrongUse("a scope in JSON is the whole scope")
            return json_object(word, "the scope")
        name, separator, listed = word.partition("=")
        if not (name and separator and listed):
            raise WrongUse("a scope is given as partition=cell, or as a JSON object")
        scope.setdefault(name, []).extend(listed.split(","))
    if not any(_is_number(cell) for cells in scope.values() for cell in cells):
        return dict(scope)
    columns = {partition["name"] for partition in declaration()["partitions"] if partition["kind"] == "column"}
    return {
        name: [int(cell) if _is_number(cell) and name not in columns else cell for cell in cells]
        for name, cells in scope.items()
    }


def as_typed(arguments: Sequence[str], options: Mapping[str, str | Sequence[str] | bool | None]) -> str:
    """Arguments and options as a user types them, without options that have no value."""
    words = list(arguments)
    for name, given in options.items():
        option = f"--{name.replace('_', '-')}"
        if given is True:
            words.append(option)
        for value in (given,) if isinstance(given, str) else () if isinstance(given, bool) else given or ():
            words += [option, value]
    return shlex.join(words)


def _is_number(cell: str) -> bool:
    return cell.isascii() and cell.isdigit()


def confirm(output: Output, question: str, *, yes: bool) -> None:
    """Asks for confirmation of a command that cannot be undone, unless ``yes``.

    Raises:
        WrongUse: ``--json`` without ``--yes``.
        typer.Abort: the answer is no.
    """
    if yes:
        return
    if output.as_json:
        raise WrongUse("--json asks no questions: add --yes")
    typer.confirm(question, abort=True, err=True)


def json_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object that was typed as one argument.

    Raises:
        WrongUse: the text is not a JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise WrongUse(f"{what} is not a JSON object")
    return value


def read_bytes(file: Path) -> bytes:
    """The content of a file that the user named.

    Raises:
        WrongUse: the file cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise WrongUse(f"{file} cannot be read: {error.strerror}") from error


def check_new(file: Path) -> None:
    """Checks that a download overwrites no file.

    Raises:
        WrongUse: the file exists, or its folder does not.
    """
    if file.exists():
        raise WrongUse(f"{file} exists already; name another file")
    if not file.parent.is_dir():
        raise WrongUse(f"{file.parent} is not a folder")
