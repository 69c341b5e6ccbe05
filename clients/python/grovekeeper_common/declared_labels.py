"""Lists the labels of a declared schema, which has one or several, and says what those
that are numbers hold.
"""

from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_words import grouped


def labels_of(schema: JsonMapping) -> list[JsonMapping]:
    """The labels in declared order: of ``labels``, or the ``label`` alone."""
    if "labels" in schema:
        return list(schema["labels"])
    return [schema["label"]]


def number_in_words(label: JsonMapping) -> str:
    """What a label that is a number may be: its kind and its bounds."""
    kind = "number"
    if label["type"] == "integer":
        kind = "whole number"
    return f"a {kind}, {grouped(label['lower'])} to {grouped(label['upper'])}"
