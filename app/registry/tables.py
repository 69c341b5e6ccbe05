"""The table of models. What a model is stands in its artifact; this row says where and whose it is."""

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base


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
