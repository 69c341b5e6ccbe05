"""zcdp accounts that set aside a part of δ for external (ε, δ)-mechanisms, on both
databases.
"""

import json
from fractions import Fraction
from math import exp, isclose, tanh
from typing import Any

import pytest

from app.access.idempotency import IdempotentRequest
from app.core.errors import BudgetExceeded, InvalidRequest, PopulationMismatch
from app.services import populations
from app.services.installation import Installation
from app.services.ledger import balances, history
from app.services.ledger.balances import change_cap
from app.services.ledger.external import charge_external, quote_external
from app.wire.datasets import BudgetIn
from app.wire.ledger import AccountBalance, CapIn
from app.wire.populations import PopulationIn
from app.wire.reservations import ExternalIn
from grovekeeper_forests.errors import AccountantMismatch, NotSupported
from grovekeeper_forests.privacy.accountants import zcdp
from grovekeeper_verifier.dataset_replay import verify
from tests.support import people
from tests.support.crash_scene import OWNER
from tests.support.databases import on_one_database

pytestmark = pytest.mark.contract

DELTA, ASIDE = Fraction(1, 10**6), Fraction(1, 4 * 10**6)
BUDGET = {
    "accountant": "zcdp",
    "epsilon": "1",
    "delta": "1e-6",
    "delta_set_aside": "2.5e-7",
}
SHARDS = [{"name": "shard", "kind": "hash", "cells": 2}]


def _declared(installation: Installation, **changes: object) -> str:
    return str(
        people.declared(
            installation, **({"budget": BUDGET, "partitions": SHARDS} | changes)
        )["id"]
    )


def _external_body(epsilon: str, delta: str | None, **changes: Any) -> ExternalIn:
    loss = {"adjacency": "add_remove", "epsilon": epsilon} | (
        {} if delta is None else {"delta": delta}
    )
    return ExternalIn.model_validate(
        {"description": "DP-SGD", "per": "row", "declared": loss} | changes
    )


def _charge(
    installation: Installation, dataset: str, body: ExternalIn, *, key: str
) -> dict[str, Any]:
    request = IdempotentRequest(OWNER.key_id, "", key, b"." * 32)
    return dict(
        json.loads(
            charge_external(installation, OWNER, dataset, body, request=request).body
        )
    )


def _balance(
    installation: Installation, dataset: str, scope: dict[str, Any] | None = None
) -> AccountBalance:
    return balances.show_balance(installation, OWNER, dataset, scope=scope or {})


def test_the_cap_is_converted_at_the_rest_of_delta(installation: Installation) -> None:
    balance = _balance(installation, _declared(installation))
    assert Fraction(balance.cap) == Fraction(
        zcdp.cap(Fraction(1), DELTA - ASIDE), 10**12
    )
    assert Fraction(balance.cap) < Fraction(zcdp.cap(Fraction(1), DELTA), 10**12)
    assert balance.guarantee["add_remove"] == {"epsilon": "1", "delta": "0.000001"}, (
        "at the whole δ"
    )
    assert balance.delta_set_aside is not None
    assert balance.delta_set_aside.model_dump() == {
        "set_aside": "0.00000025", "charged": "0", "remaining": "0.00000025",
    }  # fmt: skip
    assert (
        _balance(
            installation,
            _declared(installation, budget=BUDGET | {"delta_set_aside": None}),
        ).delta_set_aside
        is None
    )


def test_replacing_a_row_costs_more_of_delta(installation: Installation) -> None:
    replaced = _balance(installation, _declared(installation)).guarantee["replace_one"]
    rho = zcdp.cap(Fraction(1), DELTA - ASIDE) / 10**12
    largest = next(
        step / 10**6
        for step in range(10**6)
        if step / 10**6 * tanh(step / 2 / 10**6) >= rho
    )
    stated = float(Fraction(replaced["delta"]))
    assert stated >= 1e-6 + 2.5e-7 * exp(largest - 1e-6)
    assert isclose(stated, 1e-6 + 2.5e-7 * exp(largest), rel_tol=1e-5)


