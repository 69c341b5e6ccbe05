"""``grovekeeper ledger``: balances, caps, history, exports."""

import json
from functools import partial
from typing import Annotated, Any

import typer

from app.cli import caps, exports, external_charges
from app.cli.arguments import DatasetArgument, ScopeOption, read_scope
from app.cli.command import Remote, command
from app.cli.datasets import balance_cells
from app.cli.output import Output, budget_bar

MAX_SHOWN_CELLS = 32

app = typer.Typer(help="Read balances and histories, export them, change caps.", no_args_is_help=True)


@app.command("show")
@command
def show(
    call: Remote,
    dataset: Annotated[
        str | None, typer.Argument(help="Name or id of a dataset; all if left out.", show_default=False)
    ] = None,
    scope: ScopeOption = None,
) -> None:
    """Show what is charged, reserved and left."""
    output = call.output
    with call.client() as client:
        if dataset is None:
            accounts = list(client.balances())
            answer: dict[str, Any] = {"datasets": accounts}
        else:
            answer = client.balance(dataset, scope=read_scope(scope, partial(client.dataset, dataset)) or None)
            accounts = [answer]
    if output.as_json:
        output.json(answer)
        return
    show_accounts(output, accounts)
    if dataset is not None:
        show_cells(output, answer)
        if answer.get("delta_set_aside") is not None:
            left = answer["delta_set_aside"]
            output.say(f"δ set aside: {left['charged']} of {left['set_aside']} charged, {left['remaining']} left")
        output.say(answer["guarantee"]["text"])
        output.hint(f"grovekeeper ledger export {dataset} {dataset}.jsonl    (owners and auditors)")


app.command("charge")(external_charges.charge)
app.command("reservations")(external_charges.reservations)


@app.command("cap")
@command
def cap(call: Remote, dataset: DatasetArgument, wanted: caps.NewCap) -> None:
    """Lower a lifetime cap (its owner), or raise it (an admin). What was spent stays spent."""
    caps.change(call, wanted, lambda client: client.change_cap, account=dataset, shown_by="ledger show")


@app.command("entries")
@command
def entries(call: Remote, dataset: DatasetArgument) -> None:
    """Show every entry of a dataset's account, the oldest first."""
    with call.client() as client:
        found = list(client.entries(dataset))
    if call.as_json:
        call.output.json({"entries": found})
        return
    show_entries(call.output, found)


@app.command("export")
@command
def export(call: Remote, dataset: DatasetArgument, target: exports.Target) -> None:
    """Write the whole history of a dataset's account to a file."""
    exports.write(call, target, lambda client: client.export_ledger, dataset=dataset)


def show_accounts(output: Output, accounts: list[dict[str, Any]], *, indent: int = 0) -> None:
    """Prints balances, each with a picture: # charged, = reserved, . left."""
    rows = [
        [
            item["dataset_name"],
            *balance_cells(item),
            budget_bar(cap=item["cap"], charged=item["charged"], reserved=item["reserved"]),
        ]
        for item in accounts
    ]
    columns = ["dataset", "accountant", "cap", "charged", "reserved", "remaining", "# charged = reserved"]
    output.table(columns, rows, empty="no accounts", indent=indent)


def show_cells(output: Output, balance: dict[str, Any]) -> None:
    """Prints the tightest joint cell, what still fits there, and the cells of each partition that has a few."""
    cell = ", ".join(f"{name}={value}" for name, value in balance["tightest_cell"].items())
    output.say(f"tightest cell: {cell or 'the whole dataset'}")
    output.say(f"largest ε that fits: {balance['largest_that_fits']}")
    if not balance["exact"]:
        output.say("note: the maximum over all joint cells was too much work; these amounts are an upper bound")
    for partition in balance["partitions"]:
        cells = [[item[name] for name in ("cell", "charged", "reserved", "remaining")] for item in partition["cells"]]
        if len(cells) > MAX_SHOWN_CELLS:
            output.say(f"{partition['name']}: {len(cells)} cells; see --json")
            continue
        output.table([partition["name"], "charged", "reserved", "remaining"], cells, empty="no uploads yet", indent=2)


def show_entries(output: Output, entries: list[dict[str, Any]], *, indent: int = 0) -> None:
    """Prints entries in their order."""
    rows = [
        [
            entry["sequence"],
            entry["kind"],
            entry["amount"],
            json.dumps(entry["scope"]) if entry["scope"] else "all",
            entry["job_id"],
            entry["actor"],
            entry["at"],
            entry["hash"][:12],
        ]
        for entry in entries
    ]
    columns = ["#", "kind", "amount", "scope", "job", "actor", "at", "hash"]
    output.table(columns, rows, empty="no entries", indent=indent)
