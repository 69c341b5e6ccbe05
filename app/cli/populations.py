"""``grovekeeper populations``: one budget over all datasets about the same people, and its history."""

from typing import Annotated, Any

import typer

from app.cli import caps, exports
from app.cli.arguments import DatasetArgument
from app.cli.command import Remote, command, one_attempt
from app.cli.output import amount

app = typer.Typer(help="One budget over all datasets about the same people.", no_args_is_help=True)

PopulationArgument = Annotated[str, typer.Argument(help="Name or id of a population.", show_default=False)]
"""What every command about one population takes."""


@app.command("create")
@command
def create(
    call: Remote,
    name: Annotated[str, typer.Argument(help="What datasets will call it.", show_default=False)],
    epsilon: Annotated[str, typer.Option(help="The lifetime ε of a person over all its datasets.", show_default=False)],
    accountant: Annotated[str, typer.Option(help="pure, zcdp or gdp; the same for every dataset.")] = "pure",
    delta: Annotated[str | None, typer.Option(help="The δ, on accounts that have one.", show_default=False)] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Continue an earlier attempt.")] = None,
) -> None:
    """Open a population that no dataset belongs to yet."""
    budget: dict[str, Any] = {"accountant": accountant, "epsilon": epsilon}
    if delta is not None:
        budget["delta"] = delta
    output = call.output
    with call.client() as client, one_attempt(output, idempotency_key) as key:
        made = client.open_population(name, budget, idempotency_key=key)
    if output.as_json:
        output.json(made)
        return
    output.say(f"opened {made['name']} ({made['id']}) with a lifetime budget of {amount(made, 'cap')}")
    output.hint(f"grovekeeper populations join DATASET {made['name']}")


@app.command("list")
@command
def list_populations(call: Remote) -> None:
    """List the populations that the key opened, or all of them for admins and auditors."""
    with call.client() as client:
        found = list(client.populations())
    if call.as_json:
        call.output.json({"populations": found})
        return
    rows = [
        [each["name"], each["id"], each["accountant"], *_amounts(each, "cap"), str(len(each["members"]))]
        for each in found
    ]
    columns = ["name", "id", "accountant", "cap", "charged", "reserved", "remaining", "datasets"]
    call.output.table(columns, rows, empty="no populations; open one with: grovekeeper populations create NAME")


@app.command("show")
@command
def show(call: Remote, population: PopulationArgument) -> None:
    """Show a population, what its datasets spent, and what it guarantees."""
    with call.client() as client:
        found = client.population(population)
    output = call.output
    if output.as_json:
        output.json(found)
        return
    output.facts(
        {
            "name": found["name"],
            "id": found["id"],
            "accountant": found["accountant"],
            "people are named by": found["unit_column"] or "nobody: at most one row in each dataset",
            **{name: amount(found, name) for name in ("cap", "charged", "reserved", "remaining")},
        }
    )
    output.say()
    rows = [
        [each["dataset_name"], *_amounts(each), "erased" if each["deleted_at"] else ""] for each in found["members"]
    ]
    output.table(["dataset", "charged", "reserved", ""], rows, empty="no datasets yet")
    output.say(found["guarantee"]["text"])
    output.hint(f"grovekeeper populations export {population} {population}.jsonl")


@app.command("join")
@command
def join(call: Remote, dataset: DatasetArgument, population: PopulationArgument) -> None:
    """State that a dataset is about the people of a population. Nothing undoes that."""
    with call.client() as client:
        joined = client.join_population(dataset, population)
    if call.as_json:
        call.output.json(joined)
        return
    call.output.say(f"{joined['name']} belongs to {joined['population']}, whose cap holds for its jobs too")


@app.command("cap")
@command
def cap(call: Remote, population: PopulationArgument, wanted: caps.NewCap) -> None:
    """Lower a lifetime cap (the key that opened it), or raise it (an admin). What was spent stays spent."""
    caps.change(
        call, wanted, lambda client: client.change_population_cap, account=population, shown_by="populations show"
    )


@app.command("entries")
@command
def entries(call: Remote, population: PopulationArgument) -> None:
    """Show every entry of a population, the oldest first: caps, who joined, and what each carried then."""
    with call.client() as client:
        found = list(client.population_entries(population))
    if call.as_json:
        call.output.json({"entries": found})
        return
    rows = [
        [
            entry["sequence"],
            entry["kind"],
            entry["amount"],
            *_named(entry.get("details", {}).get("member")),
            entry["job_id"],
            entry["actor"],
            entry["at"],
            entry["hash"][:12],
        ]
        for entry in found
    ]
    columns = ["#", "kind", "amount", "dataset", "its #", "job", "actor", "at", "hash"]
    call.output.table(columns, rows, empty="no entries")


@app.command("export")
@command
def export(call: Remote, population: PopulationArgument, target: exports.Target) -> None:
    """Write the whole history of a population to a file."""
    exports.write(call, target, lambda client: client.export_population, population=population)


def _named(member: dict[str, Any] | None) -> list[Any]:
    return [None, None] if member is None else [member["dataset"], member["sequence"]]


def _amounts(found: dict[str, Any], first: str | None = None) -> list[str]:
    names = ("charged", "reserved") if first is None else (first, "charged", "reserved", "remaining")
    return [found[name] for name in names]
