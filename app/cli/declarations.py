"""Implements ``grovekeeper datasets init`` and ``check``: drafts declarations from dictionaries and checks them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.arguments import check_new, read_bytes
from app.cli.command import Plain, Remote, WrongUse, command
from app.cli.output import Output, amount
from app.core.errors import TooLarge

_LISTS = {
    "lacking": "to fill in, where the draft says null:",
    "to_confirm": "to confirm:",
    "optional": "optional, and not to be added after the declaration:",
}
"""What to do about a draft, by attribute of the draft."""


@dataclass(frozen=True)
class Choices:
    """What a data dictionary may leave open."""

    name: Annotated[str | None, typer.Option(help="Name of the dataset.", show_default=False)] = None
    label: Annotated[str | None, typer.Option(help="The column to predict.", show_default=False)] = None
    unit: Annotated[str | None, typer.Option(help="The column that names the person.", show_default=False)] = None
    table: Annotated[str | None, typer.Option(help="Which of several tables.", show_default=False)] = None


@dataclass(frozen=True)
class Declared:
    """What the owner decides, and no data dictionary says."""

    epsilon: Annotated[str | None, typer.Option(help="The lifetime budget, as a pure account.", show_default=False)] = (
        None
    )
    public_size: Annotated[
        int | None, typer.Option(help="A round number of rows that may be published.", show_default=False)
    ] = None
    cells: Annotated[
        int | None,
        typer.Option(help="Number of hash cells, so that rows can be held back from training.", show_default=False),
    ] = None

    @property
    def members(self) -> dict[str, Any]:
        """These decisions as members of a declaration."""
        given: dict[str, Any] = {}
        if self.epsilon is not None:
            given["budget"] = {"accountant": "pure", "epsilon": self.epsilon}
        if self.public_size is not None:
            given["public_size"] = self.public_size
        if self.cells is not None:
            given["partitions"] = [{"name": "shard", "kind": "hash", "cells": self.cells}]
        return given


@command
def init(
    call: Plain,
    choices: Choices,
    declared: Declared,
    dictionary: Annotated[
        Path,
        typer.Argument(
            help="JSON: the schema of a declaration, or a Frictionless table schema. Never rows.",
            show_default=False,
        ),
    ],
    declaration: Annotated[
        Path | None, typer.Argument(help="A file for the draft; default standard output.", show_default=False)
    ] = None,
) -> None:
    """Make a draft of a declaration from a data dictionary, and list what it lacks. Reads no rows."""
    from app.datasets.dictionaries import NotADictionary, draft_declaration

    if declaration is not None:
        check_new(declaration)
    try:
        draft = draft_declaration(read_bytes(dictionary), **vars(choices), also=declared.members)
    except (NotADictionary, TooLarge) as error:
        raise WrongUse(str(error)) from None
    output, text = call.output, json.dumps(draft.declaration, indent=1, ensure_ascii=False) + "\n"
    if declaration is not None:
        declaration.write_text(text, encoding="utf-8")
    remarks = {name: [vars(remark) for remark in getattr(draft, name)] for name in _LISTS}
    output.answer({"declaration": draft.declaration, **remarks})
    if declaration is None:
        print(text, end="")
    for name, heading in _LISTS.items():  # on standard error, so that the draft alone can be piped
        if remarks[name]:
            output.complain(heading)
        for remark in remarks[name]:
            output.complain(f"  [ ] {remark['at']}: {remark['text']}")
    if declaration is not None:
        output.say(f"wrote {declaration}: {draft.declaration['name'] or 'a draft without a name'}")
        first = "    (when the gaps are filled in)" if draft.lacking else ""
        output.hint(f"grovekeeper datasets check {declaration}{first}")


@command
def check(call: Remote, file: Annotated[Path, typer.Argument(help="The declaration, as JSON.")]) -> None:
    """Check a declaration by the rules of the service. Stores nothing."""
    declaration, output = read_bytes(file), call.output
    with call.client() as client:
        checked = client.check_declaration(declaration)
    output.answer(checked)
    output.say(f"{checked['name']} breaks no rule; its lifetime budget would be {amount(checked['account'], 'cap')}")
    output.say("all outputs together, until the cap is raised:")
    output.odds(checked["guarantee"].get("odds", {}))
    show_warnings(output, checked)
    output.hint(f"grovekeeper datasets create {file}")


def show_warnings(output: Output, declared: Mapping[str, Any]) -> None:
    """Prints the warnings about a declaration, which never changes."""
    output.warnings(declared)
    if declared["public_size"] is None:
        output.say(
            "note: No public size is declared, and none can be added later. Forests are then sized for a small table, "
            "and quotes cannot say which accuracy to expect."
        )
