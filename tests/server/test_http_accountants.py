"""Accounts in ρ and μ² over HTTP on both databases, from the declaration to the
verified export.
"""

import io
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from grovekeeper_forests.privacy import accountants
from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.server import Server, training

DELTA = "1e-6"
UNITS = {"zcdp": "rho", "gdp": "mu_squared"}
SYMBOLS = {"zcdp": "ρ", "gdp": "μ²"}
CAPS = {"zcdp": "0.024355970359", "gdp": "0.056028963825"}
REPLACED = {"zcdp": "2.111734102", "gdp": "2.122857133"}

approximate = pytest.mark.parametrize("accountant", ["zcdp", "gdp"])


def budget(accountant: str, epsilon: str = "1") -> dict[str, Any]:
    return {"accountant": accountant, "epsilon": epsilon, "delta": DELTA}


def price_of(accountant: str, epsilon: str) -> Decimal:
    unit = accountants.by_name(accountant)
    return Decimal(unit.price(Fraction(epsilon), Fraction(DELTA))).scaleb(-unit.PLACES)


@approximate
def test_declared_budget_becomes_a_cap_in_the_accounts_unit(
    server: Server, accountant: str
) -> None:
    account = server.declared(budget=budget(accountant))["account"]

    assert account == {
        "accountant": accountant, "unit": UNITS[accountant], "cap": CAPS[accountant], "charged": "0", "reserved": "0",
        "remaining": CAPS[accountant], "available": CAPS[accountant], "limited_by": "cap",
    }  # fmt: skip


@on_one_server
@approximate
@pytest.mark.parametrize("algorithm", ["mrf", "rdt-mv", "rpf", "nbrt"])
def test_job_for_all_of_a_fresh_account_fits_it_exactly(
    server: Server, accountant: str, algorithm: str
) -> None:
    dataset = server.uploaded(budget=budget(accountant))
    body = training(dataset["id"], algorithm=algorithm, delta=DELTA)
    quote = server.admin.http.post("/plans", json=body).json()

    assert quote["price"] == {
        "accountant": accountant, "unit": UNITS[accountant], "amount": CAPS[accountant], "epsilon": "1",
        "delta": "0.000001",
    }  # fmt: skip
    assert (quote["fits"], quote["largest_that_fits"]) == (True, "1")
    assert (
        f"Total, given everything that was released before: {SYMBOLS[accountant]} "
        in quote["receipt"]
    )
    job = server.trained(dataset["id"], algorithm=algorithm, delta=DELTA)
    assert (job["state"], job["price"]) == ("succeeded", quote["price"])
    balance = server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert (balance["charged"], balance["remaining"]) == (CAPS[accountant], "0")
    quote = server.admin.http.post("/plans", json=body).json()
    assert (quote["fits"], quote["largest_that_fits"]) == (False, "0")


@on_one_server
@approximate
def test_model_adds_its_price_and_is_covered_by_the_accounts_cap(
    server: Server, accountant: str
) -> None:
    dataset = server.uploaded(budget=budget(accountant))
    job = server.trained(dataset["id"], epsilon="0.25", delta=DELTA)
    card = server.admin.http.get(f"/models/{job['model_id']}").json()

    assert card["guarantee"]["add_remove"] == {"epsilon": "1", "delta": "0.000001"}
    assert card["guarantee"]["replace_one"] == {
        "epsilon": REPLACED[accountant],
        "delta": "0.000001",
    }
    added = card["guarantee"]["adds"]
    assert (added["unit"], added["add_remove"]) == (
        UNITS[accountant],
        job["price"]["amount"],
    )
    assert Decimal(added["replace_one"]) == 4 * Decimal(added["add_remove"])
    assert card["guarantee"]["text"].startswith(
        "Given everything that was released before, whatever that was, this"
    )
    assert (
        "all outputs released under this ledger together are"
        in card["guarantee"]["text"]
    )
    assert (
        f"Total, given everything that was released before: {SYMBOLS[accountant]} "
        in card["receipt"]
    )


@approximate
def test_refusal_says_what_fits_and_it_fits(server: Server, accountant: str) -> None:
    dataset = server.uploaded(budget=budget(accountant))
    server.trained(dataset["id"], epsilon="0.8", delta=DELTA)
    left = Decimal(CAPS[accountant]) - price_of(accountant, "0.8")
    refused = server.submitted(dataset["id"], epsilon="0.9", delta=DELTA)

    assert refused.status_code == 409
    problem = refused.json()
    fits = problem["largest_that_fits"]
    assert problem["type"] == "budget-exceeded"
    assert problem["detail"].startswith(
        f"{problem['requested']} {SYMBOLS[accountant]} requested, "
    )
    assert (problem["accountant"], problem["unit"]) == (accountant, UNITS[accountant])
    assert Decimal(problem["remaining"]) == left
    assert Decimal(problem["requested"]) == price_of(accountant, "0.9")
    assert Decimal("0.5") < Decimal(fits) < Decimal("0.8"), (
        "ρ and μ² leave more than the difference of ε"
    )
    assert (
        price_of(accountant, fits)
        <= left
        < price_of(accountant, str(Decimal(fits) + Decimal("1e-9")))
    )
    assert (
        server.submitted(
            dataset["id"], epsilon=str(Decimal(fits) + Decimal("1e-9")), delta=DELTA
        ).status_code
        == 409
    )
    assert (
        server.trained(dataset["id"], epsilon=fits, delta=DELTA)["state"] == "succeeded"
    )


