"""Every property, parameter and tag of the OpenAPI document has a sentence, and every
sentence is of something.
"""

from collections.abc import Iterable

import pytest

from app.api import sentences
from app.api.sentences import Described
from tests.support.openapi import DOCUMENT

KINDS = {
    "parameters": list(sentences.parameters(DOCUMENT)),
    "properties": list(sentences.properties(DOCUMENT)),
}


def _used(parts: Iterable[Described], named: dict[str, str]) -> set[str]:
    """Of each part, the name under which its sentence stands, or would stand."""
    full = ((f"{place}.{name}", name) for place, name, _ in parts)
    return {own if own in named else shared for own, shared in full}


@pytest.mark.parametrize("kind", KINDS)
def test_everything_has_a_sentence_and_every_sentence_is_of_something(
    kind: str,
) -> None:
    named = sentences.sentences()[kind]
    used = _used(KINDS[kind], named)
    assert len(used) > 40
    assert used - named.keys() == set(), "without a sentence in app/api/sentences.toml"
    assert named.keys() - used == set(), "sentences of nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_the_document_shows_each_sentence(kind: str) -> None:
    shown = [
        (place, name, part.get("description")) for place, name, part in KINDS[kind]
    ]
    assert [it for it in shown if not (it[2] or "").endswith(".")] == []


def test_the_tags_are_those_of_the_operations() -> None:
    described = [tag["name"] for tag in DOCUMENT["tags"]]
    used = {
        tag
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for tag in operation["tags"]
    }
    assert set(described) == used
    assert len(set(described)) == len(described)
