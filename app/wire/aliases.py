"""Defines the types of aliases, the names that move from model to model."""

from typing import Annotated

from pydantic import Field

from app.core import limits
from app.wire.base import Answer, OfDataset, Reference, Request
from app.wire.datasets import PUBLIC_NAME

AliasName = Annotated[
    str, Field(max_length=limits.MAX_ALIAS_CHARS, pattern=PUBLIC_NAME)
]


class AliasIn(Request):
    """The model that the alias names: its id, or another alias such as
    ``bank@staging``, whose model is then meant.
    """

    model: Annotated[Reference, Field(examples=["md_4hmasneqg5v2os6a", "bank@staging"])]


class ListedAlias(Answer):
    """An alias of a dataset; ``dataset@alias`` addresses its model."""

    alias: str
    model_id: str
    moved_at: str


class AliasOut(ListedAlias):
    dataset: str
    dataset_name: str
    etag: str


class AliasList(OfDataset):
    aliases: list[ListedAlias]
    next: str | None


class AliasMove(Answer):
    """A move of an alias to a model, or with ``null`` its removal."""

    model_id: str | None
    moved_by: str
    moved_at: str


class AliasHistory(OfDataset):
    """The model that an alias names (``null``: none), and its moves, newest first.
    ``etag`` names the last move.
    """

    alias: str
    model_id: str | None
    etag: str
    moves: list[AliasMove]
    next: str | None
