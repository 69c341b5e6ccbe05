"""``export`` of a dataset's account or of a population: its whole history in a file."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.arguments import check_new
from app.cli.command import Remote

if TYPE_CHECKING:
    from app.client.client import Client


@dataclass(frozen=True)
class Target:
    """Where an export goes, and in what form."""

    file: Annotated[Path, typer.Argument(help="Where to; must not exist.", show_default=False)]
    export_format: Annotated[str, typer.Option("--format", help="jsonl (which can be verified) or csv.")] = "jsonl"


def write(call: Remote, target: Target, export_of: "Callable[[Client], Callable[..., str]]", **account: str) -> None:
    """Writes the history of an account to a new file, and says how it is verified.

    Args:
        call: how the service is reached.
        target: the file.
        export_of: the call of a client that exports this kind of account, and gives the file's digest.
        account: its kind and its name, as it was typed.
    """
    check_new(target.file)
    with call.client() as client:
        digest = export_of(client)(*account.values(), target.file, export_format=target.export_format)
    if call.as_json:
        call.output.json({**account, "file": str(target.file), "sha256": digest})
    call.output.say(f"wrote {target.file} ({target.file.stat().st_size} bytes)")
    if target.export_format == "jsonl":
        call.output.hint(f"grovekeeper verify {target.file}")
