"""What several commands read from the command line."""

import json
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from app.cli.command import WrongUse

DatasetArgument: TypeAlias = Annotated[str, typer.Argument(help="Name or id of the dataset.", show_default=False)]
ModelArgument: TypeAlias = Annotated[str, typer.Argument(help="Id of the model.", show_default=False)]
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


def read_scope(typed: list[str] | None) -> dict[str, Any]:
    """A box as it was typed: ``region=EU``, ``shard=0,1``, repeated as needed; or one JSON object.

    In the short form a cell of digits is the number of a hash cell. Categories with a comma or of
    digits alone are for the JSON form.

    Raises:
        WrongUse: it is neither form, or the two are mixed.
    """
    scope: dict[str, Any] = {}
    for word in typed or ():
        if word.startswith("{"):
            if len(typed or ()) > 1:
                raise WrongUse("a scope in JSON is the whole scope")
            return json_object(word, "the scope")
        name, separator, cells = word.partition("=")
        if not (name and separator and cells):
            raise WrongUse("a scope is given as partition=cell, or as a JSON object")
        numbers_and_names = (int(cell) if cell.isascii() and cell.isdigit() else cell for cell in cells.split(","))
        scope.setdefault(name, []).extend(numbers_and_names)
    return scope


def json_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object that was typed as one argument.

    Raises:
        WrongUse: it is something else.
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
        WrongUse: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise WrongUse(f"{file} cannot be read: {error.strerror}") from error


def check_new(file: Path) -> None:
    """A download never overwrites.

    Raises:
        WrongUse: the file is there already, or its folder is not.
    """
    if file.exists():
        raise WrongUse(f"{file} exists already")
    if not file.parent.is_dir():
        raise WrongUse(f"{file.parent} is not a folder")
