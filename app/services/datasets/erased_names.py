"""Applies the rule that a budget survives its dataset: the name of an erased dataset leads to its account."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.core import limits
from app.core.errors import InvalidRequest, NameTaken, SameSubmitter
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import continuations, populations, statements
from app.wire.datasets import DatasetIn


@dataclass(frozen=True)
class TakenUp:
    """What a declaration takes up with its name.

    Attributes:
        act: further details of the declaration's act in the control chain.
        warnings: sentences for the owner.
    """

    act: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()


def take_up(session: Session, principal: Principal, dataset: Dataset, declaration: DatasetIn) -> TakenUp:
    """Continues the account of the erased dataset of the name, or records that the rows are about other people.

    The new dataset holds the name, so no other declaration takes up the same account. An erased
    dataset that spent nothing leaves nothing to continue.

    Args:
        session: of the transaction that stored the declaration and opened its account.
        principal: who declares.
        dataset: the new dataset.
        declaration: the declaration.

    Raises:
        InvalidRequest: the declaration is told apart from an erased dataset, and there is none.
        NameTaken: the erased dataset belongs to other owners.
        SameSubmitter: the key declared the erased dataset of which it states that it was about other people.
        AccountDiffers: the accounts differ in a fact that the sum of their loads rests on.
        Unavailable: reservations of the erased dataset are still being given back.
    """
    erased = catalog.newest_erased(session, dataset.name)
    if erased is not None and Role.OWNER not in principal.acts_as(grants.granted(session, principal, erased.id)):
        raise NameTaken
    reason = declaration.other_people
    if erased is None:
        if reason is not None:
            raise InvalidRequest.at("/other_people", "no-erased-dataset")
        return TakenUp()
    if reason is not None:
        if erased.row.declared_by == principal.key_id and not principal.is_admin:
            raise SameSubmitter(
                "an admin, or an owner other than the one who declared the erased dataset, states that the rows are "
                "about other people"
            )
        return TakenUp(act={"erased": erased.id, "other_people": reason})
    population = None if declaration.population is None else populations.find(session, declaration.population)
    continues = continuations.continue_account(
        session,
        dataset.id,
        erased.id,
        population_id=None if population is None else population.id,
        actor=principal.key_id,
    )
    if not continues:
        return TakenUp()
    balance = statements.balance(session, dataset.id)
    warning = (
        f"The account of the erased dataset {erased.name} ({erased.id}) goes on here: "
        f"{balance.text(balance.charged)} of the cap of {balance.text(balance.cap)} is spent."
    )
    return TakenUp(act={"continues": erased.id}, warnings=[warning])


def same_columns(session: Session, principal: Principal, dataset: Dataset) -> list[str]:
    """A warning where other datasets of the owner have the columns of a new dataset: their budgets do not add up by
    themselves. Datasets of its population add up, and are left out."""
    owned = grants.granted_as(session, principal, Role.OWNER)
    newest: dict[str, str] = {}  # by name: the erased datasets of a name lead to the account of the newest
    for dataset_id, named in catalog.of_same_columns(session, dataset, owned).items():
        newest.setdefault(named.name, f"{named.name} ({dataset_id}{', erased' if named.deleted_at else ''})")
    if not newest:
        return []
    shown = ", ".join(list(newest.values())[: limits.MAX_SHOWN_SAME_COLUMNS])
    return [
        f"You have other datasets of the same columns: {shown}. If the rows are about the same people, "
        "their losses add up: name all of them in one population, or take the name of an erased dataset, whose account "
        "then goes on."
    ]
