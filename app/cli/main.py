"""Assembles the commands into the program ``grovekeeper``.

The module of a command is imported when the command runs or shows its own help text:
all of them take 1 s of CPU. Commands import the client (0.1 s), rich and the verifier
(0.05 s each) and the server (1 s) in their functions.
"""

import io
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

_PANELS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run": {
        "serve": (
            "installation:serve",
            "Run the API and its workers on the embedded database, on one machine.",
        ),
        "demo": (
            "demo:demo",
            "Show everything on a real dataset: a quote, training, predictions, a refusal, the verified ledger.",
        ),
        "api": (
            "installation:api",
            "Run the API alone; workers run as other processes.",
        ),
        "worker": ("installation:worker", "Run one worker until a signal stops it."),
        "prepare": (
            "installation:prepare",
            "Compile the program for this machine's processor, once, so that the first jobs and predictions do not "
            "wait.",
        ),
        "backup": (
            "installation:backup",
            "Write database, rows and artifacts to a folder, while the service runs. Keys and heads are left out.",
        ),
        "restore": (
            "installation:restore",
            "Read a backup into an empty database and home. Refuses a backup that lacks entries which heads prove.",
        ),
        "openapi": ("installation:openapi", "Print the API's OpenAPI document."),
        "db": (
            "installation:db",
            "Upgrade the database of the installation, and change its keys.",
        ),
        "dask": (
            "installation:dask_commands",
            "Run the processes of a Dask cluster, which count the rows of large datasets.",
        ),
    },
    "Use": {
        "algorithms": (
            "training:algorithms",
            "List the algorithms, or show some: what their papers claim, what runs here, accuracy, parameters.",
        ),
        "plan": (
            "training:plan",
            "Quote a training job. Reads no row and costs nothing.",
        ),
        "train": ("training:train", "Reserve budget and train a forest."),
        "predict": (
            "models:predict",
            "Predict rows. Predictions cost no budget, and nothing is stored.",
        ),
        "datasets": ("datasets:app", "Declare datasets, upload rows, grant roles."),
        "populations": (
            "populations:app",
            "Open accounts over all datasets about the same people.",
        ),
        "keys": ("keys:app", "Make, list, rotate and revoke keys."),
        "jobs": ("jobs:app", "Look at jobs, and cancel them."),
        "rules": ("rules:app", "Limit what a dataset admits below its cap."),
        "approvals": (
            "rules:approval_commands",
            "Decide about jobs that wait for an owner.",
        ),
        "evaluations": (
            "releases:evaluation_commands",
            "Evaluate models privately, and choose the best of several.",
        ),
        "profiles": (
            "releases:profile_commands",
            "Release profiles of datasets, and look at them.",
        ),
        "models": ("models:app", "Look at model cards, take models away."),
        "aliases": (
            "models:alias_commands",
            "Give models names that can move to other models.",
        ),
        "webhooks": (
            "rules:webhook_commands",
            "Send events about jobs, refusals and low budgets to other programs.",
        ),
    },
    "Audit": {
        "verify": (
            "ledger:verify",
            "Check the export of an account (chain, sums, caps, prices), or a proof. Needs no service.",
        ),
        "ledger": (
            "ledger:app",
            "Read balances and entries, export them, change caps.",
        ),
        "audit": ("ledger:act_commands", "List administrative acts and export them."),
    },
}
"""Commands and groups of commands in the order of the help text, by its panels: their
places in ``app.cli``, and their first sentences, which a test compares with the
commands' own. So the help text loads no command.
"""
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}


class _Commands(Mapping[str, Any]):
    """The commands and groups of the program by name, imported at their first use."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_PANEL_OF)

    def __len__(self) -> int:
        return len(_PANEL_OF)


@cache
def _command(name: str) -> Any:
    panel = _PANEL_OF[name]
    part = resolve_name(f"app.cli.{_PANELS[panel][name][0]}")
    above = typer.Typer()
    if isinstance(part, typer.Typer):
        above.add_typer(part, name=name, rich_help_panel=panel)
    else:
        above.command(name, rich_help_panel=panel)(part)
    return typer.main.get_group(above).commands[name]


def _show_version(asked: bool) -> None:
    if asked:
        # loads the standard library's modules for mail
        from importlib.metadata import version

        print(f"grovekeeper {version('grovekeeper')}")
        raise typer.Exit


class _Program(TyperGroup):
    """The program. Of an unknown command it names the group that has a command of this
    name.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.commands = {
            name: TyperCommand(name, callback=None, help=text, rich_help_panel=panel)
            for panel, names in _PANELS.items()
            for name, (_, text) in names.items()
        }
        super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            groups = [
                name
                for name, group in self.commands.items()
                if args[0] in getattr(group, "commands", ())
            ]
            if groups:
                meant = " or ".join(f"'{name} {args[0]}'" for name in groups)
                ctx.fail(f"No such command '{args[0]}'. Did you mean {meant}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="grovekeeper",
    cls=_Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Lifetime privacy budgets in a ledger that cannot be overdrawn, and private
    forests trained against them.
    """


def main() -> None:
    """The ``grovekeeper`` command.

    On a terminal that cannot show ε, it prints a question mark and continues. A file or
    a pipe gets UTF-8, whatever the terminal shows: a question mark there would change a
    declaration or an export.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")
    app()