def test_a_charge_takes_rho_and_delta_and_each_has_its_own_end(
    installation: Installation,
) -> None:
    dataset = _declared(installation)
    quoted = quote_external(
        installation, OWNER, dataset, _external_body("0.05", "2e-7")
    )
    assert (quoted.price.delta, quoted.delta_remaining, quoted.fits) == (
        "0.0000002",
        "0.00000025",
        True,
    )
    charged = _charge(
        installation,
        dataset,
        _external_body("0.05", "2e-7", scope={"shard": [0]}),
        key="a",
    )
    assert charged["price"] == quoted.price.model_dump()
    assert Fraction(charged["price"]["amount"]) >= Fraction(0.05 * tanh(0.025))
    with pytest.raises(BudgetExceeded) as refused:
        _charge(installation, dataset, _external_body("0.0001", "5.1e-8"), key="b")
    assert (refused.value.unit, refused.value.tightest_cell) == ("delta", {"shard": 0})
    assert (refused.value.cap, refused.value.charged) == ("0.00000025", "0.0000002")
    assert (refused.value.requested, refused.value.remaining) == (
        "0.000000051",
        "0.00000005",
    )
    assert str(refused.value).startswith(
        "0.000000051 δ requested, 0.00000005 δ left for cell shard=0 of dataset "
    )
    beyond = quote_external(
        installation, OWNER, dataset, _external_body("0.0001", "5.1e-8")
    )
    assert (beyond.fits, beyond.limited_by) == (False, "delta_set_aside")
    _charge(
        installation,
        dataset,
        _external_body("0.0001", "2.5e-7", scope={"shard": [1]}),
        key="c",
    )
    _charge(
        installation,
        dataset,
        _external_body("0.0001", "5e-8", scope={"shard": [0]}),
        key="d",
    )
    with pytest.raises(BudgetExceeded) as refused:
        _charge(
            installation,
            dataset,
            _external_body("0.05", "1e-18", scope={"shard": [1]}),
            key="e",
        )
    assert refused.value.unit == "delta"
    with pytest.raises(BudgetExceeded) as refused:
        _charge(installation, dataset, _external_body("2", None), key="f")
    assert refused.value.unit == "rho", (
        "what has no δ takes none, and ends where ρ ends"
    )
    by_shard = [
        _balance(installation, dataset, {"shard": [shard]}).delta_set_aside
        for shard in (0, 1)
    ]
    assert [each.remaining for each in by_shard if each is not None] == ["0", "0"]
    lines = list(history.export_json_lines(installation, OWNER, dataset))
    assert json.loads(lines[0])["delta_set_aside"] == "0.00000025"
    assert json.loads(lines[2])["details"]["delta"] == "0.0000002"
    assert verify(lines).kinds == {"open": 1, "reserve": 3, "charge": 3}


def test_delta_is_rounded_up_to_a_whole_step(installation: Installation) -> None:
    dataset = _declared(installation)
    assert (
        _charge(installation, dataset, _external_body("0.01", "1e-30"), key="a")[
            "price"
        ]["delta"]
        == "0.000000000000000001"
    )


def test_without_delta_set_aside_a_declared_delta_is_refused(
    installation: Installation,
) -> None:
    for accountant in ("pure", "gdp"):
        delta = {} if accountant == "pure" else {"delta": "1e-6"}
        other = _declared(
            installation, budget={"accountant": accountant, "epsilon": "1"} | delta
        )
        with pytest.raises(AccountantMismatch) as mismatch:
            _charge(installation, other, _external_body("0.1", "1e-9"), key="a")
        assert mismatch.value.accepted_by == ("zcdp",)
    none = _declared(installation, budget=BUDGET | {"delta_set_aside": None})
    with pytest.raises(BudgetExceeded) as refused:
        _charge(installation, none, _external_body("0.1", "1e-9"), key="a")
    assert (refused.value.unit, refused.value.cap) == ("delta", "0")


