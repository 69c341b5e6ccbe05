"""A mechanism outside the service runs only after an answer says that it is paid."""

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from grovekeeper_client.adapters.protocol import Mechanism
from grovekeeper_client.errors import Unreachable


def test_a_charge_without_an_answer_is_asked_for_once_and_reads_no_row() -> None:
    """The request may have arrived: as another request it would be charged again."""
    keys: list[str | None] = []

    def charge(*_: object, idempotency_key: str | None = None) -> NoReturn:
        keys.append(idempotency_key)
        raise Unreachable("http://127.0.0.1:1", "it took too long", "key-of-the-first")

    def never(*_: object) -> NoReturn:
        raise AssertionError("rows were read")

    dataset: Any = SimpleNamespace(
        id="ds_1", client=SimpleNamespace(charge_external=charge)
    )
    mechanism = Mechanism(dataset, {}, never)
    with pytest.raises(Unreachable):
        mechanism.run(never)
    with pytest.raises(Unreachable):
        mechanism.charge(idempotency_key="key-of-the-first")
    assert keys == [None, "key-of-the-first"]


def test_what_was_quoted_is_what_is_charged() -> None:
    """The caller's objects may change between the two."""
    stated: dict[str, Any] = {"scope": {"shard": [0]}}
    dataset: Any = SimpleNamespace(id="ds_1")
    mechanism = Mechanism(dataset, stated, lambda rows: rows)
    stated["scope"]["shard"].append(1)
    assert mechanism.stated == {"scope": {"shard": [0]}}
