"""``/readyz`` says what is true now: it is 503 while PostgreSQL is stopped, and 200
again when it runs.
"""

import time
from pathlib import Path

from app.db import migrate
from tests.support.postgres import restartable_server
from tests.support.server import running_server

_GIVE_UP_S = 120


def test_a_stopped_database_is_seen_and_so_is_its_return(tmp_path: Path) -> None:
    with restartable_server() as database:
        migrate.upgrade(database.url)
        with running_server(database.url, tmp_path / "home", n_workers=0) as server:
            client = server.client(None)
            assert client.get("/readyz").status_code == 200
            database.stop()
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
            assert answer.headers["Retry-After"]
            assert client.get("/healthz").status_code == 200, (
                "a restart of the process would not help"
            )
            database.start()
            deadline = time.monotonic() + _GIVE_UP_S
            while client.get("/readyz").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert server.admin.http.get("/ledger").status_code == 200
