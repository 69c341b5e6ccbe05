"""Prepares what the page of a declaration shows: its steps, and at last a review."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.api.pages.forms import cap_field
from app.wire.datasets import DeclarationOut
from grovekeeper_common.number_words import counted
from grovekeeper_forests.amounts import SYMBOLS

_LABELS = {"columns": "Columns", "budget": "Budget", "review": "Review"}
_NEXT = {"columns": "budget", "budget": "review", "review": "review"}
_NOT_CARRIED = {"go", "step", "live", "dictionary"}
_FIELDS_OF_STEP = {
    "columns": {"name", "missing_values", "f", "n_f", "l", "n_l"},
    "budget": {
        "fails",
        "mostly",
        "epsilon",
        "cap_unit",
        "delta",
        "public_size",
        "unit",
        "protects",
        "population",
        "other_people",
        "p",
        "n_p",
    },
    "review": set[str](),
}
"""The fields that a step shows: their names, or how the names of several begin."""


@dataclass(frozen=True)
class Step:
    """A step of a declaration.

    Attributes:
        next: the step that follows, if it is no other.
        labels: the name of each step, and whether it is this step.
        carried: the fields of other steps, which the form sends unseen.
    """

    name: str
    next: str
    labels: Sequence[tuple[str, bool]]
    carried: Sequence[tuple[str, str]]


def shown_step(name: str, form: Mapping[str, str]) -> Step:
    """A step of a declaration with the fields of a form."""
    shown = _FIELDS_OF_STEP[name]
    return Step(
        name=name,
        next=_NEXT[name],
        labels=[(label, step == name) for step, label in _LABELS.items()],
        carried=[
            (field, text)
            for field, text in form.items()
            # The button that was pressed belongs to the step that was left.
            if field not in _NOT_CARRIED and not _names_of(field) & shown
        ],
    )


def _names_of(field: str) -> set[str]:
    """A field, and how its name begins: ``f`` for ``f3.lower``."""
    return {field, field.split(".")[0].rstrip("0123456789")}


@dataclass(frozen=True)
class Review:
    """What a declaration makes public, in words.

    Attributes:
        facts: each with its name.
        columns: name, type and values of each column.
        continued: the erased dataset whose account goes on.
        spent_there: what that account has spent and has left.
    """

    facts: Sequence[tuple[str, str]]
    columns: Sequence[tuple[str, str, str]]
    continued: str | None
    spent_there: str


def review_of(
    form: Mapping[str, str],
    columns: Sequence[Mapping[str, str]],
    labels: Sequence[Mapping[str, str]],
    accountant: str,
    would_be: DeclarationOut | None,
) -> Review:
    """The review of a form.

    Args:
        columns: the rows of the form's table of columns to learn from.
        labels: the rows of its table of columns to predict.
        would_be: what the declaration becomes; ``None`` if it breaks a rule.
    """
    facts = [
        ("Name", form.get("name", "")),
        ("Account", _account(form, accountant, would_be)),
        ("Protected", _protected(form)),
        ("Size", _size(would_be)),
        ("Cells", _cells(would_be)),
    ]
    continued = None if would_be is None else would_be.continues
    return Review(
        facts=facts,
        columns=[*map(_column, columns), *map(_label, labels)],
        continued=continued,
        spent_there="" if would_be is None else _spent(would_be),
    )


def _account(
    form: Mapping[str, str], accountant: str, would_be: DeclarationOut | None
) -> str:
    words = accountant
    if would_be is not None:
        account = would_be.account
        words += f", a cap of {account.cap} {SYMBOLS[account.unit]}"
    symbol = {"rho": "ρ", "mu": "μ"}.get(cap_field(form, accountant), "ε")
    typed_cap = f"{symbol} = {form.get('epsilon', '')}"
    if accountant == "pure":
        return f"{words} ({typed_cap})"
    return f"{words} ({typed_cap}, δ = {form.get('delta', '')})"


def _protected(form: Mapping[str, str]) -> str:
    words = "labels" if form.get("protects") == "label" else "whole rows"
    column = form.get("unit.column")
    if not column:
        return words
    max_rows = form.get("unit.max_rows") or 1
    return (
        f"{words} of one value of {column} ({form.get('unit.form', 'text')}), "
        f"at most {max_rows}"
    )


def _size(would_be: DeclarationOut | None) -> str:
    if would_be is None or not would_be.public_size:
        return "not declared"
    return f"{counted(would_be.public_size, 'row')}, as an order of magnitude"


def _cells(would_be: DeclarationOut | None) -> str:
    partitions = [] if would_be is None else would_be.partitions
    words = [f"{partition['name']} ({partition['kind']})" for partition in partitions]
    return ", ".join(words) or "none"


def _spent(would_be: DeclarationOut) -> str:
    account = would_be.account
    return (
        f"{account.charged} {SYMBOLS[account.unit]} is spent, {account.remaining} left"
    )


def _column(column: Mapping[str, str]) -> tuple[str, str, str]:
    if column["type"] == "categorical":
        values = ", ".join(column["categories"].splitlines())
    else:
        values = f"{column['lower']} to {column['upper']}"
        if column["bounds"]:
            values += f" ({column['bounds']})"
    if column["missing"]:
        values += ", or empty"
    return column["name"], column["type"], values


def _label(label: Mapping[str, str]) -> tuple[str, str, str]:
    values = ", ".join(label["classes"].splitlines())
    if label["cuts"]:
        values = f"numbers, cut at {label['cuts']}"
    if label["lower"]:
        kind = "whole number" if label["whole"] else "number"
        values = f"a {kind} from {label['lower']} to {label['upper']}"
    return label["name"], "to predict", values
