"""Takes, from a matrix of cases, those in which every value occurs, and leaves the others
to the long tests.

A test with the marker ``covering("slug, leaf", "server")`` is such a matrix: each pair
of ``slug`` and ``leaf`` and each server change the result, and no server enters other
code for another pair. The default run takes few cases in which each value of each named
argument occurs. The others get the marker ``long``, so ``-m long`` runs them.

A module with the marker ``in_turn("server")`` asks each test on one server, and the next
test on the next: for rules that no database decides.

``TEST_SLICE=3/4`` runs a quarter of the others besides. CI takes the slice of a commit
from the commit's digest, so each case runs at one commit in four.
"""

import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import pytest

_VARIABLE = "TEST_SLICE"
_NO_SLICE = "0/0"

Value = tuple[str, str]
"""An argument and its value in one case."""


def pytest_report_header() -> str | None:
    """Says which slice runs, so that the run can be repeated."""
    return f"{_VARIABLE}={_slice_text()}" if _slice_text() != _NO_SLICE else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases that the default run leaves out, before ``-m`` chooses."""
    matrices = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("covering")
        if marker is not None and item.get_closest_marker("long") is None:
            test = item.nodeid.partition("[")[0]
            matrices[test].append((item, values_of(item, marker.args)))
    for cases in matrices.values():
        names_left_out = left_out({item.nodeid: values for item, values in cases})
        for item, _ in cases:
            if item.nodeid in names_left_out:
                item.add_marker(pytest.mark.long)
    _take_turns(items)


def left_out(cases: Mapping[str, Sequence[Value]]) -> set[str]:
    """The names of the cases that neither the default run takes nor the slice."""
    taken = covering(list(cases.values()))
    others = [name for at, name in enumerate(cases) if at not in taken]
    return {name for name in others if not _is_in_slice(name)}


def _take_turns(items: list[pytest.Item]) -> None:
    """Takes one value of the named argument for each test, and the next value for the
    next test of the module.
    """
    modules: dict[Path, dict[Hashable, list[pytest.Function]]] = {}
    for item in items:
        marker = item.get_closest_marker("in_turn")
        if marker is None or item.get_closest_marker("long") is not None:
            continue
        assert isinstance(item, pytest.Function)
        (argument,) = marker.args
        if argument in item.fixturenames:
            test = _without(item, argument)
            modules.setdefault(item.path, {}).setdefault(test, []).append(item)
    for tests in modules.values():
        for turn, cases in enumerate(tests.values()):
            _keep(cases[turn % len(cases)], cases)


def _without(case: pytest.Function, argument: str) -> Hashable:
    """A test and its arguments, but for one of them."""
    callspec = getattr(case, "callspec", None)  # none without arguments
    arguments = callspec.params if callspec else {}
    others = (f"{name}={arguments[name]!r}" for name in arguments if name != argument)
    return case.originalname, *others


def _keep(taken: pytest.Function, cases: Sequence[pytest.Function]) -> None:
    """Makes the other cases long."""
    for case in cases:
        if case is not taken and not _is_in_slice(case.nodeid):
            case.add_marker(pytest.mark.long)


def values_of(item: pytest.Item, names: Sequence[str]) -> list[Value]:
    """The values of the named arguments in one case."""
    assert isinstance(item, pytest.Function)
    assert names, "the marker names the arguments that are covered"
    values = item.callspec.params
    return [(name, repr([values[part] for part in name.split(", ")])) for name in names]


def covering(cases: Sequence[Sequence[Value]]) -> set[int]:
    """Positions of cases in which every value occurs that occurs in any case, few of
    them: each time the case with the most new values, then with the rarest.
    """
    missing = {value for values in cases for value in values}
    n_times: Counter[Value] = Counter()
    taken: set[int] = set()
    while missing:
        best = max(
            range(len(cases)),
            key=lambda position: (
                len(missing.intersection(cases[position])),
                -sum(n_times[value] for value in cases[position]),
                -position,
            ),
        )
        taken.add(best)
        n_times.update(cases[best])
        missing.difference_update(cases[best])
    return taken


def _slice_text() -> str:
    return os.environ.get(_VARIABLE, _NO_SLICE)


def _is_in_slice(node_id: str) -> bool:
    number, n_slices = map(int, _slice_text().split("/"))
    return n_slices > 0 and zlib.crc32(node_id.encode()) % n_slices == number
