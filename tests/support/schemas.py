"""Makes public schemas of made-up datasets."""

from collections.abc import Mapping, Sequence

from app.forests.data.schema import Schema


def schema_of(*features: Mapping[str, object], classes: Sequence[str], label: str = "kind") -> Schema:
    """A schema of features in JSON form and a label with some classes."""
    return Schema.from_json({"features": list(features), "label": {"name": label, "classes": list(classes)}})
