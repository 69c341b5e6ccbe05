"""Defines adjacency, the relation between two datasets that a guarantee compares."""

from enum import StrEnum


class Adjacency(StrEnum):
    """The neighbouring relation under which a guarantee is stated. Always passed, never defaulted.

    ``ADD_REMOVE_ONE``: one unit is added or removed (unbounded); the adjacency of every ordinary account.
    ``REPLACE_ONE``: one unit is replaced by another (bounded); guarantees also state its loss, on ``pure`` accounts
    twice the loss under add/remove.
    ``LABEL``: one label changes; features and membership are public. The adjacency of accounts that protect labels
    alone.
    """

    ADD_REMOVE_ONE = "add_remove"
    REPLACE_ONE = "replace_one"
    LABEL = "label"
