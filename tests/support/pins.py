"""Pins the functions that theorems speak of.

A line of ``proofs/pins.txt`` has a theorem, a file, a function, and a digest of the
function's syntax tree without docstrings and comments. Where a digest is another,
somebody reads the theorem again, and then renews the pins::

    python -m tests.support.pins
"""

import ast
import hashlib
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PINS = ROOT / "proofs" / "pins.txt"
RENEWS = "python -m tests.support.pins"
_THEOREMS = re.compile(r"^\s*Theorem\s+(\w+)", re.MULTILINE)


class Pin(NamedTuple):
    """A function, by its name in a file, that a theorem speaks of."""

    theorem: str
    file: str
    function: str
    digest: str


def read_pins() -> list[Pin]:
    """The committed pins."""
    lines = PINS.read_text(encoding="utf-8").splitlines()
    return [Pin(*line.split()) for line in lines]


def proved() -> set[str]:
    """The names of all theorems that are stated."""
    files = (ROOT / "proofs").glob("*Statements.v")
    texts = [file.read_text(encoding="utf-8") for file in files]
    return set(_THEOREMS.findall("\n".join(texts)))


def digest(source: str, function: str) -> str:
    """The digest of a function, or of a method as ``Class.method``."""
    node: Any = ast.parse(source)
    for name in function.split("."):
        named = [each for each in node.body if getattr(each, "name", None) == name]
        (node,) = named
    return hashlib.sha256(repr(_form(node)).encode()).hexdigest()[:16]


def renewed(pin: Pin) -> Pin:
    """The pin of the function as it is now."""
    source = (ROOT / pin.file).read_text(encoding="utf-8")
    return pin._replace(digest=digest(source, pin.function))


def _form(node: Any) -> Any:
    """A tree as nested lists, without positions and what is empty, which the versions
    of Python write in different ways.
    """
    if isinstance(node, list):
        return [_form(each) for each in node if not _is_docstring(each)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node)]
    kept = [(name, value) for name, value in fields if value not in (None, [])]
    return [type(node).__name__, *((name, _form(value)) for name, value in kept)]


def _is_docstring(node: Any) -> bool:
    """A text that stands alone, as docstrings do, is no behaviour."""
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)


def main() -> None:
    """Writes the digests of the functions as they are now."""
    lines = [" ".join(renewed(pin)) + "\n" for pin in read_pins()]
    PINS.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
