"""Sets limits of the service, the forests and the verifier for one test or block."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from app.core import limits
from grovekeeper_forests import limits as forest_limits
from grovekeeper_verifier import joint_bounds, joint_cells

_MODULES = limits, forest_limits, joint_bounds, joint_cells


class SetLimit(Protocol):
    """Sets a limit until the test ends."""

    def __call__(self, name: str, value: float) -> None:
        """Sets the limit of a name wherever it stands."""


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> SetLimit:
    """A function that sets a limit until the test ends."""

    def set_limit(name: str, value: float) -> None:
        _set(monkeypatch, name, value)

    return set_limit


@contextmanager
def limits_of(**values: float) -> Iterator[None]:
    """Sets limits by their names until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            _set(patch, name, value)
        yield


def _set(patch: pytest.MonkeyPatch, name: str, value: float) -> None:
    # one module may import a limit of another
    modules = [module for module in _MODULES if hasattr(module, name)]
    assert modules, f"there is no limit {name}"
    for module in modules:
        patch.setattr(module, name, value)
