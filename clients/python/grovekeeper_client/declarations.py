"""Compares a declaration with the dataset that it declared."""

from decimal import Decimal, InvalidOperation
from typing import Any

from grovekeeper_client.dummies import declared_partition
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_text import two_significant_digits


def edited(declaration: JsonMapping, facts: JsonMapping) -> list[str]:
    """The members of a declaration, besides its schema, that state something else than
    a dataset has. Members that it leaves out state nothing.

    Of a budget, the cap is compared on pure accounts alone: other accounts convert ε
    and δ into another unit.

    Args:
        declaration: body of ``POST /datasets``.
        facts: answer of ``GET /datasets/{id}``.
    """
    partitions = [declared_partition(part) for part in facts["partitions"]]
    declared = {
        "name": facts["name"],
        "privacy_unit": _unit(facts["privacy_unit"]),
        "protects": facts["protects"],
        "partitions": [_partition(part) for part in partitions],
        "public_size": facts["public_size"],
        "budget": _budget(facts["account"], "cap"),
    }
    return [
        member
        for member, value in declared.items()
        if member in declaration and _normal(member, declaration[member]) != value
    ]


def _normal(member: str, value: Any) -> Any:
    """A member in the form in which it is compared; as it is if it has another form
    than a declaration, and so equals nothing that was declared.
    """
    try:
        match member:
            case "privacy_unit":
                return _unit(value)
            case "partitions":
                return [_partition(part) for part in value]
            case "public_size" if value is not None:
                return two_significant_digits(value)
            case "budget":
                return _budget(value, "epsilon")
    except (AttributeError, InvalidOperation, KeyError, TypeError):
        pass
    return value


def _unit(unit: JsonMapping) -> tuple[Any, Any, Any]:
    column = unit.get("column")
    # without a form, a column is text; earlier versions declared none (raw)
    form = unit.get("form") or "text"
    if column is None or form == "raw":
        form = "text"
    return column, form, unit.get("max_rows", 1)


def _partition(partition: JsonMapping) -> JsonObject:
    stated = {name: value for name, value in partition.items() if value is not None}
    if "sizes" in stated:
        stated["sizes"] = {
            size["cell"]: two_significant_digits(size["rows"])
            for size in stated["sizes"]
        }
    return stated


def _budget(budget: JsonMapping, cap: str) -> tuple[Any, Decimal | None]:
    accountant = budget["accountant"]
    epsilon = Decimal(str(budget[cap])) if accountant == "pure" else None
    return accountant, epsilon
