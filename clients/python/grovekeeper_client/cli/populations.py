"""Implements ``grovekeeper populations``: opens, lists, shows and joins populations."""

from typing import Annotated

import typer

from grovekeeper_client.cli.command import (
    AttemptOption,
    DatasetArgument,
    Group,
    Remote,
    YesOption,
    confirm,
    given,
    one_attempt,
)
from grovekeeper_client.cli.datasets import balance_cells, erased
from grovekeeper_client.cli.output import amount

app = Group("Open accounts over all datasets about the same people.")

_JOINING = """\
The dataset's spend, earlier and later, then counts in the population. A job on the dataset must fit both caps.
No dataset leaves a population. A name that no population has opens one with the dataset's budget.
"""

PopulationArgument = Annotated[str, typer.Argument(help="Name or id of a population.")]


@app.command("create")
def create(
    call: Remote,
    name: Annotated[str, typer.Argument(help="Name of the population.")],
    epsilon: Annotated[
        str, typer.Option(help="Lifetime ε of one person over all datasets.")
    ],
    accountant: Annotated[
        str, typer.Option(help="pure, zcdp or gdp; that of every dataset.")
    ] = "pure",
    delta: Annotated[str | None, typer.Option(help="δ, for zcdp and gdp.")] = None,
    idempotency_key: AttemptOption = None,
) -> None:
    """Open a population without datasets."""
    budget = given(accountant=accountant, epsilon=epsilon, delta=delta)
    output = call.output
    with call.client() as client, one_attempt(output, idempotency_key) as key:
        population = client.open_population(name, budget, idempotency_key=key)
    output.answer(population)
    cap = amount(population, "cap")
    output.say(
        f"opened {population['name']} ({population['id']}) with a lifetime budget of {cap}"
    )
    output.odds(population["guarantee"]["odds"])
    output.warnings(population)
    output.hint(f"grovekeeper populations join DATASET {population['name']}")


@app.command("list")
def list_populations(call: Remote) -> None:
    """List the populations that the key opened; all populations for admins and
    auditors.
    """
    listed = call.ask_all("populations", lambda client: client.populations())
    rows = [
        [item["name"], item["id"], *balance_cells(item), str(len(item["members"]))]
        for item in listed
    ]
    columns = [
        "name",
        "id",
        "accountant",
        "cap",
        "charged",
        "reserved",
        "remaining",
        "datasets",
    ]
    create = "grovekeeper populations create NAME --epsilon 1"
    call.output.table(columns, rows, empty=f"no populations; open one with: {create}")


@app.command("show")
def show(call: Remote, population: PopulationArgument) -> None:
    """Show a population, its balance, its datasets and its guarantee."""
    answer, output = call.ask(lambda client: client.population(population)), call.output
    output.facts(
        {
            "name": answer["name"],
            "id": answer["id"],
            "accountant": answer["accountant"],
            "unit column": answer["unit_column"]
            or "none: a person has at most one row in each dataset",
            **{
                name: amount(answer, name)
                for name in ("cap", "charged", "reserved", "remaining")
            },
        }
    )
    output.say()
    rows = [
        [
            member["dataset_name"],
            member["dataset"],
            member["charged"],
            member["reserved"],
            erased(member),
        ]
        for member in answer["members"]
    ]
    output.table(
        ["dataset", "id", "charged", "reserved", ""], rows, empty="no datasets yet"
    )
    output.say()
    output.guarantee(answer["guarantee"])
    export = f"{answer['name']}.jsonl"
    output.hint(
        f"grovekeeper ledger export {answer['id']} {export}",
        f"grovekeeper verify {export} --member MEMBER.jsonl    (with the export of each dataset)",
    )


@app.command("join")
def join(
    call: Remote,
    dataset: DatasetArgument,
    population: PopulationArgument,
    yes: YesOption = False,
) -> None:
    """State that a dataset is about the people of a population. This cannot be undone."""
    confirm(call.output, f"{_JOINING}Join {dataset} to {population} for good?", yes=yes)
    joined = call.ask(lambda client: client.join_population(dataset, population))
    call.output.say(
        f"{joined['name']} belongs to {joined['population']}, whose cap also limits its jobs"
    )
    call.output.hint(f"grovekeeper populations show {joined['population']}")
