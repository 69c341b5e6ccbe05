"""Assembles the commands into the program ``grovekeeper``.

Commands import the client (0.1 s of CPU), rich and the verifier (0.05 s each) and the server (2 s) in their functions,
so that ``--help`` and short commands start in 0.2 s.
"""

import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from app.cli import (
    aliases,
    approvals,
    audit,
    backup,
    dask_cluster,
    datasets,
    evaluations,
    evidence,
    installation,
    jobs,
    keys,
    ledger,
    models,
    populations,
    profiles,
    rules,
    training,
    webhooks,
)
from app.cli.demo import demo


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"grovekeeper {version('grovekeeper')}")
        raise typer.Exit


class _Program(TyperGroup):
    """The program. Of an unknown command it names the group that has a command of this name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        groups = [name for name, group in self.commands.items() if args[0] in getattr(group, "commands", ())]
        if args[0] not in self.commands and groups:
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
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Lifetime privacy budgets in a ledger that cannot be overdrawn, and private forests trained against them."""


for run in (installation.serve, demo, installation.api, installation.worker):
    app.command(rich_help_panel="Run")(run)
app.add_typer(installation.db, name="db", rich_help_panel="Run")
app.add_typer(dask_cluster.app, name="dask", rich_help_panel="Run")
for run in (backup.backup, backup.restore, installation.openapi):
    app.command(rich_help_panel="Run")(run)

app.add_typer(datasets.app, name="datasets", rich_help_panel="Use")
app.add_typer(populations.app, name="populations", rich_help_panel="Use")
app.add_typer(keys.app, name="keys", rich_help_panel="Use")
for use in (training.algorithms, training.plan, training.train):
    app.command(rich_help_panel="Use")(use)
app.add_typer(jobs.app, name="jobs", rich_help_panel="Use")
app.add_typer(rules.app, name="rules", rich_help_panel="Use")
app.add_typer(approvals.app, name="approvals", rich_help_panel="Use")
app.add_typer(evaluations.app, name="evaluations", rich_help_panel="Use")
app.add_typer(profiles.app, name="profiles", rich_help_panel="Use")
app.add_typer(models.app, name="models", rich_help_panel="Use")
app.add_typer(aliases.app, name="aliases", rich_help_panel="Use")
app.add_typer(webhooks.app, name="webhooks", rich_help_panel="Use")
app.command(rich_help_panel="Use")(models.predict)

app.add_typer(ledger.app, name="ledger", rich_help_panel="Audit")
app.command(rich_help_panel="Audit")(evidence.verify)
app.add_typer(audit.app, name="audit", rich_help_panel="Audit")


def main() -> None:
    """The ``grovekeeper`` command. On a terminal that cannot show ε, it prints a question mark and continues."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
