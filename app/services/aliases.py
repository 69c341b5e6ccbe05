"""Serves ``/datasets/{id}/aliases``: moves aliases of models, removes and lists them, and shows their moves."""

from datetime import datetime

from app.access.grants import NAME_MODEL, SEE_BALANCE, SEE_DATASET, SEE_MODEL, Principal
from app.access.keys import wait_for_revocation
from app.core import limits, stamps
from app.core.errors import InvalidRequest, NotFound, TooLarge
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import control
from app.ledger.entries import EntryKind
from app.registry import aliases, models
from app.registry.tables import AliasMoveRow
from app.services.authorization import authorized_dataset, write_as
from app.services.installation import Installation
from app.services.model_addresses import addressed_model
from app.services.pages import PageRequest, page_of
from app.wire.models import AliasHistory, AliasList, AliasMove, AliasOut, ListedAlias


def put_alias(installation: Installation, principal: Principal, reference: str, alias: str, *, model: str) -> AliasOut:
    """Makes an alias of a dataset name one of its models from now on. Naming the same model again changes nothing.

    Args:
        installation: this installation.
        principal: the caller.
        reference: id or name of the dataset.
        alias: the alias.
        model: id of the model, or another alias, whose model is then meant.

    Raises:
        NotFound: no such dataset or model, or it is not visible to this key.
        RoleMissing: only analysts name models.
        InvalidRequest: the model was trained on another dataset.
        TooLarge: the dataset has too many aliases.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, NAME_MODEL)
        catalog.locked(session, dataset.id)
        row = models.locked(session, addressed_model(session, principal, model, SEE_MODEL).id)
        if row.dataset_id != dataset.id:
            raise InvalidRequest.at("/model", "of-another-dataset")
        move = aliases.last_move(session, dataset.id, alias)
        if move is None and aliases.n_aliases(session, dataset.id) >= limits.MAX_ALIASES:
            raise TooLarge("the number of aliases", limits.MAX_ALIASES)
        if move is None or move.model_id != row.id:
            move = _move(dataset, alias, row.id, by=principal, at=installation.database.now(session))
            aliases.add(session, move)
            details = {"dataset": dataset.id, "alias": alias, "model": row.id}
            control.record(session, EntryKind.ALIAS_MOVED, actor=principal.key_id, **details)
    wait_for_revocation()
    return AliasOut(dataset=dataset.id, dataset_name=dataset.name, **_facts(move))


def remove_alias(installation: Installation, principal: Principal, reference: str, alias: str) -> None:
    """Removes an alias. Its moves stay, and it may be used again. Removing an alias that does not exist succeeds.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: only analysts name models.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, NAME_MODEL)
        catalog.locked(session, dataset.id)
        move = aliases.last_move(session, dataset.id, alias)
        if move is not None and move.model_id is not None:
            aliases.add(session, _move(dataset, alias, None, by=principal, at=installation.database.now(session)))
            control.record(session, EntryKind.ALIAS_REMOVED, actor=principal.key_id, dataset=dataset.id, alias=alias)
    wait_for_revocation()


def list_aliases(installation: Installation, principal: Principal, reference: str, page: PageRequest) -> AliasList:
    """Lists the aliases of a dataset that name a model, in alphabetical order.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_DATASET)
        shown, following = page_of(
            page,
            lambda limit: aliases.page(session, dataset.id, after=page.cursor, limit=limit),
            lambda row: row.alias,
        )
        listed = [ListedAlias(**_facts(row)) for row in shown]
        return AliasList(dataset=dataset.id, dataset_name=dataset.name, aliases=listed, next=following)


def show_alias(
    installation: Installation, principal: Principal, reference: str, alias: str, page: PageRequest
) -> AliasHistory:
    """Shows the model that an alias names, and who moved the alias when, newest first.

    Raises:
        NotFound: no such dataset or alias, or it is not visible to this key.
        RoleMissing: the key may not read the dataset's ledger.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_BALANCE)
        last = aliases.last_move(session, dataset.id, alias)
        if last is None:
            raise NotFound("alias")
        shown, following = page_of(
            page,
            lambda limit: aliases.moves(session, dataset.id, alias, before=page.sequence() or None, limit=limit),
            lambda row: str(row.number),
        )
        return AliasHistory(
            dataset=dataset.id,
            dataset_name=dataset.name,
            alias=alias,
            model_id=last.model_id,
            moves=[
                AliasMove(model_id=row.model_id, moved_by=row.moved_by, moved_at=stamps.to_text(row.moved_at))
                for row in shown
            ],
            next=following,
        )


def _move(dataset: Dataset, alias: str, model_id: str | None, *, by: Principal, at: datetime) -> AliasMoveRow:
    return AliasMoveRow(
        dataset_id=dataset.id,
        alias=alias,
        dataset_name=dataset.name,
        model_id=model_id,
        moved_by=by.key_id,
        moved_at=at,
    )


def _facts(row: AliasMoveRow) -> dict[str, str]:
    assert row.model_id is not None, "the alias names a model"
    return {"alias": row.alias, "model_id": row.model_id, "moved_at": stamps.to_text(row.moved_at)}