@on_one_server
@approximate
def test_jobs_may_name_another_delta_and_are_priced_at_it(
    server: Server, accountant: str
) -> None:
    dataset = server.uploaded(budget=budget(accountant, "2"))
    prices = [
        server.admin.http.post(
            "/plans", json=training(dataset["id"], delta=delta)
        ).json()["price"]["amount"]
        for delta in ("1e-9", "1e-6", "1e-3")
    ]

    assert prices == sorted(prices, key=Decimal)
    assert len(set(prices)) == 3
    assert prices[1] == CAPS[accountant]


@on_one_server
@pytest.mark.parametrize(("size", "delta", "warned"), [
    (200, "1e-6", False), (200, "1e-5", True), (1_000_000, "1e-6", True), (1_000_000, "1e-7", False),
    (None, "1e-6", False),
])  # fmt: skip
def test_large_delta_is_warned_of(
    server: Server, size: int | None, delta: str, *, warned: bool
) -> None:
    dataset = server.declared(budget=budget("gdp"), public_size=size)
    quote = server.admin.http.post(
        "/plans", json=training(dataset["id"], delta=delta)
    ).json()

    assert (
        any(
            warning.startswith("δ is above one in a million")
            for warning in quote["warnings"]
        )
        is warned
    )


@on_one_server
@approximate
def test_history_is_exported_in_the_unit_and_verified(
    server: Server, accountant: str
) -> None:
    dataset = server.uploaded(
        budget=budget(accountant, "3"),
        partitions=[{"name": "shard", "kind": "hash", "cells": 2}],
    )
    nbrt = {
        "algorithm": "nbrt",
        "epsilon": "0.5",
        "delta": DELTA,
        "parameters": {"start": "split"},
    }
    server.trained(dataset["id"], scope={"shard": [0]}, **nbrt)
    server.trained(dataset["id"], algorithm="mrf", epsilon="0.25", delta=DELTA)
    entries = server.admin.http.get(f"/ledger/{dataset['id']}/entries").json()[
        "entries"
    ]
    assert [entry["kind"] for entry in entries] == [
        "open",
        "reserve",
        "charge",
        "reserve",
        "charge",
    ]
    assert Decimal(entries[1]["amount"]) == price_of(accountant, "0.5")
    kinds = [part["event"]["type"] for part in entries[1]["event"]["parts"]]
    # split, sides, trees, margins
    assert kinds[-4:] == ["exponential-mechanism/1", *["rounded-gaussian/1"] * 3]

    summary = verify(
        io.BytesIO(server.admin.http.get(f"/ledger/{dataset['id']}/export").content)
    )
    assert (summary.header.accountant, summary.header.delta) == (accountant, "0.000001")
    charged = price_of(accountant, "0.5") + price_of(accountant, "0.25")
    assert Decimal(summary.header.text(summary.tightest.charged)) == charged
    assert summary.tightest.cell == {"shard": 0}


@on_one_server
def test_delta_of_a_request_is_the_accounts_by_default(server: Server) -> None:
    dataset = server.uploaded(budget=budget("gdp"))
    without, with_delta = (
        server.admin.http.post(
            "/plans", json={"dataset": dataset["id"], "epsilon": "0.5", **delta}
        ).json()
        for delta in ({}, {"delta": DELTA})
    )
    assert without == with_delta
    assert without["price"]["delta"] == "0.000001"
    assert without["algorithm"] == "nbrt"
    assert "auto chose nbrt" in without["why"]
    assert server.trained(dataset["id"], epsilon="0.25")["price"]["delta"] == "0.000001"


@on_one_server
def test_delta_is_refused_without_a_delta_account_and_above_one(server: Server) -> None:
    rules = [
        ({"accountant": "pure", "epsilon": "1"}, {"delta": DELTA}, "not-for-pure"),
        (budget("gdp"), {"delta": "1"}, "not-below-one"),
    ]
    for declared, asked, problem in rules:
        dataset = server.uploaded(budget=declared)
        for path in ("/plans", "/train"):
            refused = server.admin.http.post(
                path,
                json=training(dataset["id"], **asked),
                headers={"Idempotency-Key": f"{path}-{dataset['id']}"},
            )
            assert (refused.status_code, refused.json()["type"]) == (
                422,
                "invalid-request",
            )
            [error] = refused.json()["errors"]
            assert (error["at"], error["problem"]) == ("/delta", problem)
            assert ("accepted" in error) is (problem == "not-below-one")


