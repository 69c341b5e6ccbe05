"""Assembles commands into the program ``grovekeeper``.

The commands of this module are those of the client; the service adds the commands of
its operator (``app.cli.main``). The module of a command is imported when the command
runs or shows its own help text. Commands import the client (0.1 s of CPU), rich and the
verifier (0.05 s each) in their functions.
"""

import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pkgutil import resolve_name
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

Panels = Mapping[str, Mapping[str, tuple[str, str]]]
"""Commands and groups of commands in the order of the help text, by its panels: their
places and their first sentences, so that the help text loads no command.
"""

PANELS: Panels = {
    "Use": {
        "algorithms": (
            "grovekeeper_client.cli.training:algorithms",
            "List the algorithms, or show some: what their papers claim, what runs here, accuracy, parameters.",
        ),
        "plan": (
            "grovekeeper_client.cli.training:plan",
            "Quote a training job. Reads no row and costs nothing.",
        ),
        "train": (
            "grovekeeper_client.cli.training:train",
            "Reserve budget and train a forest.",
        ),
        "predict": (
            "grovekeeper_client.cli.predict:predict",
            "Predict rows. Predictions cost no budget, and nothing is stored.",
        ),
        "datasets": (
            "grovekeeper_client.cli.datasets:app",
            "Declare datasets, upload rows, grant roles.",
        ),
        "populations": (
            "grovekeeper_client.cli.populations:app",
            "Open accounts over all datasets about the same people.",
        ),
        "keys": (
            "grovekeeper_client.cli.keys:app",
            "Make, list, rotate and revoke keys.",
        ),
        "jobs": ("grovekeeper_client.cli.jobs:app", "Look at jobs, and cancel them."),
        "rules": (
            "grovekeeper_client.cli.rules:app",
            "Limit what a dataset admits below its cap.",
        ),
        "attention": (
            "grovekeeper_client.cli.rules:attention",
            "Show what needs you: decisions, failed jobs, keys that end, full budgets.",
        ),
        "approvals": (
            "grovekeeper_client.cli.rules:approval_commands",
            "Decide about jobs that wait for an owner.",
        ),
        "evaluations": (
            "grovekeeper_client.cli.releases:evaluation_commands",
            "Evaluate models privately, and choose the best of several.",
        ),
        "profiles": (
            "grovekeeper_client.cli.releases:profile_commands",
            "Release profiles of datasets, and look at them.",
        ),
        "count": (
            "grovekeeper_client.cli.statistics:count",
            "Count rows privately, of the dataset or of each group.",
        ),
        "histogram": (
            "grovekeeper_client.cli.statistics:histogram",
            "Count the rows of each category, or of each bin of a number, privately.",
        ),
        "crosstab": (
            "grovekeeper_client.cli.statistics:crosstab",
            "Count the rows of each combination of two or three columns, privately.",
        ),
        "sum": (
            "grovekeeper_client.cli.statistics:total",
            "Add up a number privately, over all rows or in each group.",
        ),
        "mean": (
            "grovekeeper_client.cli.statistics:mean",
            "Average a number privately, over all rows or in each group.",
        ),
        "variance": (
            "grovekeeper_client.cli.statistics:variance",
            "Estimate the variance of a number privately, over all rows or in each group.",
        ),
        "quantile": (
            "grovekeeper_client.cli.statistics:quantile",
            "Find quantiles of a number privately, of all rows or of each group.",
        ),
        "median": (
            "grovekeeper_client.cli.statistics:median",
            "Find the median of a number privately, of all rows or of each group.",
        ),
        "statistics": (
            "grovekeeper_client.cli.statistics:app",
            "Release several tables of statistics at once, and look at them.",
        ),
        "models": (
            "grovekeeper_client.cli.models:app",
            "Look at model cards, take models away.",
        ),
        "aliases": (
            "grovekeeper_client.cli.models:alias_commands",
            "Give models names that can move to other models.",
        ),
        "webhooks": (
            "grovekeeper_client.cli.rules:webhook_commands",
            "Send events about jobs, refusals and low budgets to other programs.",
        ),
    },
    "Audit": {
        "verify": (
            "grovekeeper_client.cli.ledger:verify",
            "Check the export of an account (chain, sums, caps, prices), or a proof. Needs no service.",
        ),
        "ledger": (
            "grovekeeper_client.cli.ledger:app",
            "Read balances and entries, export them, change caps.",
        ),
        "audit": (
            "grovekeeper_client.cli.ledger:act_commands",
            "List administrative acts and export them.",
        ),
    },
}
"""The commands of the client. A test compares the sentences with the commands' own."""

