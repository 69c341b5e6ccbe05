"""Caches without a limit: only where the program, and no caller, decides what they
keep.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import name_of, sources

ENDLESS = {
    "app/access/idempotency.py:_insertion": "two dialects",
    "app/api/problems.py:_documented": "the problems of a status, as the program lists them",
    "app/db/locks.py:_locking": "columns of the program's tables",
    "app/services/spending/spend.py:_select_protected": "two dialects",
}
"""Functions with arguments whose results are kept for ever, and why there are few of
them.
"""


WITH_LOCK = {
    "app/api/middleware.py:every_request": "one application in a process",
    "app/core/settings.py:dask_cluster": "one object in a process",
    "app/services/installation.py:heads": "one installation in a process",
    "app/services/installation.py:storage_keys": "one installation in a process",
}
"""Properties by ``functools.cached_property``, whose lock all objects of a class share
in Python 3.11.
"""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """The syntax trees of all sources."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources()}


def _decorated(
    trees: dict[Path, ast.Module],
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{name_of(path)}:{node.name}"
                yield from (
                    (name, node, ast.unparse(decorator))
                    for decorator in node.decorator_list
                )


def _takes_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(ast.unparse(node.args))


def test_what_a_caller_names_is_kept_within_a_limit(
    trees: dict[Path, ast.Module],
) -> None:
    endless = {
        name
        for name, node, decorator in _decorated(trees)
        if decorator.removeprefix("functools.")
        in ("cache", "lru_cache(maxsize=None)", "lru_cache(None)")
        and _takes_arguments(node)
    }
    assert endless == ENDLESS.keys()


def test_a_value_of_one_object_keeps_nobody_waiting_for_that_of_another(
    trees: dict[Path, ast.Module],
) -> None:
    locked = {
        name
        for name, _, decorator in _decorated(trees)
        if decorator.endswith("cached_property")
    }
    assert locked == WITH_LOCK.keys()


def test_no_dictionary_of_a_module_fills_while_the_process_runs(
    trees: dict[Path, ast.Module],
) -> None:
    filling = []
    for path, tree in trees.items():
        for node in tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if value is not None and ast.unparse(value) in (
                "{}",
                "[]",
                "set()",
                "dict()",
                "Counter()",
                "deque()",
            ):
                filling.append(f"{name_of(path)}: {ast.unparse(node)}")
    assert filling == []
