"""What may be claimed: of one output, or of everything that was released under an account."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import caps
from app.ledger import service as ledger
from app.ledger.limit import Limit
from app.privacy import guarantees
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency
from app.privacy.guarantees import Subject

_ONE_OF_SEVERAL = (
    "It is about this dataset alone. The dataset belongs to the population {name!r}; people who are also in other "
    "datasets of that population are protected at the population's own guarantee."
)


def guarantee_of(dataset: Dataset, limit: Limit, *, subject: Subject) -> dict[str, Any]:
    """The guarantee that a limit makes for the people in a dataset, in numbers and in words."""
    printed = guarantees.guarantee_of_labels if dataset.adjacency is Adjacency.LABEL else guarantees.guarantee
    found = printed(
        accountant=limit.accountant,
        amount=limit.amount,
        delta=limit.split,
        subject=subject,
        unit_column=dataset.unit_column,
        max_rows=dataset.max_rows,
    )
    return of_population(found, dataset.row.population)


def of_population(found: dict[str, Any], population: str | None) -> dict[str, Any]:
    """The same guarantee, with the sentence that it is about one dataset of several, if it is and does not say so."""
    sentence = "" if population is None else _ONE_OF_SEVERAL.format(name=population)
    if sentence in found["text"]:
        return found
    return {**found, "text": f"{found['text']} {sentence}"}


def today(session: Session, dataset_id: str, facts: dict[str, Any], *, subject: Subject) -> dict[str, Any]:
    """The guarantee of something that was released before: its own where losses just add up, else the account's of now.

    A cap that was changed since changes what may be printed (docs/proofs/accounting.md A3), and a population that the
    dataset joined since what has to be said.

    Args:
        session: any transaction.
        dataset_id: whose account paid.
        facts: those that the output carries, with ``price`` and ``guarantee``.
        subject: what the guarantee speaks of.
    """
    return today_of_each(session, [(dataset_id, facts)], subject=subject)[0]


def today_of_each(
    session: Session, outputs: Sequence[tuple[str, dict[str, Any]]], *, subject: Subject
) -> list[dict[str, Any]]:
    """The same of several outputs, each with the dataset whose account paid: asked for once."""
    datasets = catalog.of_each(session, sorted({dataset_id for dataset_id, _ in outputs}))
    of_account = {
        dataset_id: guarantee_of(datasets[dataset_id], limit, subject=subject)
        for dataset_id, limit in ledger.highest_caps(session, list(datasets)).items()
        if limit.accountant != pure.NAME
    }
    return [
        of_account[dataset_id]
        if dataset_id in of_account
        else of_population(facts["guarantee"], datasets[dataset_id].row.population)
        for dataset_id, facts in outputs
    ]


def account_guarantee(session: Session, dataset_id: str, *, subject: Subject = "ledger") -> dict[str, Any]:
    """The guarantee of a dataset's whole account.

    Args:
        session: any transaction.
        dataset_id: whose account.
        subject: ``model`` for the card of a model that is covered by the account's guarantee, not by one of its own.
    """
    return guarantee_of(catalog.find(session, dataset_id), caps.printable(session, dataset_id), subject=subject)
