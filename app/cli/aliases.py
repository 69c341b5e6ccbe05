"""Implements ``grovekeeper aliases``: moves names of models such as ``bank@production``, lists and removes them."""

from typing import Annotated, TypeAlias

import typer

from app.cli.arguments import DatasetArgument, ModelArgument
from app.cli.command import Remote, WrongUse, command

app = typer.Typer(help="Give models names that can move to other models.", no_args_is_help=True)

AliasArgument: TypeAlias = Annotated[
    str, typer.Argument(help="DATASET@NAME, such as bank@production.", show_default=False, metavar="ALIAS")
]


@app.command("list")
@command
def list_aliases(call: Remote, dataset: DatasetArgument) -> None:
    """List the aliases of a dataset's models."""
    with call.client() as client:
        aliases = list(client.aliases(dataset))
    call.output.answer({"aliases": aliases})
    rows = [[f"{dataset}@{item['alias']}", item["model_id"], item["moved_at"]] for item in aliases]
    call.output.table(["alias", "model", "since"], rows, empty="no aliases")


@app.command("set")
@command
def put(call: Remote, alias: AliasArgument, model_id: ModelArgument) -> None:
    """Set an alias to a model. Later requests that use the alias reach that model."""
    dataset, name = _parts(alias)
    with call.client() as client:
        answer = client.put_alias(dataset, name, model_id)
    call.output.answer(answer)
    call.output.say(f"{alias} is {answer['model_id']}")
    call.output.hint(f"grovekeeper predict {alias} ROWS.csv")


@app.command("history")
@command
def history(call: Remote, alias: AliasArgument) -> None:
    """Show which models an alias named, newest first, and who moved it."""
    dataset, name = _parts(alias)
    with call.client() as client:
        moves = list(client.alias_moves(dataset, name))
    call.output.answer({"moves": moves})
    rows = [[move["moved_at"], move["model_id"] or "(removed)", move["moved_by"]] for move in moves]
    call.output.table(["since", "model", "by"], rows, empty="no moves")


@app.command("remove")
@command
def remove(call: Remote, alias: AliasArgument) -> None:
    """Remove an alias. Its model and its history stay."""
    dataset, name = _parts(alias)
    with call.client() as client:
        client.delete_alias(dataset, name)
    call.output.answer({"alias": alias, "removed": True})
    call.output.say(f"removed {alias}")


def _parts(alias: str) -> tuple[str, str]:
    dataset, separator, name = alias.partition("@")
    if not (separator and dataset and name):
        raise WrongUse("an alias is DATASET@NAME, such as bank@production")
    return dataset, name
