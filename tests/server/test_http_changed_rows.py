"""Changed rows admit nothing more: a wrong chain refuses its account alone."""

from sqlalchemy import select, update

from app.ledger.tables import AccountRow
from tests.support.server import Server


def test_spent_budget_is_not_spent_again_whatever_is_done_to_the_rows(
    idle_server: Server,
) -> None:
    budget = {"accountant": "pure", "epsilon": "1"}
    spent, healthy = (idle_server.uploaded(20, budget=budget)["id"] for _ in range(2))
    assert idle_server.submitted(spent, epsilon="1").status_code == 202
    with idle_server.database.write() as session:
        head = session.execute(
            select(AccountRow.last_hash).where(AccountRow.id == spent)
        ).scalar_one()
        session.execute(
            update(AccountRow).where(AccountRow.id == spent).values(last_hash="0" * 64)
        )
    refused = idle_server.submitted(spent, epsilon="1")
    assert (refused.status_code, refused.json()["type"]) == (503, "balance-mismatch"), (
        refused.text
    )
    assert int(refused.headers["Retry-After"]) > 0
    assert idle_server.submitted(healthy, epsilon="1").status_code == 202
    assert idle_server.admin.http.get("/readyz").status_code == 200
    assert any(
        spent in line and "differs from its entries" in line
        for line in idle_server.log().splitlines()
    )
    with idle_server.database.write() as session:
        session.execute(
            update(AccountRow).where(AccountRow.id == spent).values(last_hash=head)
        )
    assert idle_server.submitted(spent, epsilon="1").json()["type"] == "budget-exceeded"
