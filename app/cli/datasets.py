"""Implements ``grovekeeper datasets``: the commands of the client, and the check of a file
of rows on this machine.
"""

import shlex
from collections.abc import Iterable

import typer

from app.cli.command import Group
from grovekeeper_client.cli import datasets
from grovekeeper_client.cli.command import Remote, WrongUse
from grovekeeper_client.cli.output import Output
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_client.errors import column_in_words
from grovekeeper_common.json_types import JsonMapping

_MAPPED = {
    "unknown": "unknown (a category becomes OTHER; a row without a label is not learned from)",
    "clamped": "clamped",
    "missing": "missing",
    "missing-mark": "one unit",
}
_DROPPED = {
    "without_unit": "without a unit",
    "over_bound": "of units that have all their rows",
}

_with_rows = Group("")

app = typer.Typer(help=datasets.app.info.help, no_args_is_help=True)
app.add_typer(datasets.app)
app.add_typer(_with_rows)


@_with_rows.command("check")
def check(
    call: Remote,
    declaration: datasets.DeclarationArgument,
    terms: datasets.UploadTerms,
    rows: datasets.CheckedRowsArgument = None,
) -> None:
    """Check a declaration by the rules of the service, or a file of rows by a
    declaration, on this machine. Stores nothing.
    """
    if rows is None:
        if any(terms.options.values()):
            raise WrongUse("these options say how rows are read: name a file of rows")
        datasets.check_declaration(call, declaration)
        return
    # loads the readers of the service
    from app.cli import row_checks

    with datasets.rows_in(rows) as file:
        answer = row_checks.checked(declaration, file, terms.options)
        suspected = [
            problem["option"] for problem in answer["problems"] if "option" in problem
        ]
        datasets.name_columns(answer["problems"], file, terms.options)
        datasets.name_columns(answer["mapped"], file, terms.options)
    call.output.json(answer)
    _print(call.output, answer)
    if suspected:
        files = shlex.join(map(str, (declaration, rows)))
        options = _in_words(terms.options, suspected)
        call.output.hint(f"grovekeeper datasets check {files} {options}")
    if answer["problems"]:
        raise typer.Exit(ExitCode.FAILED)


def _in_words(stated: JsonMapping, suspected: Iterable[str]) -> str:
    """The options of a command: those that are stated, and those that are suspected
    (``name=value``), which win.
    """
    options = {name: value for name, value in stated.items() if value}
    for option in suspected:
        name, _, value = option.partition("=")
        options[name] = value
    words = []
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(value)
    return shlex.join(words)


def _print(output: Output, answer: JsonMapping) -> None:
    problems = answer["problems"]
    output.say(
        "an upload would be refused:" if problems else "an upload would be stored"
    )
    for problem in problems:
        output.say(f"  {column_in_words(problem)}")
    if problems and answer["mapped"]:
        has_options = any("option" in problem for problem in problems)
        with_options = " with all the options above" if has_options else ""
        output.say(f"if the file is read{with_options}:")
    # what is refused is not looked at for what it would become
    if answer["mapped"] or not problems:
        output.table(
            ["column", "cells would be", "cells", "%", "first row"],
            [
                [
                    cells["name"],
                    _MAPPED[cells["problem"]],
                    cells["count"],
                    cells["percent"],
                    cells["row"],
                ]
                for cells in answer["mapped"]
            ],
            empty="no cell would be clamped, missing or unknown",
        )
    for reason, count in answer["dropped"].items():
        output.say(f"rows that would be dropped, {_DROPPED[reason]}: {count}")
