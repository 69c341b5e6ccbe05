"""Defines the database tables of datasets and uploads. Rows are in files (:mod:`app.datasets.row_files`)."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, CanonicalJson


class DatasetRow(Base):
    """A dataset's declaration, fixed before the first upload; a tombstone once ``deleted_at`` is set.

    Attributes:
        visibility: ``private``. Processes of the version before write it, so a later revision drops it.
        living_name: the name until the dataset is deleted, then null, so that its owners may take it up again.
        wrapped_key: the data key, wrapped by a storage key (:mod:`app.core.sealed_files`); null once the dataset is
            deleted.
        jobs_ended_at: when no job of the deleted dataset was left in the queue; null before.
    """

    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    living_name: Mapped[str | None] = mapped_column(unique=True)
    schema: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    privacy_unit: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    protects: Mapped[str]
    partitions: Mapped[list[dict[str, Any]]] = mapped_column(CanonicalJson)
    public_size: Mapped[int | None]
    visibility: Mapped[str] = mapped_column(server_default="private")
    population: Mapped[str | None]
    wrapped_key: Mapped[bytes | None] = mapped_column(LargeBinary)
    declared_by: Mapped[str]
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]
    jobs_ended_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("visibility = 'private'", name="visibility_known"),
        CheckConstraint("(deleted_at IS NULL) = (living_name IS NOT NULL)", name="living_has_its_name"),
        CheckConstraint("(deleted_at IS NULL) = (wrapped_key IS NOT NULL)", name="living_has_its_key"),
    )


class EpochRow(Base):
    """One upload, called an epoch. Its rows are in the file named by its id, which has none once it is erased.

    Attributes:
        places_freed_at: when the places of its units became free again: no job read its rows before they were erased
            (docs/proofs/accounting.md A7).
    """

    __tablename__ = "epochs"

    id: Mapped[str] = mapped_column(primary_key=True)
    dataset_id: Mapped[str]
    ordinal: Mapped[int]
    uploaded_at: Mapped[datetime]
    erased_at: Mapped[datetime | None]
    places_freed_at: Mapped[datetime | None]

    __table_args__ = (UniqueConstraint("dataset_id", "ordinal"),)
