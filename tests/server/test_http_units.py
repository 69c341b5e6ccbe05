"""A privacy unit of several rows over HTTP on both databases, from the declaration to
the verified export.
"""

import io
from concurrent.futures import ThreadPoolExecutor, as_completed
from decimal import Decimal
from itertools import islice

import httpx
import pytest

from app.api.capacity import THREADS
from app.core import limits
from app.core.sealed_files import DataKey
from app.datasets import admission
from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import on_one_server
from tests.support.server import (
    CSV,
    Caller,
    Server,
    csv_rows,
    new_idempotency_key,
    training,
)

K = 3
UNIT = {"column": "patient", "form": "text", "max_rows": K}
BUDGETS = {
    "pure": {"accountant": "pure", "epsilon": "6"},
    "zcdp": {"accountant": "zcdp", "epsilon": "6", "delta": "1e-6"},
    "gdp": {"accountant": "gdp", "epsilon": "6", "delta": "1e-6"},
}
SYMBOLS = {"pure": "ε", "zcdp": "ρ", "gdp": "μ²"}


def visits(n_rows: int) -> str:
    """Rows of the small schema: eight patients in turn, and every eleventh row without
    a patient.
    """
    header, *rows = csv_rows(n_rows).splitlines()
    named = (
        "" if index % 11 == 0 else f"Canary7Q-{index % 8}" for index in range(n_rows)
    )
    return "\n".join(
        [
            f"{header},patient",
            *(f"{row},{name}" for row, name in zip(rows, named, strict=True)),
            "",
        ]
    )


@on_one_server
@pytest.mark.parametrize("accountant", list(BUDGETS))
def test_unit_is_what_is_paid_for_printed_and_verified(
    server: Server, accountant: str
) -> None:
    dataset = server.declared(privacy_unit=UNIT, budget=BUDGETS[accountant])
    assert dataset["privacy_unit"] == UNIT
    report = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows", content=visits(88), headers=CSV
    ).json()
    assert report["dropped"] == {"without_unit": 8, "over_bound": 80 - 8 * K}
    assert [column["name"] for column in report["columns"]] == [
        "age",
        "height",
        "sex",
        "income",
    ]

    body = {"epsilon": "1.5"} | ({} if accountant == "pure" else {"delta": "1e-6"})
    quote = server.admin.http.post(
        "/plans", json=training(dataset["id"], **body)
    ).json()
    assert quote["price"]["epsilon"] == "1.5"
    last = quote["receipt"].splitlines()[-1]
    assert last.startswith(
        f"For all of the at most {K} rows of one unit together: {SYMBOLS[accountant]} "
    )
    figure = Decimal(last.rstrip(".").rsplit(" ", 1)[1])
    assert (
        Decimal("0.99") * Decimal(quote["price"]["amount"])
        < figure
        <= Decimal("1.00001") * Decimal(quote["price"]["amount"])
    )

    job = server.trained(dataset["id"], **body)
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert (
        f"one value of the column 'patient' with all of its at most {K} rows is added"
        in card["guarantee"]["text"]
    )
    assert (
        f"differ in one value of the column 'patient' with all of its at most {K} rows"
        in card["guarantee"]["text"]
    )
    assert card["receipt"] == quote["receipt"]
    balance = server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert balance["charged"] == quote["price"]["amount"]
    summary = verify(
        io.BytesIO(server.admin.http.get(f"/ledger/{dataset['id']}/export").content)
    )
    assert summary.header.max_rows == K
    assert "Canary7Q" not in server.log()


@on_one_server
def test_a_price_that_leaves_nothing_for_a_row_is_refused(server: Server) -> None:
    dataset = server.declared(privacy_unit={"column": "patient", "max_rows": 1_000_000})
    refused = server.admin.http.post(
        "/plans", json=training(dataset["id"], epsilon="0.0001")
    )
    assert refused.json()["errors"] == [
        {"at": "/epsilon", "problem": "too-small", "accepted": ["at least 0.001"]}
    ]


@on_one_server
@pytest.mark.parametrize(
    ("budget", "least"),
    [
        ({"accountant": "pure", "epsilon": "0.0000064"}, "0.000008"),
        ({"accountant": "zcdp", "rho": "5e-11", "delta": "1e-6"}, "0.00002"),
        ({"accountant": "gdp", "mu": "7e-6", "delta": "1e-6"}, "0.00001"),
    ],
    ids=lambda value: value["accountant"] if isinstance(value, dict) else "",
)
def test_a_remainder_that_pays_for_no_job_is_named_nothing(
    server: Server, budget: dict[str, str], least: str
) -> None:
    """Every request for an ε that this remainder pays is refused as too small, so
    nobody is told that the ε fits.
    """
    rows = 8000 if budget["accountant"] == "pure" else 8
    dataset = server.declared(
        privacy_unit={"column": "patient", "max_rows": rows}, budget=budget
    )
    server.admin.http.post(
        f"/datasets/{dataset['id']}/rows", content=visits(44), headers=CSV
    ).raise_for_status()
    body = training(dataset["id"], epsilon=least)

    quote = server.admin.http.post("/plans", json=body).json()
    assert (quote["fits"], quote["largest_that_fits"]) == (False, "0")
    assert quote["left_afterwards"] == "0"
    balance = server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert (balance["largest_that_fits"], balance["charged"]) == ("0", "0")
    assert balance["available"] != "0"
    refused = server.submitted(dataset["id"], epsilon=least)
    assert refused.json()["type"] == "budget-exceeded"
    assert refused.json()["largest_that_fits"] == "0"


@on_one_server
def test_a_row_dataset_drops_nothing_and_says_so(server: Server) -> None:
    dataset = server.declared()
    report = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows", content=csv_rows(5), headers=CSV
    ).json()
    assert report["dropped"] is None


@on_one_server
def test_uploads_that_wait_for_one_another_stop_nobody_else(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More uploads than the service has threads, each of another key: most are told to
    retry, and their retries are stored.
    """
    monkeypatch.setattr(admission, "WAIT_S", 600.0)
    dataset = server.declared(privacy_unit=UNIT)["id"]
    owners = [
        server.granted(dataset, "owner") for _ in range(sum(THREADS.values()) + 5)
    ]

    def upload(owner: Caller) -> httpx.Response:
        headers = CSV | new_idempotency_key()
        return owner.http.post(
            f"/datasets/{dataset}/rows", content=visits(8), headers=headers
        )

    with ThreadPoolExecutor(len(owners)) as callers:
        with admission.opened_home_book(
            server.settings.home, dataset, max_rows=K, key=DataKey.random()
        ):
            sent = {callers.submit(upload, owner): owner for owner in owners}
            refused = list(
                islice(as_completed(sent), len(owners) - limits.MAX_WAITING_UPLOADS)
            )
            assert server.admin.http.get(f"/datasets/{dataset}").json()["epochs"] == []
        assert sorted(
            {each.result().status_code for each in set(sent) - set(refused)}
        ) == [201]

    assert {
        (each.result().status_code, each.result().json()["type"]) for each in refused
    } == {(503, "unavailable")}
    assert {each.result().headers["Retry-After"] for each in refused} == {
        str(admission.RETRY_AFTER_S)
    }
    assert {upload(sent[each]).status_code for each in refused} == {201}
    assert len(server.admin.http.get(f"/datasets/{dataset}").json()["epochs"]) == len(
        owners
    )
