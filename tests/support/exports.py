"""Builds events and checks failures in tests of the verifier."""

from typing import Any

import pytest

from grovekeeper_verifier.dataset_replay import verify
from grovekeeper_verifier.export_lines import NotVerified

_LAPLACE = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "coordinates": 4,
}


def laplace(inverse_scale: str) -> dict[str, Any]:
    """An event that costs as much ε as its inverse scale."""
    return {**_LAPLACE, "inverse_scale": inverse_scale}


def failure_of(lines: list[bytes]) -> NotVerified:
    """The verifier's error on an export that must fail."""
    with pytest.raises(NotVerified) as caught:
        verify(lines)
    return caught.value
