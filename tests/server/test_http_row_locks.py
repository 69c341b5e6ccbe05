"""A request that waits too long for a row of PostgreSQL is answered 503 with
``Retry-After``, and writes nothing.
"""

import psycopg
import pytest

from tests.support.server import Server, new_idempotency_key, training


@pytest.mark.parametrize("idle_server", ["postgresql"], indirect=True)
def test_a_locked_row_is_503_and_the_request_can_be_repeated(
    idle_server: Server,
) -> None:
    server = idle_server
    dataset = server.uploaded()["id"]
    before, headers = server.footprint(), new_idempotency_key()
    with psycopg.connect(server.settings.database_url) as other:
        other.execute("SELECT FROM accounts WHERE id = %s FOR UPDATE", [dataset])
        # The next request has a connection of its own: this one has waited about as
        # long as an idle one lives.
        last = {**headers, "Connection": "close"}
        answer = server.admin.http.post("/train", json=training(dataset), headers=last)
    assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert server.footprint() == before
    assert (
        server.admin.http.post(
            "/train", json=training(dataset), headers=headers
        ).status_code
        == 202
    )
