"""Stores the public facts of datasets and their uploads. Never opens a file of rows.

Rows are in files (:mod:`app.datasets.row_files`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Select,
    Text,
    UniqueConstraint,
    cast,
    func,
    inspect,
    or_,
    select,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, Session, defer, load_only, mapped_column

from app.core import json_text
from app.core.errors import DatasetDeleted, InvalidRequest, NameTaken, NotFound
from app.core.sealed_files import DataKey, StorageKeys
from app.core.stamps import is_reference
from app.datasets import unit_names
from app.db.base import Base, PrimaryKey, find_row
from app.db.database import transaction_time
from grovekeeper_common import identifier_names
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.partitions import (
    CellProblem,
    Partitions,
    UnknownPartition,
)
from grovekeeper_forests.privacy.scope import Scope

PROTECTS_LABEL = "label"
"""Value of ``protects`` for datasets whose features and membership are public: only
labels are protected.
"""

_LOADED_AT_ONCE = 4


class DatasetRow(Base):
    """A dataset's declaration; a tombstone once ``deleted_at`` is set.

    Its columns are fixed by the first upload and by whatever spends budget
    (:mod:`app.services.datasets.change`), the rest by the declaration.

    Attributes:
        living_name: the name until the dataset is deleted, then null, so that its
            owners may take it up again.
        wrapped_key: the data key, wrapped by a storage key
            (:mod:`app.core.sealed_files`); null once the dataset is deleted.
        jobs_ended_at: when no job of the deleted dataset was left in the queue; null
            before.
    """

    __tablename__ = "datasets"

    id: Mapped[PrimaryKey]
    name: Mapped[str] = mapped_column(index=True)
    living_name: Mapped[str | None] = mapped_column(unique=True)
    schema: Mapped[JsonObject]
    privacy_unit: Mapped[JsonObject]
    protects: Mapped[str]
    partitions: Mapped[list[JsonObject]]
    public_size: Mapped[int | None]
    population: Mapped[str | None]
    wrapped_key: Mapped[bytes | None]
    declared_by: Mapped[str]
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]
    jobs_ended_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(
            "(deleted_at IS NULL) = (living_name IS NOT NULL)",
            name="living_has_its_name",
        ),
        CheckConstraint(
            "(deleted_at IS NULL) = (wrapped_key IS NOT NULL)",
            name="living_has_its_key",
        ),
    )


class EpochRow(Base):
    """One upload, whose id is called an epoch. Its rows are in the file named by its id,
    which has none once it is erased.

    Attributes:
        places_freed_at: when the places of its units became free again: no job read its
            rows before they were erased (docs/proofs/accounting.md A7).
    """

    __tablename__ = "epochs"

    id: Mapped[PrimaryKey]
    dataset_id: Mapped[str]
    ordinal: Mapped[int]
    uploaded_at: Mapped[datetime]
    erased_at: Mapped[datetime | None]
    places_freed_at: Mapped[datetime | None]

    __table_args__ = (UniqueConstraint("dataset_id", "ordinal"),)


class NamedDataset(NamedTuple):
    """The name of a dataset, and when the dataset was deleted, if it was."""

    name: str
    deleted_at: datetime | None


_NAMES = select(DatasetRow.id, DatasetRow.name, DatasetRow.deleted_at)


def _named(
    session: Session, query: Select[str, str, datetime | None]
) -> dict[str, NamedDataset]:
    return {
        dataset_id: NamedDataset(name, deleted_at)
        for dataset_id, name, deleted_at in session.execute(query)
    }


@dataclass(frozen=True)
class Dataset:
    """A dataset's declaration, typed. Its row changes when the dataset is deleted, its
    data key is wrapped anew, or other columns are declared.
    """

    row: DatasetRow

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def named(self) -> dict[str, str]:
        """The members of an answer that name the dataset."""
        return {"dataset": self.id, "dataset_name": self.name}

    @kept_property
    def schema(self) -> Schema:
        return Schema.from_json(self.row.schema)

    @property
    def n_bytes(self) -> int:
        """The bytes of the declaration as JSON."""
        return json_text.n_bytes((self.row.schema, self.row.partitions))

    @kept_property
    def partitions(self) -> Partitions:
        return Partitions.from_json(self.row.partitions)

    @property
    def adjacency(self) -> Adjacency:
        """What the account protects: a row's presence, or its label where features and
        membership are public.
        """
        if self.row.protects == PROTECTS_LABEL:
            return Adjacency.LABEL
        return Adjacency.ADD_REMOVE_ONE

    @property
    def unit_column(self) -> str | None:
        """The column that names a row's unit, or ``None`` where the row is the unit."""
        column: str | None = self.row.privacy_unit["column"]
        return column

    @property
    def unit_form(self) -> str:
        """How the unit column spells a unit (:mod:`app.datasets.unit_names`)."""
        return unit_names.form_of(self.row.privacy_unit)

    @property
    def privacy_unit(self) -> JsonObject:
        """The privacy unit as answers show it. Datasets of an earlier version have a
        unit column without a form.
        """
        unit = self.row.privacy_unit
        if unit["column"] is None:
            return unit
        return {**unit, "form": self.unit_form}

    @property
    def max_rows(self) -> int:
        """Rows that one unit has at most; 1 where the row is the unit."""
        return int(self.row.privacy_unit["max_rows"])

    @property
    def warnings(self) -> list[str]:
        """Sentences about the declared columns, from the declaration alone."""
        names = self.schema.feature_names
        # only a check of a declaration makes a dataset that is not in the database
        of_names = identifier_names.warnings_of(
            names, unit=self.unit_column, is_declared=inspect(self.row).has_identity
        )
        return [*self.schema.warnings, *of_names]

    @property
    def facts(self) -> JsonObject:
        """Who is protected, and how rows are divided into cells: the first entry of the
        account states the same.
        """
        row = self.row
        return {
            "adjacency": self.adjacency,
            "privacy_unit": row.privacy_unit,
            "partitions": row.partitions,
        }

    @property
    def is_deleted(self) -> bool:
        return self.row.deleted_at is not None

    def data_key(self, keys: StorageKeys) -> DataKey:
        """The key of everything that is stored about the rows.

        Raises:
            DatasetDeleted: the key was destroyed with the rows.
        """
        if self.row.wrapped_key is None:
            raise DatasetDeleted
        return keys.unwrap(self.row.wrapped_key, dataset_id=self.row.id)

    def is_declared_as(self, other: "Dataset") -> bool:
        """Whether two readings of a dataset found one declaration."""
        declared = (
            "id",
            "name",
            "schema",
            "privacy_unit",
            "protects",
            "partitions",
            "public_size",
        )
        return all(
            getattr(self.row, column) == getattr(other.row, column)
            for column in declared
        )

    def read_scope(
        self, value: Mapping[str, object], uploads: Collection[str]
    ) -> Scope:
        """Reads the scope of a request.

        Raises:
            InvalidRequest: a partition that was not declared, or a list that names no
                cell.
        """
        try:
            scope = self.partitions.read_scope(value)
        except UnknownPartition:
            names = [partition.name for partition in self.partitions.declared]
            raise InvalidRequest.at(
                "/scope", "unknown-partition", accepted=names
            ) from None
        except CellProblem as problem:
            raise InvalidRequest.at(
                f"/scope/{problem.partition}",
                problem.problem,
                accepted=self._cells_in_words(problem.partition),
            ) from None
        by_upload = self.partitions.epoch_partition
        if by_upload is None:
            return scope
        # the declaration does not list these cells
        if not set(uploads).issuperset(scope.get(by_upload.name, ())):
            raise InvalidRequest.at(f"/scope/{by_upload.name}", "unknown-cell")
        return scope

    def _cells_in_words(self, partition: str) -> list[str]:
        """The cells of a partition; of cells that are numbers, their range."""
        cells = self.partitions.cells_of(partition)
        if not cells or isinstance(cells[0], str):
            return list(map(str, cells))
        return [f"numbers from 0 to {cells[-1]}, without quotes"]

    def narrowed(self, scope: Scope, uploads: Collection[str]) -> Scope:
        """The scope that is charged for a requested one: where uploads are cells, it
        lists the present uploads only.

        Acceptance reads ``uploads`` under the dataset's lock, in the transaction that
        reserves. Before the first upload the scope lists no upload.
        """
        by_upload = self.partitions.epoch_partition
        if by_upload is None or by_upload.name in scope or not uploads:
            return scope
        return scope.also_within(by_upload.name, uploads)

    def read_label(self, name: str | None, *, default: str | None = None) -> str | None:
        """The label that a request reads; ``None`` where the dataset declares one label.

        Args:
            name: that the request names, if any.
            default: is read where the request names none, if the dataset has a label of
                this name; otherwise the first label is.

        Raises:
            InvalidRequest: no label has the name.
        """
        schema = self.schema
        if name is None and not schema.further_labels:
            return None
        names = [label.name for label in schema.labels]
        if name not in (None, *names):
            raise InvalidRequest.at("/label", "unknown", accepted=names)
        if not schema.further_labels:
            return None
        if name is None and default in names:
            name = default
        return name or names[0]

    def uploads_in(self, scope: Scope, uploads: Sequence[str]) -> list[str]:
        """Finds the uploads whose rows lie in a scope, in the order of their arrival."""
        by_upload = self.partitions.epoch_partition
        if by_upload is None or by_upload.name not in scope:
            return list(uploads)
        named = frozenset(scope[by_upload.name])
        return [upload for upload in uploads if upload in named]

    def expected_rows(self, scope: Scope, *, n_epochs: int) -> int | None:
        """The expected number of rows in a scope, from declared sizes alone; ``None``
        where no size is declared.

        Shares of several partitions multiply. All uploads have equal shares; their
        number is public.
        """
        if self.row.public_size is None:
            return None
        inside, all_cells = self.partitions.share(scope, n_epochs=n_epochs)
        return max(self.row.public_size * inside // all_cells, 1)

    def living(self) -> "Dataset":
        """The dataset itself.

        Raises:
            DatasetDeleted: only the tombstone is left.
        """
        if self.is_deleted:
            raise DatasetDeleted
        return self


def declare(session: Session, row: DatasetRow) -> Dataset:
    """Adds a declaration, which is dated after every dataset of its name, whatever this
    machine's clock says.

    From here on, no other transaction declares or erases a dataset of the name until
    this one ends.

    Raises:
        NameTaken: a living dataset has the name.
    """
    require_free(session, row.name)
    session.add(row)
    try:
        session.flush()
    except IntegrityError:  # another declaration of the name committed in between
        raise NameTaken from None
    if earlier := erased(session, row.name):
        # A name means the newest dataset that had it, also after a clock was set back.
        newest = find(session, earlier[0]).row.created_at
        row.created_at = max(row.created_at, newest + timedelta(microseconds=1))
        session.flush()
    return Dataset(row)


def erased(session: Session, name: str) -> list[str]:
    """Ids of the erased datasets that had a name, the newest first."""
    query = select(DatasetRow.id).where(
        DatasetRow.name == name, DatasetRow.deleted_at.is_not(None)
    )
    return list(session.scalars(query.order_by(DatasetRow.created_at.desc())))


def of_same_columns(
    session: Session, dataset: Dataset, ids: Collection[str]
) -> dict[str, NamedDataset]:
    """Those of several datasets that declare the columns of another dataset, under
    another name and outside its population; the newest first, by id.
    """
    row = dataset.row
    query = _NAMES.where(
        DatasetRow.id.in_(ids),
        DatasetRow.name != row.name,
        DatasetRow.schema == row.schema,
    )
    if row.population is not None:
        query = query.where(func.coalesce(DatasetRow.population, "") != row.population)
    return _named(session, query.order_by(DatasetRow.created_at.desc()))


def require_free(session: Session, name: str) -> None:
    """Raises :class:`NameTaken` if a living dataset has the name."""
    living = select(DatasetRow.id).where(DatasetRow.living_name == name)
    if session.execute(living).first():
        raise NameTaken


_BY_NAME = (DatasetRow.living_name.is_(None), DatasetRow.created_at.desc())
"""The order of the datasets of one name: the living one, then the newest of those that
are erased.
"""


def find(session: Session, reference: str) -> Dataset:
    """A dataset by id or by name: the living dataset of that name, else the newest
    deleted one.

    Raises:
        NotFound: no such dataset.
    """
    if not is_reference(reference):
        raise NotFound("dataset")
    row = session.get(DatasetRow, reference, populate_existing=True)
    if row is None:
        has_name = or_(
            DatasetRow.living_name == reference, DatasetRow.name == reference
        )
        query = select(DatasetRow).where(has_name).order_by(*_BY_NAME).limit(1)
        row = session.execute(query).scalar_one_or_none()
    if row is None:
        raise NotFound("dataset")
    return Dataset(row)


def listed_id(session: Session, reference: str, *, among: Sequence[str] | None) -> str:
    """The id of the dataset that the filter of a list names, as :func:`find` does among
    those that the caller sees.

    Args:
        among: ids of the datasets that the caller sees; ``None``: all.

    Raises:
        NotFound: no such dataset; an empty list would say that it has nothing.
    """
    query = select(DatasetRow.id).where(
        or_(DatasetRow.id == reference, DatasetRow.name == reference)
    )
    if among is not None:
        # in the query, so that a hidden dataset of the name hides no visible one
        query = query.where(DatasetRow.id.in_(among))
    query = query.order_by(*_BY_NAME).limit(1)
    dataset_id = session.execute(query).scalar_one_or_none()
    if dataset_id is None:
        raise NotFound("dataset")
    return dataset_id


def locked(session: Session, dataset_id: str) -> Dataset:
    """A dataset under its row lock, for uploads and deletion."""
    return Dataset(find_row(session, DatasetRow, dataset_id, kind="dataset", lock=True))


@dataclass(frozen=True)
class DatasetFilter:
    """The datasets to list: those whose names contain a text, in upper or lower case,
    and the members of a population, by its name.
    """

    name: str | None = None
    population: str | None = None


def page(
    session: Session,
    *,
    ids: Sequence[str] | None,
    after: str | None,
    limit: int,
    matching: DatasetFilter = DatasetFilter(),
) -> Iterator[Dataset]:
    """Yields datasets in order of id, deleted ones included; ``ids`` restricts them
    (``None``: all datasets).

    Declarations can be large, so the database sends a few at a time: a caller that
    stops does not load the others.

    Args:
        after: the last id of the page before.

    Raises:
        NotFound: ``after`` is not one of the given datasets.
    """
    query = (
        select(DatasetRow)
        .order_by(DatasetRow.id)
        .limit(limit)
        .execution_options(yield_per=_LOADED_AT_ONCE)
    )
    if ids is not None:
        query = query.where(DatasetRow.id.in_(ids))
    if after is not None:
        # a cursor of a dataset that the caller may not see is no cursor
        last = query.where(DatasetRow.id == after).with_only_columns(DatasetRow.id)
        if session.execute(last).first() is None:
            raise NotFound("dataset")
        query = query.where(DatasetRow.id > after)
    if matching.name is not None:
        query = query.where(DatasetRow.name.icontains(matching.name, autoescape=True))
    if matching.population is not None:
        query = query.where(DatasetRow.population == matching.population)
    with session.scalars(query) as rows:
        for row in rows:
            yield Dataset(row)


def add_epoch(session: Session, dataset_id: str, *, epoch_id: str) -> EpochRow:
    """Records an upload; the caller holds the dataset's lock."""
    last = session.scalar(
        select(func.max(EpochRow.ordinal)).where(EpochRow.dataset_id == dataset_id)
    )
    row = EpochRow(
        id=epoch_id,
        dataset_id=dataset_id,
        ordinal=(last or 0) + 1,
        uploaded_at=transaction_time(session),
    )
    session.add(row)
    session.flush()
    return row


def epochs(session: Session, dataset_id: str) -> list[EpochRow]:
    """The uploads of a dataset, in order."""
    return epochs_of_each(session, [dataset_id])[dataset_id]


def upload_ids(session: Session, dataset_id: str) -> list[str]:
    """Ids of the uploads of a dataset, in order."""
    query = select(EpochRow.id).where(EpochRow.dataset_id == dataset_id)
    return list(session.scalars(query.order_by(EpochRow.ordinal)))


def uploads_as_text() -> ColumnElement[str | None]:
    """A column with the ids and the order of a dataset's uploads, for queries of
    datasets; :func:`uploads_of_text`.
    """
    # Neither database promises an order within the text, so each id has its ordinal.
    upload = cast(EpochRow.ordinal, Text) + ":" + EpochRow.id
    uploads = select(func.aggregate_strings(upload, " ")).where(
        EpochRow.dataset_id == DatasetRow.id
    )
    return uploads.correlate(DatasetRow).scalar_subquery()


def uploads_of_text(text: str | None) -> list[str]:
    """Ids of the uploads in :func:`uploads_as_text`, in order."""
    by_ordinal: dict[int, str] = {}
    for upload in (text or "").split():
        ordinal, upload_id = upload.split(":")
        by_ordinal[int(ordinal)] = upload_id
    return [by_ordinal[ordinal] for ordinal in sorted(by_ordinal)]


def epoch(session: Session, dataset_id: str, epoch_id: str) -> EpochRow:
    """One upload of a dataset.

    Raises:
        NotFound: the dataset has no such upload.
    """
    row = None
    if is_reference(epoch_id):
        row = session.get(EpochRow, epoch_id, populate_existing=True)
    if row is None or row.dataset_id != dataset_id:
        raise NotFound("upload")
    return row


def erased_uploads(session: Session) -> list[tuple[Dataset, list[str]]]:
    """Living datasets of which uploads were erased, each with the ids of these uploads."""
    query = (
        select(EpochRow)
        .where(EpochRow.erased_at.is_not(None))
        .order_by(EpochRow.dataset_id, EpochRow.ordinal)
    )
    by_dataset: dict[str, list[str]] = {}
    for row in session.scalars(query):
        by_dataset.setdefault(row.dataset_id, []).append(row.id)
    datasets = of_each(session, list(by_dataset))
    return [
        (datasets[dataset_id], uploads)
        for dataset_id, uploads in by_dataset.items()
        if not datasets[dataset_id].is_deleted
    ]


def epochs_of_each(
    session: Session, dataset_ids: Collection[str]
) -> dict[str, list[EpochRow]]:
    """The uploads of several datasets in one query: by dataset, in order."""
    epochs_by_dataset: dict[str, list[EpochRow]] = {
        dataset_id: [] for dataset_id in dataset_ids
    }
    query = (
        select(EpochRow)
        .where(EpochRow.dataset_id.in_(dataset_ids))
        .order_by(EpochRow.ordinal)
    )
    for row in session.scalars(query):
        epochs_by_dataset[row.dataset_id].append(row)
    return epochs_by_dataset


def of_each(session: Session, dataset_ids: Sequence[str]) -> dict[str, Dataset]:
    """Several datasets in one query, by id; deleted datasets included. The columns of
    each, up to some megabytes, are read when they are asked for.
    """
    query = select(DatasetRow).where(DatasetRow.id.in_(dataset_ids))
    query = query.options(defer(DatasetRow.schema))
    return {row.id: Dataset(row) for row in session.scalars(query)}


def named(session: Session, dataset_ids: Sequence[str]) -> dict[str, NamedDataset]:
    """Names of several datasets, by id; deleted datasets included."""
    return _named(session, _NAMES.where(DatasetRow.id.in_(dataset_ids)))


def mark_deleted(row: DatasetRow, *, at: datetime) -> None:
    """Turns a dataset into a tombstone and destroys its data key. Its spend and its
    name stay visible; only its owners take the name up again.
    """
    row.deleted_at = at
    row.living_name = None
    # The rows are unreadable from the commit on, whatever becomes of their files and of
    # copies of them.
    row.wrapped_key = None


def wrap_keys_anew(session: Session, keys: StorageKeys) -> int:
    """Wraps the data keys of all living datasets with the newest storage key; returns
    how many datasets changed.
    """
    living = (
        select(DatasetRow)
        .where(DatasetRow.deleted_at.is_(None))
        .order_by(DatasetRow.id)
        .with_for_update()
        # of all datasets under their locks: each may declare megabytes of columns
        .options(load_only(DatasetRow.wrapped_key))
    )
    n_changed = 0
    for row in session.scalars(living):
        if row.wrapped_key is not None and not keys.is_newest(row.wrapped_key):
            row.wrapped_key = keys.wrap(Dataset(row).data_key(keys), dataset_id=row.id)
            n_changed += 1
    return n_changed


def wrapped_keys(session: Session) -> list[bytes]:
    """The wrapped data keys of all living datasets."""
    query = select(DatasetRow.wrapped_key).where(DatasetRow.deleted_at.is_(None))
    keys = session.scalars(query)
    return [wrapped for wrapped in keys if wrapped is not None]


def epoch_ids(session: Session) -> set[str]:
    """Ids of all uploads: the row files that may exist while their datasets are not
    deleted.
    """
    return set(session.scalars(select(EpochRow.id)))


def is_empty(session: Session) -> bool:
    """Whether no dataset was ever declared."""
    return session.execute(select(DatasetRow.id).limit(1)).first() is None


def living_ids(session: Session) -> list[str]:
    """Ids of all datasets that are not deleted, in order."""
    living = select(DatasetRow.id).where(DatasetRow.deleted_at.is_(None))
    return list(session.scalars(living.order_by(DatasetRow.id)))


def closing_ids(session: Session) -> frozenset[str]:
    """Ids of the deleted datasets whose jobs have not all ended: none of these jobs may
    begin.
    """
    closing = select(DatasetRow.id).where(
        DatasetRow.deleted_at.is_not(None), DatasetRow.jobs_ended_at.is_(None)
    )
    return frozenset(session.scalars(closing))


def deleted_ids(session: Session) -> set[str]:
    """Ids of all deleted datasets: none of their row files may exist."""
    query = select(DatasetRow.id).where(DatasetRow.deleted_at.is_not(None))
    return set(session.scalars(query))
