"""Makes the private start of a label that is a number small enough to enumerate."""

import pytest

from grovekeeper_forests.array_types import Int32Array
from grovekeeper_forests.bins import number_targets


def keep_two_spreads(patch: pytest.MonkeyPatch, edges: Int32Array) -> None:
    """Leaves these edges to select among, and two spreads."""
    patch.setattr(number_targets, "edges_of", lambda _: edges)
    patch.setattr(number_targets, "N_SPREADS", 2)
    patch.setattr(number_targets, "_LIKELY_HALVINGS", 1)
