"""Defines the database tables of releases, and of the aliases and later facts of
models.
"""

from datetime import datetime

from sqlalchemy import CheckConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, PrimaryKey
from grovekeeper_common.json_types import JsonObject


class ReleaseRow(Base):
    """What a job released about the rows of a dataset: a file or a body, which never
    changes.

    Attributes:
        kind: that of the job.
        dataset_id: the dataset whose grants govern the release.
        algorithm: of a model.
        digest: SHA-256 of the file.
        body: the released numbers and their public facts.
        created_at: when the job was submitted; the time of its end would reveal how
            long it took.
    """

    __tablename__ = "releases"

    id: Mapped[PrimaryKey]
    kind: Mapped[str]
    name: Mapped[str | None]
    dataset_id: Mapped[str]
    dataset_name: Mapped[str]
    job_id: Mapped[str] = mapped_column(unique=True)
    algorithm: Mapped[str | None]
    digest: Mapped[str | None] = mapped_column(index=True)
    size_bytes: Mapped[int | None]
    body: Mapped[JsonObject | None]
    created_at: Mapped[datetime]

    __table_args__ = (
        Index("ix_releases_kind_created_at_id", "kind", "created_at", "id"),
        Index(
            "ix_releases_dataset_id_kind_created_at_id",
            "dataset_id",
            "kind",
            "created_at",
            "id",
        ),
        CheckConstraint(
            "(digest IS NULL) = (size_bytes IS NULL) AND (digest IS NULL) = (body IS NOT NULL)",
            name="file_or_body",
        ),
        CheckConstraint(
            "(kind = 'train') = (algorithm IS NOT NULL)", name="model_has_algorithm"
        ),
        CheckConstraint("kind <> 'train' OR digest IS NOT NULL", name="model_is_file"),
    )

    @property
    def file(self) -> str:
        """The digest of the file, of a release that has one."""
        assert self.digest is not None, "the release is a file"
        return self.digest

    @property
    def facts(self) -> JsonObject:
        """The body, of a release that has one."""
        assert self.body is not None, "the release is a body"
        return self.body


class AliasMoveRow(Base):
    """A move of an alias to a model, or its removal. Rows never change; the last move
    of an alias is in force.

    Attributes:
        number: of the move of this alias, from 1.
        dataset_name: the dataset's name, by which callers address the alias.
        model_id: the model that the alias names from then on; ``None``: the alias is
            removed.
    """

    __tablename__ = "alias_moves"

    dataset_id: Mapped[PrimaryKey]
    alias: Mapped[PrimaryKey]
    number: Mapped[int] = mapped_column(primary_key=True)
    dataset_name: Mapped[str]
    model_id: Mapped[str | None] = mapped_column(index=True)
    moved_by: Mapped[str]
    moved_at: Mapped[datetime]

    __table_args__ = (
        Index("ix_alias_moves_alias_dataset_name", "alias", "dataset_name"),
    )


class GuaranteeRow(Base):
    """The guarantee of a dataset's account after a change of its cap; newer than the
    guarantee in models' artifacts.

    Kept in this package, so that model cards need no table of another package.
    """

    __tablename__ = "dataset_guarantees"

    dataset_id: Mapped[PrimaryKey]
    guarantee: Mapped[JsonObject]


class DatasetPopulationRow(Base):
    """The population of a dataset. The cards of all its models show it, also of models
    that are older than the membership.

    Kept in this package, so that model cards need no table of another package.
    """

    __tablename__ = "dataset_populations"

    dataset_id: Mapped[PrimaryKey]
    population: Mapped[str]


class EvaluatedModelRow(Base):
    """A model of an evaluation; the model may have been removed since."""

    __tablename__ = "evaluated_models"

    evaluation_id: Mapped[PrimaryKey]
    model_id: Mapped[str] = mapped_column(primary_key=True, index=True)
