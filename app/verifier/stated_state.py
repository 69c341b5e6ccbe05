"""Compares the state that an entry of the kind ``state`` states with the state after the entries before it.

A service that starts reads the newest such entry instead of the entries before it, so a wrong one would admit too much.
"""

from collections.abc import Mapping, Sequence

from app.verifier import canonical_json, json_fields
from app.verifier.canonical_json import Json
from app.verifier.chain import Broken, Link


def check(entry: Link, actual: Mapping[str, "str | Json | Sequence[Json]"]) -> None:
    """Compares a stated state with the recomputed one; the order of listed objects does not matter.

    Raises:
        Malformed: the entry does not state a state, or states an amount besides.
        Broken: the two states differ.
    """
    if entry.amount:
        raise json_fields.Malformed("an entry of kind state has an amount")
    fields = json_fields.fields(entry.details, {"state"}, "the details of a state")["state"]
    stated = json_fields.fields(fields, set(actual), "the state")
    for name, value in actual.items():
        if _sorted(stated[name]) != _sorted(value):
            raise Broken(f"the stated {name} differs from that of the entries before")


def _sorted(value: "Json | Sequence[Json]") -> list[bytes]:
    return sorted(map(canonical_json.dumps, value)) if isinstance(value, list) else [canonical_json.dumps(value)]  # type: ignore[arg-type]
