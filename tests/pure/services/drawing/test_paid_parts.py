"""A part of a job is paid for where it is what its reservation says, in the arithmetic
that the ledger states.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from app.datasets import catalog
from app.jobs.tables import JobPart
from app.ledger import kept_states, tables
from app.services.execution import charge
from grovekeeper_forests.privacy.accountants import zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, DiscreteLaplace

TERMS = Terms(Fraction(1, 100))
AMOUNT = TERMS.price()
EVENT = DiscreteLaplace(
    Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(1, 128), 3
).to_json()
none: Any = None


@pytest.fixture
def is_paid(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Whether a part is paid for on an account in ε, by a reservation with details."""
    account = SimpleNamespace(accountant="pure")
    monkeypatch.setattr(tables, "account", lambda *_: account)
    monkeypatch.setattr(kept_states, "require_declared", lambda *_: None)
    monkeypatch.setattr(catalog, "upload_ids", lambda *_: ["ep_1"])
    dataset: Any = SimpleNamespace(
        id="ds_1",
        name="a name",
        facts={},
        adjacency=Adjacency.ADD_REMOVE_ONE,
        max_rows=1,
        partitions=SimpleNamespace(epoch_partition=None),
        uploads_in=lambda _, ids: ids,
    )

    def is_paid(part: JobPart, details: dict[str, str] | None) -> bool:
        reservation: Any = SimpleNamespace(
            id="res_1",
            account_id="ds_1",
            scope={},
            details=details,
            amount=AMOUNT,
            event=EVENT,
        )
        return charge._is_part_paid(none, reservation, dataset, part, event=EVENT)

    return is_paid


PART = JobPart("ds_1", "a name", {}, ["ep_1"], TERMS.stated(AMOUNT), "res_1")


@pytest.mark.parametrize("label", [None, "days"])
def test_the_label_is_that_of_the_reservation(
    is_paid: Callable[..., bool], label: str | None
) -> None:
    part = replace(PART, label=label)
    for details in ({"purpose": "a pilot"}, {"a": "days"}, {}):
        named = details if label is None else {**details, "label": label}
        assert is_paid(part, named)
        assert not is_paid(part, {**details, "label": "another"})
    assert is_paid(part, None) == (label is None)


def test_an_accountant_of_the_queue_row_is_not_believed(
    is_paid: Callable[..., bool],
) -> None:
    """An (ε, δ) whose price in ρ is the number of steps that were paid in ε."""
    delta = Fraction(1, 10**6)
    low, high = Fraction(0), Fraction(1)
    while zcdp.price(high, delta) != AMOUNT:
        middle = (low + high) / 2
        is_less = zcdp.price(middle, delta) < AMOUNT
        low, high = (middle, high) if is_less else (low, middle)
    stated = Terms(high, zcdp.NAME, delta).stated(AMOUNT)
    assert Fraction(stated["epsilon"]) == high
    assert not is_paid(replace(PART, price=stated), None)
    assert is_paid(PART, None)


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "ds_2"},
        {"dataset_name": "another"},
        {"scope": {"a": [1]}},
        {"epochs": ["ep_2"]},
        {"epochs": ["ep_1", "ep_1"]},
        {"reservation_id": "res_2"},
        {"price": TERMS.stated(AMOUNT - 1)},
        {"price": TERMS.stated(AMOUNT) | {"epsilon": "0.001"}},
        {"price": TERMS.stated(AMOUNT) | {"unit": "rho"}},
    ],
)
def test_another_part_is_not_paid(
    is_paid: Callable[..., bool], change: dict[str, Any]
) -> None:
    assert not is_paid(replace(PART, **change), None)
