"""Tables of models. What a model is stands in its artifact; its row says where and whose it is."""

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
    """What models of a dataset whose cap was changed guarantee since: newer than what stands in their artifacts.

    Only where the guarantee of a model is that of the whole account. Kept here, so that cards need no other table.
    """

    __tablename__ = "dataset_guarantees"

    dataset_id: Mapped[str] = mapped_column(primary_key=True)
    guarantee: Mapped[dict[str, Any]] = mapped_column(CanonicalJson)
