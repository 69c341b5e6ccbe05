"""Defines adjacency, the relation between two datasets that a guarantee compares."""

from enum import StrEnum


class Adjacency(StrEnum):
    """The neighbouring relation under which a guarantee is stated. Always passed, never defaulted.

    ``ADD_REMOVE_ONE``: one unit is added or removed (unbounded); the relation of every ordinary account.
    ``REPLACE_ONE``: one unit is exchanged for another (bounded); printed beside the first, at twice the pure price.
    ``LABEL``: one label changes, features and membership are public; accounts of their own.
    """

    ADD_REMOVE_ONE = "add_remove"
    REPLACE_ONE = "replace_one"
    LABEL = "label"
