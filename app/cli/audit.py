"""Implements ``grovekeeper audit``: lists administrative acts and exports them with their signed head."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.arguments import check_new
from app.cli.command import Remote, command
from app.cli.evidence import NewFile, give

app = typer.Typer(help="List administrative acts and export them.", no_args_is_help=True)


@app.command("list")
@command
def list_acts(call: Remote) -> None:
    """List administrative acts: keys, grants, declarations, erasures, caps, rules, aliases and others."""
    with call.client() as client:
        acts = list(client.acts())
    call.output.answer({"acts": acts})
    rows = [[act["sequence"], act["at"], act["kind"], act["actor"], _details(act["details"])] for act in acts]
    call.output.table(["entry", "at", "act", "by", "details"], rows, empty="no acts")


@app.command("export")
@command
def export(
    call: Remote, file: Annotated[Path, typer.Argument(help="File to write; must not exist.", show_default=False)]
) -> None:
    """Download every administrative act, for `grovekeeper verify`."""
    check_new(file)
    with call.client() as client:
        digest = client.export_acts(file)
    call.output.answer({"file": str(file), "sha256": digest})
    call.output.say(f"wrote {file}")
    call.output.hint(f"grovekeeper verify {file}")


@app.command("checkpoint")
@command
def checkpoint(call: Remote, file: NewFile = None) -> None:
    """Download the signed head of the administrative acts, to check later exports against."""
    if file is not None:
        check_new(file)
    with call.client() as client:
        note = client.checkpoint_of_acts()
    give(call.output, note, file=file, as_json={"log": "control", "checkpoint": note})


def _details(facts: dict[str, Any]) -> str:
    """The facts of an act on one line."""
    texts = {
        name: " ".join(fact) or "none"
        if isinstance(fact, list)
        else json.dumps(fact)
        if isinstance(fact, dict)
        else fact
        for name, fact in facts.items()
    }
    return ", ".join(f"{name}: {text}" for name, text in texts.items())
