"""Tables of what jobs made. What a model is stands in its artifact; what else was released stands in its row."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.types import CanonicalJson


class ModelRow(Base):
    """One trained forest."""

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


class GuaranteeRow(Base):
    """The guarantee of a dataset's account since its cap was changed: newer than what stands in its models' artifacts.

    Kept here, so that cards need no other table.
    """

    __tablename__ = "dataset_guarantees"

    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    guarantee: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)


class DatasetPopulationRow(Base):
    """The population that a dataset belongs to: models made before it joined are told so, too.

    Kept here, so that cards need no other table.
    """

    __tablename__ = "dataset_populations"

    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    population: Mapped[str]


class ProfileRow(Base):
    """One released profile. ``body`` holds the released numbers and all public facts about them; it never changes."""

    __tablename__ = "profiles"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    dataset_id: Mapped[str]
    dataset_name: Mapped[str]
    job_id: Mapped[str] = mapped_column(unique=True)
    body: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    created_at: Mapped[datetime]

    __table_args__ = (Index("ix_profiles_dataset_id_created_at_id", "dataset_id", "created_at", "id"),)


class EvaluationRow(Base):
    """One released evaluation. ``body`` holds the released numbers and all public facts about them, for ever."""

    __tablename__ = "evaluations"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    dataset_id: Mapped[str]
    dataset_name: Mapped[str]
    job_id: Mapped[str] = mapped_column(unique=True)
    body: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
    created_at: Mapped[datetime]


class EvaluatedModelRow(Base):
    """One of the models that an evaluation speaks of; the model itself may be gone."""

    __tablename__ = "evaluated_models"

    evaluation_id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(primary_key=True, index=True)
