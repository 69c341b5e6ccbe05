"""Defines the database tables of models, profiles and evaluations. An artifact holds the model itself.

The rows of profiles and evaluations hold the releases themselves.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, CanonicalJson


class ModelRow(Base):
    """A model; its artifact is the file of ``digest``."""

    __tablename__ = "models"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    dataset_id: Mapped[str] = mapped_column(index=True)
    dataset_name: Mapped[str]
    job_id: Mapped[str]
    algorithm: Mapped[str]
    digest: Mapped[str] = mapped_column(index=True)
    size_bytes: Mapped[int]
    created_at: Mapped[datetime]

    __table_args__ = (Index("ix_models_created_at_id", "created_at", "id"),)


class AliasMoveRow(Base):
    """A move of an alias to a model, or its removal. Rows never change; the last move of an alias is in force.

    Attributes:
        number: of the move of this alias, from 1.
        dataset_name: the dataset's name, by which callers address the alias.
        model_id: the model that the alias names from then on; ``None``: the alias is removed.
    """

    __tablename__ = "alias_moves"

    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    dataset_name: Mapped[str]
    model_id: Mapped[str | None] = mapped_column(index=True)
    moved_by: Mapped[str]
    moved_at: Mapped[datetime]

    __table_args__ = (Index("ix_alias_moves_alias_dataset_name", "alias", "dataset_name"),)


class GuaranteeRow(Base):
    """The guarantee of a dataset's account after a change of its cap; newer than the guarantee in models' artifacts.

    Kept in this package, so that model cards need no table of another package.
    """

    __tablename__ = "dataset_guarantees"

    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    guarantee: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)


class DatasetPopulationRow(Base):
    """The population of a dataset. The cards of all its models show it, also of models that are older than the
    membership.

    Kept in this package, so that model cards need no table of another package.
    """

    __tablename__ = "dataset_populations"

    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    population: Mapped[str]


class _ReleaseColumns:
    """``body`` holds the released numbers and their public facts, and never changes."""

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    dataset_id: Mapped[str]
    dataset_name: Mapped[str]
    job_id: Mapped[str] = mapped_column(unique=True)
    body: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    created_at: Mapped[datetime]


class ProfileRow(_ReleaseColumns, Base):
    """A released profile."""

    __tablename__ = "profiles"
    __table_args__ = (Index("ix_profiles_dataset_id_created_at_id", "dataset_id", "created_at", "id"),)


class EvaluationRow(_ReleaseColumns, Base):
    """A released evaluation."""

    __tablename__ = "evaluations"


class EvaluatedModelRow(Base):
    """A model of an evaluation; the model may have been removed since."""

    __tablename__ = "evaluated_models"

    evaluation_id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(primary_key=True, index=True)
