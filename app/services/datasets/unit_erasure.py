"""Erases the rows of one unit: from one dataset, or of a person from several members of
a population. Every charge stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.grants import (
    MANAGE_DATASET,
    Principal,
    Role,
    confirm,
    datasets_with,
    granted_as,
)
from app.core import limits, stamps
from app.core.errors import InvalidRequest, NoRowsOfUnit, RoleMissing, TooLarge
from app.core.sealed_files import DataKey
from app.datasets import admission, catalog, row_files, unit_names
from app.datasets.catalog import Dataset, EpochRow
from app.datasets.erasure_log import ErasedUnit, unit_record
from app.ledger import control, populations
from app.ledger.tables import Entry, EntryKind
from app.services.authorization import (
    authorized_dataset,
    managed_dataset,
    write_as,
)
from app.services.datasets.upload import opened_book, unless_erased
from app.services.installation import Installation
from app.services.ledger.balances import visible_population
from app.services.ledger.heads import open_log
from app.wire.populations import PersonErasureIn, PersonErasureOut
from app.wire.uploads import ErasureOut


@dataclass(frozen=True)
class _Unit:
    """A unit of one dataset.

    Attributes:
        key: of the dataset's data.
        row_id: PRIVATE; the keyed digest of the unit.
        similar_ids: PRIVATE; those of units whose spelling looks like the unit's.
    """

    dataset: Dataset
    key: DataKey
    row_id: bytes
    similar_ids: Sequence[bytes]


def erase_unit(
    installation: Installation,
    principal: Principal,
    reference: str,
    *,
    unit: str,
    named: str | None = None,
) -> ErasureOut:
    """Erases every stored row with one value of the unit column, in any of its
    spellings, and stores it nowhere.

    Rows of uploads that were killed before they were committed are erased, too,
    whatever their unit.

    The erasure is recorded outside the database first, so that a restore of an older
    backup applies it again. If the process dies after that, a repetition of the request
    erases what is left; an erasure without rows is no act. The ledger does not change.
    The unit's admitted rows still count towards ``max_rows``: later rows of the unit
    are admitted only while the unit has places left. Models that were trained on the
    rows stay. The act keeps ``named``, the caller's name of the request.

    Raises:
        DatasetDeleted: the dataset's rows are erased.
        InvalidRequest: the dataset has no unit column, or the value cannot be in it.
        NoRowsOfUnit: no row of the unit is stored, so nothing was erased or recorded.
            It tells an owner by a grant how many similar units are stored.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        dataset.living()
    chosen = _unit_of(installation, dataset, unit)
    return _erase(installation, principal, chosen, named)


def erase_person(
    installation: Installation,
    principal: Principal,
    population: str,
    body: PersonErasureIn,
) -> PersonErasureOut:
    """Erases the rows of one unit from members of a population, one after the other, as
    :func:`erase_unit` does.

    Each chosen member gets an act, whether or not it has a row of the unit: so the acts
    tell an auditor, and the answer tells a caller who owns no member, nothing about the
    person. A repetition of the request finishes what a dying process left, and adds
    acts.

    Raises:
        NotFound: the caller sees no such population or dataset.
        RoleMissing: a dataset is not the caller's.
        DatasetDeleted: a named dataset's rows are erased.
        InvalidRequest: a named dataset is no member, nothing is left to choose from,
            the members have no unit column, or the value cannot be in it.
        TooLarge: there are more members than one request may erase from.
    """
    with installation.database.read() as session:
        row = visible_population(session, principal, population)
        members = _chosen(session, principal, row.id, body.datasets)
    # what can fail fails before the first row is erased
    units = [_unit_of(installation, dataset, body.unit) for dataset in members]
    return PersonErasureOut(
        population=row.id,
        population_name=row.name,
        reference=body.reference,
        members=[
            _erase(installation, principal, unit, body.reference, is_always_an_act=True)
            for unit in units
        ],
    )


def erasable_members(
    installation: Installation, principal: Principal, population: str
) -> list[Dataset]:
    """The members of a population from which the caller may erase a person; none if all
    are other people's.
    """
    with installation.database.read() as session:
        row = visible_population(session, principal, population)
        ids = set(populations.of_population(session, row.id).members)
        return _living(session, _managed(session, principal, ids))


def _chosen(
    session: Session, principal: Principal, population: str, named: list[str] | None
) -> list[Dataset]:
    """The members to erase from: those that are named, or all living ones of the
    caller.
    """
    ids = set(populations.of_population(session, population).members)
    if named is None:
        theirs = _managed(session, principal, ids)
        if ids and not theirs:
            raise RoleMissing([Role.OWNER.value])
        members = _living(session, theirs)
    else:
        members = [
            _named_member(session, principal, ids, index, reference)
            for index, reference in enumerate(named)
        ]
    if not members:
        raise InvalidRequest.at("/datasets", "no-members")
    if len(members) > limits.MAX_ERASED_MEMBERS:
        raise TooLarge("the number of datasets", limits.MAX_ERASED_MEMBERS)
    return members


def _managed(session: Session, principal: Principal, ids: set[str]) -> set[str]:
    """Those of some datasets from which the caller may erase."""
    theirs = datasets_with(session, principal, MANAGE_DATASET)
    return ids if theirs is None else ids.intersection(theirs)


def _living(session: Session, ids: set[str]) -> list[Dataset]:
    datasets = (catalog.find(session, id_) for id_ in ids)
    living = (dataset for dataset in datasets if not dataset.is_deleted)
    return sorted(living, key=lambda dataset: (dataset.name, dataset.id))


