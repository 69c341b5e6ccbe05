"""Defines the declarative base of every table and the names of constraints."""

from datetime import datetime
from typing import ClassVar

from sqlalchemy import MetaData, Text
from sqlalchemy.orm import DeclarativeBase

from app.db.types import ExactInteger, UtcDateTime

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Gives every constraint the same name on both databases and in all revisions, so that a migration can drop it."""


class Base(DeclarativeBase):
    """Base of every ORM class in a ``tables.py``; its metadata is the schema at the newest revision."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar = {int: ExactInteger, datetime: UtcDateTime, str: Text}
