"""A kind of release is four files, and lines in the lists of all kinds: one that a test
adds is quoted, paid, drawn, kept and shown.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.registry.tables import ReleaseRow
from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import MigratedDatabase
from tests.support.noisy_count import LINES
from tests.support.server import Server, new_idempotency_key, running_server, worker

pytestmark = pytest.mark.in_turn("server")

N_ROWS = 400
DELTA = "0.000001"
BUDGETS = {
    "pure": {"accountant": "pure", "epsilon": "10"},
    "zcdp": {"accountant": "zcdp", "epsilon": "10", "delta": DELTA},
    "gdp": {"accountant": "gdp", "epsilon": "10", "delta": DELTA},
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(
    request: pytest.FixtureRequest,
    migrated_database: MigratedDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server and a worker that know one kind more."""
    folder = tmp_path_factory.mktemp("counting")
    with (
        pytest.MonkeyPatch.context() as added,
        migrated_database(request.param, folder) as url,
    ):
        for line in LINES:
            added.setattr(*line)
        with (
            running_server(url, folder / "home", n_workers=0) as server,
            worker(
                server.settings,
                log=Path(folder / "worker.log"),
                module="tests.support.noisy_count_worker",
            ),
        ):
            yield server


def _release_of(server: Server, job: dict[str, Any]) -> str:
    with server.database.read() as session:
        return str(
            session.execute(
                select(ReleaseRow.id).where(ReleaseRow.job_id == job["id"])
            ).scalar_one()
        )


@pytest.mark.parametrize("protects", ["row", "label"])
@pytest.mark.parametrize("accountant", BUDGETS)
def test_a_kind_from_outside_is_quoted_paid_drawn_kept_and_shown(
    server: Server, accountant: str, protects: str
) -> None:
    dataset = server.uploaded(N_ROWS, budget=BUDGETS[accountant], protects=protects)
    path, body = (
        f"/datasets/{dataset['name']}/counts",
        {"epsilon": "8", "purpose": "how many"},
    )
    before = server.footprint()
    quote = server.admin.http.post(f"{path}/quote", json=body).json()
    assert server.footprint() == before, "a quote changes nothing"

    headers = new_idempotency_key()
    answer = server.admin.http.post(path, json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    again = server.admin.http.post(path, json=body, headers=headers)
    assert again.content == answer.content, (
        "a repetition is answered alike and charges nothing"
    )
    job = server.ended(answer.json()["job_id"])
    assert (job["state"], job["kind"], job["purpose"]) == (
        "succeeded",
        "count",
        "how many",
    )
    refused = server.admin.http.post(path, json=body, headers=new_idempotency_key())
    assert refused.json()["type"].endswith("budget-exceeded"), refused.text

    balance = server.admin.http.get(f"/ledger/{dataset['id']}").json()
    assert balance["charged"] == quote["price"]["amount"]
    entries = verify(
        server.admin.http.get(f"/ledger/{dataset['id']}/export").content.splitlines(
            keepends=True
        )
    )
    assert entries is not None
    shown = server.admin.http.get(f"/counts/{_release_of(server, job)}").json()
    assert abs(shown["count"] - N_ROWS) < 20 * shown["noise_sd"]
    assert "this count adds" in shown["guarantee"]["text"]


def test_a_count_is_shown_to_those_who_may_train_alone(server: Server) -> None:
    dataset = server.uploaded(N_ROWS)
    body = {"epsilon": "1"}
    answer = server.admin.http.post(
        f"/datasets/{dataset['id']}/counts", json=body, headers=new_idempotency_key()
    )
    job = server.ended(answer.json()["job_id"])
    path = f"/counts/{_release_of(server, job)}"
    assert server.granted(dataset["id"], "analyst").http.get(path).is_success
    assert server.granted(dataset["id"], "predictor").http.get(path).status_code == 403
    assert server.caller().http.get(path).status_code == 404