@on_one_server
@approximate
def test_numbers_that_no_account_can_hold_are_refused(
    server: Server, accountant: str
) -> None:
    dataset = server.uploaded(budget=budget(accountant))
    smallest = {"zcdp": "0.000010003", "gdp": "0.000006758"}[accountant]
    for asked, problem, accepted in (
        ({"epsilon": "1000001", "delta": DELTA}, "too-large", "at most 1000000"),
        ({"epsilon": "1e-9", "delta": "1e-18"}, "too-small", f"at least {smallest}"),
    ):
        refused = server.admin.http.post(
            "/plans", json=training(dataset["id"], **asked)
        )
        assert refused.json()["errors"] == [
            {"at": "/epsilon", "problem": problem, "accepted": [accepted]}
        ]


@on_one_server
def test_algorithm_without_a_pure_price_is_refused_on_a_pure_account(
    server: Server,
) -> None:
    dataset = server.uploaded()
    before = server.footprint()
    for path in ("/plans", "/train"):
        refused = server.admin.http.post(
            path,
            json=training(dataset["id"], algorithm="nbrt"),
            headers={"Idempotency-Key": path},
        )
        assert (refused.status_code, refused.json()["type"]) == (
            409,
            "accountant-mismatch",
        )
        assert refused.json()["accountant"] == "pure"
        assert sorted(refused.json()["accepted_by"]) == ["gdp", "zcdp"]
    assert server.footprint() == before


@on_one_server
def test_algorithms_say_which_accounts_take_them(server: Server) -> None:
    listed = {
        item["slug"]: item
        for item in server.admin.http.get("/algorithms").json()["algorithms"]
    }

    assert sorted(listed["mrf"]["accountants"]) == ["gdp", "pure", "zcdp"]
    assert sorted(listed["nbrt"]["accountants"]) == ["gdp", "zcdp"]


@on_one_server
@approximate
def test_cards_and_ledgers_tell_the_highest_cap_that_outputs_were_released_under(
    server: Server, accountant: str
) -> None:
    """Lowering the cap after outputs were released must not lower the stated guarantee
    below the highest cap.

    A raised cap also appears on the cards of models that were trained before.
    """

    def capped(epsilon: str) -> Decimal:
        body = {"cap": epsilon, "reason": "a test"}
        answer = server.admin.http.post(f"/ledger/{dataset['id']}/cap", json=body)
        assert answer.status_code == 200, answer.text
        return Decimal(answer.json()["cap"])

    def claims() -> set[tuple[str, str]]:
        guarantee = [
            server.admin.http.get(f"/models/{model}").json()["guarantee"]
            for model in models
        ]
        guarantee.append(
            server.admin.http.get(f"/ledger/{dataset['id']}").json()["guarantee"]
        )
        assert all(
            each["replace_one"] == guarantee[0]["replace_one"] for each in guarantee
        )
        return {
            (each["add_remove"]["epsilon"], each["add_remove"]["delta"])
            for each in guarantee
        }

    dataset = server.uploaded(budget=budget(accountant, "2"))
    models: list[str] = []
    assert capped("1") == Decimal(CAPS[accountant])
    models.append(
        server.trained(dataset["id"], epsilon="0.25", delta=DELTA)["model_id"]
    )
    assert claims() == {("1", "0.000001")}, "nothing was released under the cap of 2"
    for epsilon in ("0.5", "0.3"):
        capped(epsilon)
        assert claims() == {("1", "0.000001")}, (
            "what was seen under a cap of 1 is covered by no smaller one"
        )
    capped("1.5")
    assert claims() == {("1.5", "0.000001")}, (
        "a card made before the raise tells it, too"
    )
    models.append(
        server.trained(dataset["id"], epsilon="0.25", delta=DELTA)["model_id"]
    )
    capped("0.2")
    assert claims() == {("1.5", "0.000001")}
    verify(
        server.admin.http.get(f"/ledger/{dataset['id']}/export").content.splitlines(
            keepends=True
        )
    )


