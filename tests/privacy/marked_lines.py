"""Notes which lines of the application a test runs.

A statement of the application first marks its line in memory that forks share. A
tracer of the interpreter would call a function at each call of a library, and take
several times as long as the tests; and it sees no process that a test forks.
"""

import ast
import gc
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, TypeAlias

from tests.privacy.mutations import SOURCES, bits, module_of

Lines: TypeAlias = dict[str, int]
"""Lines of modules, a bit for each."""

Functions: TypeAlias = dict[tuple[str, str], list[FunctionType]]
"""Functions of a process, by file and qualified name."""

MARKS: Final = "_marks_of_tests"
"""The name of the marks in the modules whose lines they mark."""


def functions_of_process() -> Functions:
    """The functions of the application."""
    functions: Functions = {}
    gc.unfreeze()  # frozen objects are not listed
    for value in gc.get_objects():
        # a weak proxy answers isinstance for its object, which may be gone
        if type(value) is FunctionType:
            code = value.__code__
            # templates, whose functions name them, are no modules
            path = code.co_filename
            if path.startswith(SOURCES) and path.endswith(".py"):
                place = path, code.co_qualname
                functions.setdefault(place, []).append(value)
    return functions


def codes_of(tree: ast.Module, path: str) -> dict[tuple[str, int], CodeType]:
    """The code of each function of a module, by its qualified name and first line."""
    return {
        (code.co_qualname, code.co_firstlineno): code
        for code in _codes(compile(tree, path, "exec"))
    }


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


class MarkedLines:
    """The marks of a process, whose functions get other code until :meth:`undo`."""

    def __init__(self, functions: Functions) -> None:
        self._of_files = dict[str, memoryview]()
        self._before = list[tuple[FunctionType, CodeType]]()
        trees = dict[str, ast.Module]()
        for file in {file for file, _ in functions}:
            text = Path(file).read_text()
            marks = mmap.mmap(-1, text.count("\n") + 2)
            self._of_files[file] = memoryview(marks)
            trees[file] = marked(ast.parse(text))
        codes = {file: codes_of(tree, file) for file, tree in trees.items()}
        for (file, _), several in functions.items():
            for function in several:
                code = function.__code__
                place = code.co_qualname, code.co_firstlineno
                self._before.append((function, code))
                function.__globals__[MARKS] = self._of_files[file]
                function.__code__ = codes[file][place]

    def undo(self) -> None:
        """Gives functions back the code that they had."""
        for function, code in self._before:
            function.__code__ = code
            function.__globals__.pop(MARKS, None)

    @contextmanager
    def entered(self) -> Iterator[Lines]:
        """The lines that a block runs, in any thread and in processes that it forks."""
        lines: Lines = {}
        for marks in self._of_files.values():
            marks[:] = bytes(len(marks))
        try:
            yield lines
        finally:
            for file, marks in self._of_files.items():
                if run := [line for line, mark in enumerate(marks.tobytes()) if mark]:
                    lines[module_of(file)] = bits(run)


def marked(tree: ast.Module) -> ast.Module:
    """A module whose functions mark the line of each statement before it runs."""
    inside = {
        node: None
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in inside:
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                marks = (step for one in body for step in (_mark_of(one), one))
                setattr(node, name, list(marks))
    return ast.fix_missing_locations(tree)


def _mark_of(statement: ast.stmt) -> ast.stmt:
    (mark,) = ast.parse(f"{MARKS}[{statement.lineno}] = 1").body
    for node in ast.walk(mark):
        ast.copy_location(node, statement)
    return mark
