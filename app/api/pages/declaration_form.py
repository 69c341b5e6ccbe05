"""Translates the fields of a declaration's form to the body of ``POST /datasets``, and its problems back to fields."""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from app.api.pages.forms import Form
from app.api.pages.words import field_problem
from app.core import limits
from app.core.errors import FieldProblem

COLUMN_FIELDS = ("name", "type", "lower", "upper", "categories", "ordered", "missing", "bounds")
PARTITION_FIELDS = ("name", "kind", "cells", "column", "categories", "how")
STEPS = ("columns", "budget", "review")

_SIMPLE = {
    "/name": "name",
    "/schema/features": "columns",
    "/schema/label/name": "label.name",
    "/schema/label/classes": "label.classes",
    "/budget/epsilon": "epsilon",
    "/budget/delta": "delta",
    "/budget": "delta",
    "/public_size": "public_size",
    "/privacy_unit/column": "unit.column",
    "/privacy_unit/max_rows": "unit.max_rows",
    "/population": "population",
    "/other_people": "other_people",
}
_NESTED = re.compile(r"/(?:schema/features|partitions)/([0-9]+)(?:/([a-z]+))?")


def declaration(form: Form, *, step: str) -> dict[str, Any]:
    """The declaration as far as it is filled in; stand-ins take the place of the steps after ``step``."""
    budget = {"accountant": accountant(form), "epsilon": form.get("epsilon", "").strip()}
    if budget["accountant"] != "pure":
        budget["delta"] = form.get("delta", "").strip()
    body: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "schema": {
            "features": [_feature(column) for column in rows(form, "f", COLUMN_FIELDS)],
            "label": {"name": form.get("label.name", "").strip(), "classes": _lines(form.get("label.classes", ""))},
        },
        "budget": {"accountant": "pure", "epsilon": "1"} if step == "columns" else budget,
    }
    if step == "columns":
        return body
    body |= {
        "partitions": [_partition(row) for row in rows(form, "p", PARTITION_FIELDS)],
        "public_size": _number(form.get("public_size", "")),
    }
    unit_column = form.get("unit.column", "").strip()
    return body | {
        "privacy_unit": {"column": unit_column or None, "max_rows": _number(form.get("unit.max_rows", "")) or 1},
        "protects": form.get("protects", "row"),
        "population": form.get("population") or None,
        "other_people": form.get("other_people", "").strip() or None,
    }


def accountant(form: Form) -> str:
    """The accountant that the answers to the two questions stand for."""
    if form.get("fails", "no") == "no":
        return "pure"
    return "zcdp" if form.get("mostly") == "selections" else "gdp"


def filled(drafted: Mapping[str, Any]) -> dict[str, str]:
    """The fields of the form for a declaration with gaps."""
    schema, label = drafted["schema"], drafted["schema"]["label"]
    form = {
        "name": drafted.get("name") or "",
        "label.name": label["name"] or "",
        "label.classes": "\n".join(label["classes"] or ()),
        "public_size": str(drafted.get("public_size") or ""),
        "protects": drafted.get("protects") or "row",
    }
    unit, budget = drafted.get("privacy_unit") or {}, drafted.get("budget") or {}
    form |= {"unit.column": unit.get("column") or "", "unit.max_rows": str(unit.get("max_rows") or "")}
    form |= {"epsilon": str(budget.get("epsilon") or ""), "delta": str(budget.get("delta") or "")}
    if budget.get("accountant", "pure") != "pure":
        form |= {"fails": "yes", "mostly": "selections" if budget["accountant"] == "zcdp" else "counts"}
    form |= _fields("f", COLUMN_FIELDS, schema["features"])
    return form | _fields("p", PARTITION_FIELDS, drafted.get("partitions") or ())


def rows(form: Form, prefix: str, names: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a table of the form: columns (``f``) or partitions (``p``), at most ``limits.MAX_FORM_COLUMNS``."""
    count = form.get(f"n_{prefix}", "0")
    n_rows = min(int(count), limits.MAX_FORM_COLUMNS) if count.isascii() and count.isdigit() else 0
    return [{name: form.get(f"{prefix}{index}.{name}", "") for name in names} for index in range(n_rows)]


def with_rows(form: Form, prefix: str, names: Iterable[str], changed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The form with other rows in a table."""
    others = {name: text for name, text in form.items() if not re.match(rf"{prefix}[0-9]+\.", name)}
    return others | _fields(prefix, names, changed)


def problems_of(errors: Iterable[FieldProblem]) -> dict[str, str]:
    """The problems of a declaration in words, by field of the form; ``""`` for what belongs to no field."""
    shown: dict[str, list[str]] = {}
    for error in errors:
        shown.setdefault(_field(error.at), []).append(field_problem(error.problem, error.accepted))
    return {field: " ".join(dict.fromkeys(sentences)) for field, sentences in shown.items()}


def _field(pointer: str) -> str:
    known = [at for at in _SIMPLE if pointer == at or pointer.startswith(f"{at}/")]
    if nested := _NESTED.match(pointer):
        prefix = "p" if pointer.startswith("/partitions") else "f"
        return f"{prefix}{nested[1]}.{nested[2] or 'name'}"
    return _SIMPLE[max(known, key=len)] if known else ""


def _fields(prefix: str, names: Iterable[str], described: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    listed = [dict(row) for row in described]
    cells = ((f"{prefix}{index}.{name}", _text(row.get(name))) for index, row in enumerate(listed) for name in names)
    return {f"n_{prefix}": str(len(listed)), **{name: text for name, text in cells if text}}


def _text(value: object) -> str:
    match value:
        case None | False:
            return ""
        case True:
            return "yes"
        case list() | tuple():
            return "\n".join(map(str, value))
    return str(value)


def _feature(column: Mapping[str, str]) -> dict[str, Any]:
    feature: dict[str, Any] = {"name": column["name"].strip(), "type": column["type"] or "integer"}
    if feature["type"] == "categorical":
        feature |= {"categories": _lines(column["categories"]), "ordered": bool(column["ordered"])}
    else:
        feature |= {name: _number(column[name]) for name in ("lower", "upper")}
        feature |= {"bounds": column["bounds"] or None}
    return feature | {"missing": bool(column["missing"])}


def _partition(row: Mapping[str, str]) -> dict[str, Any]:
    partition: dict[str, Any] = {"name": row["name"].strip(), "kind": row["kind"] or "hash"}
    match partition["kind"]:
        case "hash":
            return partition | {"cells": _number(row["cells"])}
        case "epoch":
            return partition | {"how": row["how"].strip() or None}
    return partition | {"column": row["column"].strip() or None, "categories": _lines(row["categories"]) or None}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _number(text: str) -> int | Decimal | str | None:
    """The number of a field; other text as it is, so that the API's rules name the problem."""
    try:
        number = Decimal(text.strip() or "NaN")
    except InvalidOperation:
        return text
    if not number.is_finite():
        return text.strip() or None
    return int(number) if number == number.to_integral_value() and abs(number.adjusted()) < 18 else number


def untouched(form: Form, problems: Mapping[str, str]) -> Iterator[str]:
    """The fields with a problem that nobody has filled in yet."""
    return (field for field in problems if not form.get(field, "").strip())
