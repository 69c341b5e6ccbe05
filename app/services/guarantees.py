"""States the guarantee of one output, and of all releases of an account."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from sqlalchemy.orm import Session

from app.datasets.catalog import Dataset, of_each
from app.ledger import statements, tables
from app.ledger.admission import Population
from app.ledger.statements import Limit
from app.ledger.tables import PopulationRow
from grovekeeper_common import odds_words
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.privacy import accountants, guarantees
from grovekeeper_forests.privacy.accountants import Amount
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.guarantees import right_guesses

_ONE_OF_SEVERAL = (
    "It is about this dataset alone. The dataset belongs to the population {name!r}; people who are also in other "
    "datasets of that population are protected at the population's own guarantee."
)

_RESTS_ON_ATTESTERS = (
    "A part of what was charged was for mechanisms outside the service, so the guarantee also rests on what was "
    "attested about them, which the service cannot check."
)

_LARGE_EPSILON = 10
_UNIT = "privacy unit"
_LITTLE_PROMISED = (
    f"ε is above {_LARGE_EPSILON}: little is promised. Somebody who knows {{known}} and guesses {{change}} may "
    "be right this often: {odds} (without any output: 50 %)."
)


def of_large_amount(
    amount: Amount, *, delta: Fraction | None, adjacency: Adjacency
) -> list[str]:
    """The warning about an amount that is worth more than ε = 10 at δ, with its odds;
    empty for a smaller amount.
    """
    if amount.steps <= _price_of_large_epsilon(amount.accountant, delta):
        return []
    odds = odds_words.percent(right_guesses(amount))
    change = odds_words.guessed(adjacency.value, _UNIT)
    known = odds_words.known(_UNIT)
    return [_LITTLE_PROMISED.format(known=known, change=change, odds=odds)]


@lru_cache(maxsize=256)
def _price_of_large_epsilon(accountant: str, delta: Fraction | None) -> int:
    return accountants.by_name(accountant).price(Fraction(_LARGE_EPSILON), delta)


def guarantee_of(dataset: Dataset, limit: Limit) -> JsonObject:
    """States the guarantee that a limit gives to the people in a dataset, in numbers
    and in words.
    """
    guarantee = guarantees.guarantee(
        limit.amount,
        limit.delta,
        adjacency=dataset.adjacency,
        unit_column=dataset.unit_column,
        max_rows=dataset.max_rows,
    )
    return of_population(guarantee, dataset.row.population)


def of_population(guarantee: JsonObject, population: str | None) -> JsonObject:
    """The guarantee of a population's dataset, with the sentence that names the
    population, added at most once.
    """
    sentence = ""
    if population is not None:
        sentence = _ONE_OF_SEVERAL.format(name=population)
    if sentence in guarantee["text"]:
        return guarantee
    return {**guarantee, "text": f"{guarantee['text']} {sentence}"}


def of_account(session: Session, dataset: Dataset, limit: Limit) -> JsonObject:
    """:func:`guarantee_of`, with a sentence about external mechanisms where the account
    was charged for one.
    """
    guarantee = guarantee_of(dataset, limit)
    if tables.externally_charged(session, [dataset.id]):
        return _resting_on_attesters(guarantee)
    return guarantee


def _resting_on_attesters(guarantee: JsonObject) -> JsonObject:
    return {**guarantee, "text": f"{guarantee['text']} {_RESTS_ON_ATTESTERS}"}


def of_charged(
    session: Session, dataset: Dataset, *, amount: int, output: str
) -> JsonObject:
    """The guarantee of what a job will release: its charge, and the guarantee of the
    dataset's account.

    Args:
        session: the session of the transaction that charges the job; the guarantee
            follows from the caps in it.
        amount: whole steps of the account's unit.
    """
    limit = statements.printable(session, dataset.id)
    added = guarantees.addition(
        output,
        Amount(limit.amount.accountant, amount),
        adjacency=dataset.adjacency,
        unit_column=dataset.unit_column,
        max_rows=dataset.max_rows,
    )
    return guarantees.of_output(added, guarantee_of(dataset, limit))


def today(session: Session, dataset_id: str, facts: JsonObject) -> JsonObject:
    """States the present guarantee of an earlier output: the loss that it added, and
    the account's guarantee today.

    A later change of the cap changes the numbers (docs/proofs/accounting.md A3). A
    population that the dataset joined later adds a sentence.
    """
    return today_of_each(session, [(dataset_id, facts)])[0]


def today_of_each(
    session: Session, outputs: Sequence[tuple[str, JsonObject]]
) -> list[JsonObject]:
    """The present guarantees of several outputs, each with the dataset whose account
    paid; see :func:`today`.
    """
    datasets = of_each(session, sorted({dataset_id for dataset_id, _ in outputs}))
    limits_of = statements.printable_of_each(session, list(datasets))
    accounts = {
        dataset_id: guarantee_of(datasets[dataset_id], limit)
        for dataset_id, limit in limits_of.items()
    }
    for dataset_id in tables.externally_charged(session, list(accounts)):
        accounts[dataset_id] = _resting_on_attesters(accounts[dataset_id])
    return [
        guarantees.of_output(facts["guarantee"]["adds"], accounts[dataset_id])
        for dataset_id, facts in outputs
    ]


def population_guarantee(
    row: PopulationRow, population: Population, highest: Limit
) -> JsonObject:
    """The guarantee of a population's whole account: for one person, over all releases
    about its members.
    """
    limit = statements.printable_of(population, highest)
    return guarantees.guarantee_of_population(
        limit.amount,
        limit.delta.total,
        adjacency=Adjacency(row.adjacency or Adjacency.ADD_REMOVE_ONE),
        unit_column=row.unit_column,
    )
