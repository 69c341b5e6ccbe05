"""Moves, removes, finds and lists aliases of models, such as ``bank@production``.

An alias belongs to a dataset and names one of its models. Every move is a row, and the last one is in force.
"""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import ColumnElement, exists, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from app.core.stamps import is_reference
from app.registry.tables import AliasMoveRow

_Later = aliased(AliasMoveRow)

_IS_LAST: ColumnElement[bool] = ~exists().where(
    _Later.dataset_id == AliasMoveRow.dataset_id,
    _Later.alias == AliasMoveRow.alias,
    _Later.number > AliasMoveRow.number,
)


def split(address: str) -> tuple[str, str] | None:
    """The dataset and the alias of an address ``dataset@alias``; ``None`` if the text is no such address.

    Neither an id nor a name contains ``@``, so no address is an id.
    """
    dataset, separator, alias = address.partition("@")
    return (dataset, alias) if separator and is_reference(dataset) and is_reference(alias) else None


def datasets_at(session: Session, dataset: str, alias: str) -> list[str]:
    """Ids of the datasets with this id or name that have or had an alias, the first one to have it first.

    Names of erased datasets are free for other datasets, so a name may stand for several.
    """
    query = (
        select(AliasMoveRow.dataset_id)
        .where(
            AliasMoveRow.alias == alias,
            AliasMoveRow.number == 1,
            or_(AliasMoveRow.dataset_id == dataset, AliasMoveRow.dataset_name == dataset),
        )
        .order_by(AliasMoveRow.dataset_id != dataset, AliasMoveRow.moved_at, AliasMoveRow.dataset_id)
    )
    return list(session.execute(query).scalars())


def last_move(session: Session, dataset_id: str, alias: str) -> AliasMoveRow | None:
    """The last move of an alias, if it has ever existed."""
    query = select(AliasMoveRow).where(AliasMoveRow.dataset_id == dataset_id, AliasMoveRow.alias == alias)
    return session.execute(query.order_by(AliasMoveRow.number.desc()).limit(1)).scalar_one_or_none()


def page(session: Session, dataset_id: str, *, after: str | None, limit: int) -> list[AliasMoveRow]:
    """A page of the last moves of a dataset's aliases that name a model, in order of the aliases."""
    query = select(AliasMoveRow).where(
        AliasMoveRow.dataset_id == dataset_id, AliasMoveRow.model_id.is_not(None), _IS_LAST
    )
    if after is not None:
        query = query.where(AliasMoveRow.alias > after)
    return list(session.execute(query.order_by(AliasMoveRow.alias).limit(limit)).scalars())


def moves(session: Session, dataset_id: str, alias: str, *, before: int | None, limit: int) -> list[AliasMoveRow]:
    """A page of the moves of an alias, newest first."""
    query = select(AliasMoveRow).where(AliasMoveRow.dataset_id == dataset_id, AliasMoveRow.alias == alias)
    if before is not None:
        query = query.where(AliasMoveRow.number < before)
    return list(session.execute(query.order_by(AliasMoveRow.number.desc()).limit(limit)).scalars())


def of_models(session: Session, model_ids: Sequence[str]) -> dict[str, list[str]]:
    """The aliases that name each of several models, as addresses with the name of the dataset."""
    query = select(AliasMoveRow).where(AliasMoveRow.model_id.in_(model_ids), _IS_LAST).order_by(AliasMoveRow.alias)
    addresses = defaultdict(list)
    for row in session.execute(query).scalars():
        addresses[str(row.model_id)].append(f"{row.dataset_name}@{row.alias}")
    return addresses


def names(model_id: InstrumentedAttribute[str], alias: str) -> ColumnElement[bool]:
    """The condition that an alias of this text names a model."""
    return exists().where(AliasMoveRow.model_id == model_id, AliasMoveRow.alias == alias, _IS_LAST)


def n_aliases(session: Session, dataset_id: str) -> int:
    """The number of aliases that a dataset has or had."""
    query = select(func.count()).where(AliasMoveRow.dataset_id == dataset_id, AliasMoveRow.number == 1)
    return session.execute(query).scalar_one()


def add(session: Session, move: AliasMoveRow) -> None:
    """Makes an alias name a model, or none. The caller has locked the dataset."""
    last = last_move(session, move.dataset_id, move.alias)
    move.number = 1 if last is None else last.number + 1
    session.add(move)
    session.flush()