@on_one_server
def test_a_changed_cap_reaches_the_cards_of_a_pure_account_and_no_addition(
    server: Server,
) -> None:
    dataset = server.uploaded(budget={"accountant": "pure", "epsilon": "2"})
    model = f"/models/{server.trained(dataset['id'], epsilon='1')['model_id']}"
    added = server.admin.http.get(model).json()["guarantee"]["adds"]
    for cap, told in (("2", "2"), ("3", "3"), ("0.5", "1")):
        if cap != "2":
            body = {"cap": cap, "reason": "a test"}
            assert (
                server.admin.http.post(
                    f"/ledger/{dataset['id']}/cap", json=body
                ).status_code
                == 200
            )
        shown = server.admin.http.get(model).json()["guarantee"]
        account = server.admin.http.get(f"/ledger/{dataset['id']}").json()["guarantee"]
        assert (
            shown["add_remove"]
            == account["add_remove"]
            == {"epsilon": told, "delta": "0"}
        )
        assert shown["adds"] == added
        assert shown["text"] == f"{added['text']} {account['text']}"
    assert (added["add_remove"], added["replace_one"]) == ("1", "2")


@on_one_server
def test_an_epsilon_above_ten_is_warned_of_at_declaration_and_in_quotes(
    server: Server,
) -> None:
    warned = server.declared(budget={"accountant": "pure", "epsilon": "11"})
    assert "ε is above 10" in [
        warning.partition(":")[0] for warning in warned["warnings"]
    ]
    assert (
        "guesses whether one privacy unit is in the data may be right this often: more than 99 % ("
        in warned["warnings"][0]
    )
    approximate = server.declared(budget=budget("gdp", "10.1"))
    assert "may be right this often: 83 % (" in approximate["warnings"][0]
    assert not any(
        "ε is above 10" in warning
        for warning in server.declared(budget=budget("gdp", "10"))["warnings"]
    )
    for epsilon, n_warnings in (("10", 0), ("10.5", 1)):
        quote = server.admin.http.post(
            "/plans", json=training(warned["id"], epsilon=epsilon)
        ).json()
        assert (
            sum("ε is above 10" in warning for warning in quote["warnings"])
            == n_warnings
        )
        assert (quote["cap"], quote["remaining"], quote["limited_by"]) == (
            "11",
            "11",
            "cap",
        )
        assert Decimal(quote["left_afterwards"]) == 11 - Decimal(epsilon)


@on_one_idle_server
@pytest.mark.parametrize(
    ("public_size", "epsilon"), [(200, "1500"), (10**9, "0.00001")]
)
def test_an_expected_accuracy_is_stated_at_a_large_and_at_a_small_epsilon(
    idle_server: Server, public_size: int, epsilon: str
) -> None:
    """Amounts of answers have no exponent."""
    dataset = idle_server.declared(public_size=public_size)["id"]
    quoted = idle_server.admin.http.post(
        "/plans",
        json=training(dataset, epsilon=epsilon, algorithm="rpf", parameters={}),
    )
    assert quoted.status_code == 200
    assert quoted.json()["expected_accuracy"]["band"]["epsilon"] == epsilon


@on_one_idle_server
def test_a_quote_names_the_nearest_measurement_where_nothing_similar_was_measured(
    idle_server: Server,
) -> None:
    """At another δ than that of the measurements, ε are compared at equal μ²."""

    def expected(account: dict[str, Any], **request: Any) -> dict[str, Any]:
        dataset = idle_server.declared(budget=account, public_size=20_000)["id"]
        body = training(dataset, parameters={}, **request)
        return dict(
            idle_server.admin.http.post("/plans", json=body).json()["expected_accuracy"]
        )

    gdp, pure = budget("gdp", "5"), {"accountant": "pure", "epsilon": "100"}
    usual = expected(gdp, algorithm="nbrt", epsilon="0.5")
    assert (usual["note"], len(usual["tables"]) >= 3) == (None, True)
    strict = expected(gdp, algorithm="nbrt", epsilon="0.5", delta="1e-9")
    assert strict["note"] == "Measured at δ = 1e-6, where the same μ² is ε = 0.37."
    assert strict["band"]["middle"] < usual["band"]["middle"]
    assert {at["middle"] for at in strict["curve"]} == {
        at["middle"] for at in usual["curve"]
    }
    on_rho = expected(budget("zcdp"), algorithm="nbrt")
    assert (on_rho["band"], on_rho["curve"]) == (None, [])
    assert on_rho["note"].startswith(
        "Not measured for nbrt on zcdp accounts. Nearest measured: nbrt on gdp accounts"
    )
    assert on_rho["note"].endswith("Measured on zcdp accounts: mrf, rdt-ta.")
    small = expected(pure, algorithm="rpf", epsilon="0.001")
    assert small["note"].startswith(
        "Not measured for this size at ε = 0.001. Nearest measured: ε = 0."
    )
    other = idle_server.declared(budget=pure)["id"]
    two = expected(
        pure, algorithm="sspe-1", unlabelled={"dataset": other, "epsilon": "1"}
    )
    assert two["note"].startswith(
        "Not measured for jobs on two datasets of these sizes. Nearest measured: sspe-1 on pure"
    )
