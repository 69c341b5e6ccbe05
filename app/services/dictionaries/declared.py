"""Reads data dictionaries in the form of a declaration, complete or in part."""

from collections.abc import Mapping
from typing import Any, cast

from app.forests.data.schema import BOUNDS_NOTES, FeatureType
from app.services.dictionaries.columns import Column, category_column, number
from app.services.dictionaries.tables import Table, listed, member, name_of

_FURTHER = ("budget", "privacy_unit", "protects", "partitions", "public_size", "visibility", "population")


def tables(value: Mapping[str, Any]) -> list[Table] | None:
    """The table of a declaration or of its schema; ``None`` if the value is neither.

    Descriptions and other members that a declaration does not have are left out.

    Raises:
        NotADictionary: the schema is broken.
    """
    schema = value if "features" in value else member(value, "schema")
    if "features" not in schema:
        return None
    columns = [_column(feature) for feature in listed(schema, "features")]
    label = member(schema, "label")
    if label:
        columns.append(category_column(name_of(label), _values(label, "classes")))
    declared = {name: value[name] for name in _FURTHER if name in value}
    return [Table(name_of(value), tuple(columns), label=name_of(label) or None, declared=declared)]


def _column(feature: Mapping[str, Any]) -> Column:
    name, kind, missing = name_of(feature), feature.get("type"), feature.get("missing") is True
    values = _values(feature, "categories")
    if kind == "categorical" or (kind is None and values is not None):
        return category_column(name, values, ordered=feature.get("ordered") is True, missing=missing)
    return Column(
        name,
        cast(FeatureType, kind) if kind in ("numeric", "integer") else None,
        lower=number(feature.get("lower")),
        upper=number(feature.get("upper")),
        missing=missing,
        bounds=feature["bounds"] if feature.get("bounds") in BOUNDS_NOTES else None,
    )


def _values(value: Mapping[str, Any], name: str) -> list[object] | None:
    values = value.get(name)
    return values if isinstance(values, list) else None
