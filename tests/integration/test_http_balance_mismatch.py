"""A job on an account whose stored balance was lost is refused; the service stays ready for other accounts."""

from sqlalchemy import delete, insert, select

from app.ledger.tables import BoxRow
from tests.support.server import Server


def test_spent_budget_is_not_spent_again_when_the_balance_is_lost(idle_server: Server) -> None:
    budget = {"accountant": "pure", "epsilon": "1"}
    lost, healthy = (idle_server.uploaded(20, budget=budget)["id"] for _ in range(2))
    assert idle_server.submitted(lost, epsilon="1").status_code == 202
    rows = select(BoxRow.__table__).where(BoxRow.account_id == lost)
    with idle_server.database.write() as session:
        boxes = [dict(row) for row in session.execute(rows).mappings()]
        session.execute(delete(BoxRow).where(BoxRow.account_id == lost))
    refused = idle_server.submitted(lost, epsilon="1")
    assert (refused.status_code, refused.json()["type"]) == (503, "balance-mismatch"), refused.text
    assert int(refused.headers["Retry-After"]) > 0
    assert idle_server.submitted(healthy, epsilon="1").status_code == 202
    assert idle_server.admin.http.get("/readyz").status_code == 200
    assert any(lost in line and "differs from its entries" in line for line in idle_server.log().splitlines())
    with idle_server.database.write() as session:
        session.execute(insert(BoxRow), boxes)
    assert idle_server.submitted(lost, epsilon="1").json()["type"] == "budget-exceeded"
