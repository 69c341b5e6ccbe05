"""Implements ``grovekeeper datasets init`` and ``check``: drafts a declaration from a data dictionary, and tries it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.arguments import check_new, read_bytes
from app.cli.command import Plain, Remote, WrongUse, command
from app.cli.output import Output, amount
from app.core.errors import TooLarge

if TYPE_CHECKING:  # the command imports it: the program starts without it
    from app.services.dictionaries.draft import Draft


@dataclass(frozen=True)
class Choices:
    """What a data dictionary does not say."""

    name: Annotated[str | None, typer.Option(help="Name of the dataset.", show_default=False)] = None
    label: Annotated[str | None, typer.Option(help="The column to predict.", show_default=False)] = None
    unit: Annotated[str | None, typer.Option(help="The column that names the person.", show_default=False)] = None
    table: Annotated[str | None, typer.Option(help="Which of several tables.", show_default=False)] = None


@command
def init(
    call: Plain,
    choices: Choices,
    dictionary: Annotated[
        Path,
        typer.Argument(
            help="JSON: the schema of a declaration, CSVW metadata or a Frictionless table schema. Never rows.",
            show_default=False,
        ),
    ],
    declaration: Annotated[
        Path | None, typer.Argument(help="A file for the draft; default standard output.", show_default=False)
    ] = None,
) -> None:
    """Make a draft of a declaration from a data dictionary, and list what it lacks. Reads no rows."""
    from app.services.dictionaries.draft import draft_declaration
    from app.services.dictionaries.tables import NotADictionary

    if declaration is not None:
        check_new(declaration)
    try:
        draft = draft_declaration(read_bytes(dictionary), **vars(choices))
    except (NotADictionary, TooLarge) as error:
        raise WrongUse(str(error)) from None
    output, text = call.output, json.dumps(draft.declaration, indent=1, ensure_ascii=False) + "\n"
    if declaration is not None:
        declaration.write_text(text, encoding="utf-8")
    if output.as_json:
        remarks = {name: [vars(remark) for remark in getattr(draft, name)] for name in ("lacking", "to_confirm")}
        output.json({"declaration": draft.declaration, **remarks})
        return
    if declaration is None:
        print(text, end="")
    _say_what_is_left(output, draft)
    if declaration is not None:
        output.hint(f"grovekeeper datasets check {declaration}")


@command
def check(call: Remote, file: Annotated[Path, typer.Argument(help="The declaration, as JSON.")]) -> None:
    """Check a declaration by the rules of the service. Stores nothing."""
    declaration, output = read_bytes(file), call.output
    with call.client() as client:
        checked = client.check_declaration(declaration)
    if output.as_json:
        output.json(checked)
        return
    output.say(f"{checked['name']} breaks no rule; its lifetime budget would be {amount(checked['account'], 'cap')}")
    for warning in checked["warnings"]:
        output.say(f"note: {warning}")
    output.hint(f"grovekeeper datasets create {file}")


def _say_what_is_left(output: Output, draft: "Draft") -> None:
    """Prints the checklist on standard error, so that the draft alone can be piped."""
    if draft.lacking:
        output.complain("to fill in, where the draft says null:")
    for remark in draft.lacking:
        output.complain(f"  [ ] {remark.at}: {remark.text}")
    if draft.to_confirm:
        output.complain("to confirm:")
    for remark in draft.to_confirm:
        output.complain(f"  [ ] {remark.at}: {remark.text}")
