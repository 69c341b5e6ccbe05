"""Continues the account of an erased dataset in the account of the dataset that takes up its name.

The load of the erased dataset's tightest joint cell becomes the *opening load* of the new account: an entry of its own,
which counts as charged in every joint cell. So the outputs about the rows that were erased and about the rows that are
uploaded again share one cap, whoever is in both (docs/proofs/accounting.md A8).
"""

from sqlalchemy.orm import Session

from app.core.errors import AccountDiffers, Unavailable
from app.ledger import chain, populations, repository, state
from app.ledger.entries import EntryKind
from app.ledger.tables import AccountRow
from app.privacy import accountants


def continue_account(
    session: Session, account_id: str, erased_id: str, *, population_id: str | None, actor: str
) -> bool:
    """Gives a new account the load of an erased dataset's account. Nothing happens if that load is zero.

    The highest caps of both accounts count: an output of the erased dataset was released under the cap of that time.
    If the erased dataset is a member of a population, the new dataset becomes a member, too, in the same transaction
    (:func:`app.ledger.populations.join`), and its load there takes the place of the erased dataset's.

    Args:
        session: of the transaction that opened the new account, which has no other entry.
        account_id: the new account.
        erased_id: the account of the erased dataset.
        population_id: the population that the new dataset is declared to be a member of, if it exists.
        actor: the key that declares.

    Returns:
        Whether the new account has an opening load.

    Raises:
        AccountDiffers: the loads of the two accounts cannot be added; says in which facts they differ.
        Unavailable: reservations of the erased dataset are still being given back.
        BalanceMismatch: the balance of the erased dataset differs from its entries.
    """
    erased, account = repository.locked_account(session, erased_id), repository.locked_account(session, account_id)
    before = state.of(session, erased)
    if before.reservations:
        raise Unavailable("the reservations of the erased dataset of this name are still being given back")
    joined = populations.id_of(session, erased_id)
    if joined is None:
        load = before.budget.whole.load
    else:
        load = state.of(session, repository.account(session, joined)).loads[erased_id]
    if not load:
        return False
    differs = _differences(account, erased)
    if not differs and state.of(session, account).cap > before.cap:
        differs = ("cap",)  # caps of different units, or converted at different δ, do not compare
    if joined not in (None, population_id):
        differs = (*differs, "population")
    if differs:
        raise AccountDiffers(dataset=erased.id, dataset_name=erased.name, differs=differs)
    continued = {
        "dataset": erased.id,
        "sequence": erased.last_sequence,
        "hash": erased.last_hash,
        "highest_cap": accountants.amount_text(erased.accountant, before.highest_cap),
    }
    if erased.delta_set_aside is not None:
        set_aside = accountants.delta_steps(erased.delta_set_aside)
        continued["delta"] = accountants.delta_text(min(before.tightest_delta({}).charged, set_aside))
    # Not before the erased dataset's last entry, whose clock may have been ahead: the verifier checks the two times.
    opening = chain.NewEntry(EntryKind.LOAD, load, actor=actor, details={"continues": continued})
    chain.append(session, account, opening, not_before=erased.last_at)
    return True


def _differences(account: AccountRow, erased: AccountRow) -> tuple[str, ...]:
    """The facts that keep two loads from being added, besides the cap: a cap above the erased account's would be a
    raise without a reason."""
    names = ("accountant", "delta", "delta_set_aside", "adjacency")
    differs = [name for name in names if getattr(account, name) != getattr(erased, name)]
    units = [(row.privacy_unit or {})["column"] for row in (account, erased)]
    differs += ["privacy_unit"] if units[0] != units[1] else []
    return tuple(differs)
