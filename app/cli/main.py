"""Assembles the commands into the program ``grovekeeper``.

The module of a command is imported when the command runs or a help text shows it: all of them take 0.06 s of CPU.
Commands import the client (0.1 s), rich and the verifier (0.05 s each) and the server (1 s) in their functions.
"""

import io
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_PANELS: Mapping[str, Mapping[str, str]] = {
    "Run": {
        "serve": "installation:serve",
        "demo": "demo:demo",
        "api": "installation:api",
        "worker": "installation:worker",
        "prepare": "installation:prepare",
        "backup": "installation:backup",
        "restore": "installation:restore",
        "openapi": "installation:openapi",
        "db": "installation:db",
        "dask": "installation:dask_commands",
    },
    "Use": {
        "algorithms": "training:algorithms",
        "plan": "training:plan",
        "train": "training:train",
        "predict": "models:predict",
        "datasets": "datasets:app",
        "populations": "populations:app",
        "keys": "keys:app",
        "jobs": "jobs:app",
        "rules": "rules:app",
        "approvals": "rules:approval_commands",
        "evaluations": "releases:evaluation_commands",
        "profiles": "releases:profile_commands",
        "models": "models:app",
        "aliases": "models:alias_commands",
        "webhooks": "rules:webhook_commands",
    },
    "Audit": {"verify": "ledger:verify", "ledger": "ledger:app", "audit": "ledger:act_commands"},
}
"""Commands and groups of commands in the order of the help text, by its panels, with their places in ``app.cli``."""
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
    part = resolve_name(f"app.cli.{_PANELS[panel][name]}")
    above = typer.Typer()
    if isinstance(part, typer.Typer):
        above.add_typer(part, name=name, rich_help_panel=panel)
    else:
        above.command(name, rich_help_panel=panel)(part)
    return typer.main.get_group(above).commands[name]


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # loads the standard library's modules for mail

        print(f"grovekeeper {version('grovekeeper')}")
        raise typer.Exit


class _Program(TyperGroup):
    """The program. Of an unknown command it names the group that has a command of this name."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            groups = [name for name, group in self.commands.items() if args[0] in getattr(group, "commands", ())]
            if groups:
                meant = " or ".join(f"'{name} {args[0]}'" for name in groups)
                ctx.fail(f"No such command '{args[0]}'. Did you mean {meant}?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="grovekeeper", cls=_Program, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Lifetime privacy budgets in a ledger that cannot be overdrawn, and private forests trained against them."""


def main() -> None:
    """The ``grovekeeper`` command.

    On a terminal that cannot show ε, it prints a question mark and continues. A file or a pipe gets UTF-8, whatever the
    terminal shows: a question mark there would change a declaration or an export.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")
    app()