def test_delta_of_several_rows_is_refused_and_that_of_a_unit_taken(
    installation: Installation,
) -> None:
    dataset = _declared(installation, privacy_unit=people.per_patient(3))
    with pytest.raises(InvalidRequest) as refused:
        _charge(installation, dataset, _external_body("0.1", "1e-8"), key="a")
    assert [(error.at, error.problem) for error in refused.value.errors] == [
        ("/per", "delta-needs-unit")
    ]
    charged = _charge(
        installation, dataset, _external_body("0.1", "1e-8", per="unit"), key="b"
    )
    assert charged["price"]["delta"] == "0.00000001"


def test_a_changed_cap_is_converted_at_the_rest_of_delta(
    installation: Installation,
) -> None:
    dataset = _declared(installation)
    body = CapIn.model_validate({"cap": "0.5", "reason": "a test"})
    lowered = json.loads(
        change_cap(installation, OWNER, dataset, body, request=None).body
    )
    assert Fraction(lowered["cap"]) == Fraction(
        zcdp.cap(Fraction(1, 2), DELTA - ASIDE), 10**12
    )
    assert _balance(installation, dataset).guarantee["add_remove"] == {
        "epsilon": "0.5",
        "delta": "0.000001",
    }


def test_populations_share_no_delta(installation: Installation) -> None:
    budget = BudgetIn.model_validate(BUDGET)
    with pytest.raises(NotSupported):
        populations.open_population(
            installation,
            OWNER,
            PopulationIn(name="people", budget=budget),
            request=None,
        )
    open_one = PopulationIn(
        name="people",
        budget=BudgetIn.model_validate(BUDGET | {"delta_set_aside": None}),
    )
    populations.open_population(installation, OWNER, open_one, request=None)
    with pytest.raises(PopulationMismatch) as refused:
        _declared(installation, population="people")
    assert refused.value.differs == ("delta_set_aside",)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"accountant": "gdp"}, "set-aside-for-zcdp-only"),
        ({"accountant": "pure", "delta": None}, "set-aside-for-zcdp-only"),
        ({"delta_set_aside": "1e-6"}, "set-aside-not-below-delta"),
        ({"delta_set_aside": "0"}, "not-positive"),
    ],
)
def test_only_a_part_of_delta_is_set_aside(
    changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        BudgetIn.model_validate(BUDGET | changes)


@on_one_database
@pytest.mark.parametrize(
    ("budget", "unit", "delta"),
    [
        (
            {"accountant": "pure", "epsilon": "3"},
            {"column": "patient", "max_rows": 4},
            None,
        ),
        (BUDGET, None, None),
        (BUDGET, None, "1e-8"),
        (
            {"accountant": "gdp", "epsilon": "1", "delta": "1e-6"},
            {"column": "patient", "max_rows": 2},
            None,
        ),
    ],
)
def test_the_named_largest_epsilon_can_be_declared(
    installation: Installation,
    budget: dict[str, Any],
    unit: dict[str, Any] | None,
    delta: str | None,
) -> None:
    """A declared ε costs more than the ε of a job, and is charged once for each row of
    a unit.
    """
    changes = {} if unit is None else {"privacy_unit": unit}
    dataset = _declared(installation, budget=budget, **changes)
    quoted = quote_external(installation, OWNER, dataset, _external_body("50", delta))
    with pytest.raises(BudgetExceeded) as refused:
        _charge(installation, dataset, _external_body("50", delta), key="much")
    largest = Fraction(refused.value.largest_that_fits)
    assert Fraction(quoted.largest_that_fits) == largest > 0
    more = str(float(largest + Fraction(1, 10**9)))
    assert not quote_external(
        installation, OWNER, dataset, _external_body(more, delta)
    ).fits
    _charge(
        installation,
        dataset,
        _external_body(refused.value.largest_that_fits, delta),
        key="all",
    )
    left = quote_external(
        installation, OWNER, dataset, _external_body("50", delta)
    ).largest_that_fits
    assert Fraction(left) < Fraction(1, 10**4), "less than a step of ρ or μ²"
