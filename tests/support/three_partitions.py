"""Declares three small hash partitions, with a strategy for boxes over them."""

from hypothesis import strategies as st

from grovekeeper_forests.privacy.partitions import Partitions

_SIZES = (2, 3, 4)

PARTITIONS = Partitions.from_json(
    [
        {"name": f"p{number}", "kind": "hash", "cells": cells}
        for number, cells in enumerate(_SIZES)
    ]
)

SCOPES = st.fixed_dictionaries(
    {},
    optional={
        f"p{number}": st.sets(st.integers(0, cells - 1), min_size=1)
        for number, cells in enumerate(_SIZES)
    },
)