_NOT_SHOWN = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Modules that typer imports for help texts, with the classes that it takes. The texts of
this program need neither, and both take a third of the CPU of ``--help``.
"""


class Commands(Mapping[str, Any]):
    """The commands and groups of a program by name, imported at their first use."""

    def __init__(self, panels: Panels) -> None:
        self._panels = panels
        self._panel_of = {
            name: panel for panel, names in panels.items() for name in names
        }
        self._imported: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._imported:
            self._imported[name] = self._command(name)
        return self._imported[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._panel_of)

    def __len__(self) -> int:
        return len(self._panel_of)

    def _command(self, name: str) -> Any:
        panel = self._panel_of[name]
        place, _ = self._panels[panel][name]
        part = resolve_name(place)
        above = typer.Typer()
        if isinstance(part, typer.Typer):
            above.add_typer(part, name=name, rich_help_panel=panel)
        else:
            above.command(name, rich_help_panel=panel)(part)
        return typer.main.get_group(above).commands[name]


class _Program(TyperGroup):
    """The program. Of an unknown command it names the group that has a command of this
    name.
    """

    panels: Panels

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = Commands(self.panels)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.commands = self._names()
        _load_help_texts_of_typer()
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self.commands = self._names()
        return super().shell_complete(ctx, incomplete)

    def _names(self) -> dict[str, TyperCommand]:
        """Commands that show their sentences only; nothing of theirs is imported."""
        return {
            name: TyperCommand(name, callback=None, help=text, rich_help_panel=panel)
            for panel, names in self.panels.items()
            for name, (_, text) in names.items()
        }

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


def _load_help_texts_of_typer() -> None:
    """Imports typer's module of help texts without the modules of ``_NOT_SHOWN``."""
    if "typer.rich_utils" in sys.modules:
        return
    left_out = {name: ModuleType(name) for name in _NOT_SHOWN.keys() - sys.modules}
    for name, module in left_out.items():
        setattr(module, _NOT_SHOWN[name], object)
    sys.modules.update(left_out)
    try:
        importlib.import_module("typer.rich_utils")
    finally:
        for name in left_out:
            del sys.modules[name]


def program(panels: Panels, *, distribution: str) -> typer.Typer:
    """The program with these commands.

    Args:
        distribution: whose version ``--version`` shows.
    """

    def show_version(asked: bool) -> None:
        if asked:
            # loads the standard library's modules for mail
            from importlib.metadata import version

            print(f"grovekeeper {version(distribution)}")
            raise typer.Exit

    def options(
        _version: Annotated[
            bool,
            typer.Option(
                "--version",
                callback=show_version,
                is_eager=True,
                help="Show the version and exit.",
            ),
        ] = False,
    ) -> None:
        """Lifetime privacy budgets in a ledger that cannot be overdrawn, and private
        forests trained against them.
        """

    assembled = typer.Typer(
        name="grovekeeper",
        cls=type("Program", (_Program,), {"panels": panels}),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    assembled.callback()(options)
    return assembled


def run(assembled: Callable[[], object]) -> None:
    """Runs the program.

    On a terminal that cannot show ε, it prints a question mark and continues. A file or
    a pipe gets UTF-8, whatever the terminal shows: a question mark there would change a
    declaration or an export. A stream that the caller closed is an empty one.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")
    assembled()


app = program(PANELS, distribution="grovekeeper-client")


def main() -> None:
    """The command of the distribution ``grovekeeper-client``."""
    run(app)
