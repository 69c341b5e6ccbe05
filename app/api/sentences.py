"""Adds to the OpenAPI document a sentence for every property, parameter and tag, from
``sentences.toml``.

One name mostly has one meaning in many schemas. So the file has a sentence for a name,
and one for ``Schema.name`` where the meaning is different. Nothing is read before the
document is made, so the start of the service takes no longer.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from grovekeeper_common.json_types import JsonObject

_FILE = Path(__file__).with_suffix(".toml")
_SHORT_NAMES = {
    "app__wire__ledger__CellOut": "CellOut",
    "app__wire__statistics__CellOut": "StatisticsCellOut",
}
"""Schemas whose class names are equal, by the name in the document."""

Described = tuple[str, str, JsonObject]
"""Where it belongs, its name, and the object to describe."""


def sentences() -> dict[str, dict[str, str]]:
    """The sentences of tags, parameters and properties, by name."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def describe(document: JsonObject) -> None:
    """Describe every part of a document that has a sentence. What a type says of itself
    follows the sentence.
    """
    by_kind = sentences()
    document["tags"] = [
        {"name": name, "description": text} for name, text in by_kind["tags"].items()
    ]
    for place, name, parameter in parameters(document):
        _add(parameter, by_kind["parameters"], place, name)
    for place, name, part in properties(document):
        _add(part, by_kind["properties"], place, name)


def parameters(document: JsonObject) -> Iterator[Described]:
    """Every parameter, with the id of its operation."""
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                yield operation["operationId"], parameter["name"], parameter


def properties(document: JsonObject) -> Iterator[Described]:
    """Every property of a component, with the name of its class."""
    for schema_name, schema in document["components"]["schemas"].items():
        place = _SHORT_NAMES.get(schema_name, schema_name)
        for name, part in schema.get("properties", {}).items():
            yield place, name, part


def _add(described: JsonObject, by_name: dict[str, str], place: str, name: str) -> None:
    sentence = by_name.get(f"{place}.{name}", by_name.get(name))
    if sentence is not None:
        own = described.get("description")
        described["description"] = f"{sentence} {own}" if own else sentence