def _named_member(
    session: Session,
    principal: Principal,
    ids: set[str],
    index: int,
    reference: str,
) -> Dataset:
    dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
    if dataset.id not in ids:
        raise InvalidRequest.at(f"/datasets/{index}", "not-a-member")
    dataset.living()
    return dataset


def _erase(
    installation: Installation,
    principal: Principal,
    unit: _Unit,
    reference: str | None,
    *,
    is_always_an_act: bool = False,
) -> ErasureOut:
    """Erases the rows of a unit and records the act. The PRIVATE numbers are for an
    owner by a grant, ``None`` for others.

    Raises:
        DatasetDeleted: the dataset's rows are erased.
        NoRowsOfUnit: there is no row, and no act is wanted then.
    """
    from app.datasets import erasure  # pyarrow takes 0.2 s of CPU and 40 MB to import

    facts = {"reference": reference} if reference else {}
    dataset = unit.dataset
    key = unit.key
    store = installation.files
    with (
        unless_erased(installation, dataset.id),
        opened_book(installation, dataset, key),
    ):
        uploads = _uploads_under_lock(installation, principal, dataset)
        epochs = [epoch.id for epoch in uploads]
        row_files.erase_uncommitted(store, dataset.id, committed=epochs)
        row_ids = [unit.row_id, *unit.similar_ids]
        found = erasure.stored_ids(store, dataset.id, epochs, key=key, row_ids=row_ids)
        n_similar = len(found.intersection(unit.similar_ids))
        if unit.row_id not in found and not is_always_an_act:
            raise _no_rows(installation, principal, dataset.id, n_similar)
        entry, is_owner = _recorded(installation, principal, unit, uploads, facts)
        n_erased = erasure.erase_rows(
            store, dataset.id, epochs, key=key, row_id=unit.row_id
        )
    return ErasureOut(
        **dataset.named,
        act=entry.sequence,
        at=entry.at,
        erased=n_erased if is_owner else None,
        similar_units=n_similar if is_owner else None,
    )


def _no_rows(
    installation: Installation, principal: Principal, dataset_id: str, n_similar: int
) -> NoRowsOfUnit:
    """The refusal of an erasure without rows. Only an owner by a grant reads how many
    similar units are stored (PRIVATE).
    """
    with installation.database.read() as session:
        caller = confirm(session, principal)
        is_owner = _is_owner(session, caller, dataset_id)
    return NoRowsOfUnit(n_similar if is_owner else None)


def _uploads_under_lock(
    installation: Installation, principal: Principal, dataset: Dataset
) -> list[EpochRow]:
    """The uploads of a dataset, under its lock: the last upload may have closed the
    book without having committed yet.
    """
    with write_as(installation, principal) as (session, principal):
        managed_dataset(session, principal, dataset.id)
        return catalog.epochs(session, dataset.id)


def _recorded(
    installation: Installation,
    principal: Principal,
    unit: _Unit,
    uploads: Sequence[EpochRow],
    facts: dict[str, str],
) -> tuple[Entry, bool]:
    """The act of an erasure, and whether the caller is an owner by a grant."""
    dataset_id = unit.dataset.id
    with write_as(installation, principal) as (session, principal):
        authorized_dataset(session, principal, dataset_id, MANAGE_DATASET)
        record = stamps.new(stamps.ERASURE)
        last_upload = max((upload.ordinal for upload in uploads), default=0)
        # The record is before the act: of a unit, it could not be written again from
        # the act.
        open_log(installation).write_unit(
            unit_record(dataset_id, record),
            ErasedUnit(unit.row_id, last_upload=last_upload),
            key=unit.key,
        )
        entry = control.record(
            session,
            EntryKind.UNIT_ERASED,
            actor=principal.key_id,
            dataset=dataset_id,
            record=record,
            **facts,
        )
        return entry, _is_owner(session, principal, dataset_id)


def _is_owner(session: Session, principal: Principal, dataset_id: str) -> bool:
    """Whether a caller is an owner of a dataset by a grant."""
    return dataset_id in granted_as(session, principal, Role.OWNER)


def _unit_of(installation: Installation, dataset: Dataset, unit: str) -> _Unit:
    """A unit of a dataset by its value in the unit column, in any of its spellings."""
    if dataset.unit_column is None:
        raise InvalidRequest.at("/unit", "no-unit-column")
    key = dataset.data_key(installation.storage_keys)
    names = _spellings(unit, dataset.unit_form)
    row_id, *similar_ids = admission.unit_row_ids(
        names, dataset_key=admission.digest_key(key)
    )
    return _Unit(dataset, key, row_id, similar_ids)


def _spellings(unit: str, form: str) -> list[str]:
    """The spelling under which a unit is stored, then those of units that look like it;
    an integer has one spelling.
    """
    name = _canonical(unit, form)
    if form == unit_names.INTEGER:
        return [name]
    return [name, *sorted(unit_names.similar_spellings(name))]


def _canonical(unit: str, form: str) -> str:
    """The spelling under which a unit is stored.

    Raises:
        InvalidRequest: no row can have this value.
    """
    try:
        name = unit_names.canonical(unit, form)
    except unit_names.NotAPlainInteger:
        raise InvalidRequest.at("/unit", "not-a-plain-integer") from None
    if not name:
        raise InvalidRequest.at("/unit", "empty")
    return name
