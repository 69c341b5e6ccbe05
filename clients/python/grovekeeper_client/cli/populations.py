"""Implements ``grovekeeper populations``: opens, lists, shows and joins populations."""

from dataclasses import dataclass
from typing import Annotated

from grovekeeper_client.cli.command import (
    AttemptOption,
    CapInUnits,
    DatasetArgument,
    Group,
    Remote,
    YesOption,
    argument,
    confirm,
    given,
    one_attempt,
    option,
)
from grovekeeper_client.cli.datasets import (
    ReferenceOption,
    UnitArgument,
    balance_cells,
    erased,
    read_unit,
)
from grovekeeper_client.cli.output import SIMILAR_UNITS, amount

app = Group("Open accounts over all datasets about the same people.")

_JOINING = """\
The dataset's spend, earlier and later, then counts in the population. A job on the dataset must fit both caps.
No dataset leaves a population. A name that no population has opens one with the dataset's budget.
"""

PopulationArgument = Annotated[str, argument("Name or id of a population.")]


@dataclass(frozen=True)
class PopulationTerms(CapInUnits):
    """How a population counts, and its δ."""

    accountant: str = option(
        "pure, zcdp or gdp; that of every dataset.", default="pure"
    )
    delta: str | None = option("δ, for zcdp and gdp.")


@app.command("create")
def create(
    call: Remote,
    name: Annotated[str, argument("Name of the population.")],
    epsilon: str | None = option("Lifetime ε of one person over all datasets."),
    *,
    terms: PopulationTerms,
    idempotency_key: AttemptOption = None,
) -> None:
    """Open a population without datasets."""
    budget = given(
        accountant=terms.accountant,
        epsilon=epsilon,
        delta=terms.delta,
        **terms.stated,
    )
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
    answer = call.ask(lambda client: client.population(population))
    output = call.output
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


@app.command("erase-unit")
def erase_unit(
    call: Remote,
    population: PopulationArgument,
    unit: UnitArgument,
    datasets: list[str] | None = option(
        "A member to erase from; repeat it. Default: all members that you own.",
        "--dataset",
        metavar="DATASET",
    ),
    reference: ReferenceOption = None,
    yes: YesOption = False,
) -> None:
    """Erase the rows of one person from the datasets of a population. Spend stays
    spent.

    Every chosen dataset gets an act, whether or not the person was there. --json prints
    the receipt.
    """
    unit, output = read_unit(unit, yes=yes), call.output
    where = ", ".join(datasets) if datasets else "all its datasets that you own"
    confirm(
        output,
        f"Erase the rows of this person from {where} ({population}) for good?",
        yes=yes,
    )
    receipt = call.ask(
        lambda client: client.erase_person(
            population, unit, datasets=datasets, reference=reference
        )
    )
    rows = [
        [
            member["dataset_name"],
            "" if member["erased"] is None else str(member["erased"]),
            str(member["act"]),
            member["at"],
        ]
        for member in receipt["members"]
    ]
    output.table(["dataset", "rows erased", "act", "time"], rows, empty="no datasets")
    if all(member["erased"] == 0 for member in receipt["members"]):
        output.say("note: no row was found; check the spelling and leading zeros")
    similar = sum(member["similar_units"] or 0 for member in receipt["members"])
    if similar:
        output.say(f"note: {SIMILAR_UNITS.format(similar)}")
    output.say(
        "models and statistics that were released stay, and what was spent stays spent"
    )
