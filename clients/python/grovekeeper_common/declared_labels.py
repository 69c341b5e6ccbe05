"""Lists the labels of a declared schema, which has one or several."""

from collections.abc import Mapping
from typing import Any


def labels_of(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The labels in declared order: of ``labels``, or the ``label`` alone."""
    if "labels" in schema:
        return list(schema["labels"])
    return [schema["label"]]
