"""Predictions by cached authority over HTTP: equal answers, and none for a key whose
revocation was answered.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from app.api import predictions
from tests.support.server import Caller, Server, running_server
from tests.support.set_limits import SetLimit

ROWS = {"rows": [{"age": 39, "height": 1.5, "sex": "Male"}]}


@pytest.fixture(scope="module")
def trained(server: Server) -> dict[str, Any]:
    return server.trained(server.uploaded()["id"])


@pytest.fixture
def second(server: Server) -> Iterator[Server]:
    """Another API process on the same database."""
    with running_server(
        server.settings.database_url, server.settings.home, n_workers=0
    ) as second:
        yield second


@contextmanager
def _only_at_once() -> Iterator[None]:
    """Predictions that read the database fail."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("the prediction was not answered at once")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(predictions, "predict", refuse)
        yield


def _until_at_once(caller: Caller, path: str) -> None:
    """Predicts until the process knows the caller and has the model."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert caller.http.post(path, json=ROWS).status_code == 200
        with _only_at_once():
            if caller.http.post(path, json=ROWS).status_code == 200:
                return
    raise TimeoutError("no prediction is answered at once")


def test_a_prediction_from_memory_has_the_bytes_of_any_other(
    server: Server, trained: dict[str, Any], set_limit: SetLimit
) -> None:
    path = f"/models/{trained['model_id']}/predict"
    caller = server.granted(trained["dataset"], "predictor")
    # what is read from here on stays valid
    set_limit("REVOCATION_S", 3_600)
    first = caller.http.post(path, json=ROWS)
    _until_at_once(caller, path)
    with _only_at_once():
        again = caller.http.post(path, json=ROWS)
    assert (again.status_code, again.content) == (200, first.content)
    ours = {"x-request-id", "date"}
    assert {
        name: value for name, value in again.headers.items() if name not in ours
    } == {name: value for name, value in first.headers.items() if name not in ours}
    for body in (
        {"rows": [{"age": "x"}]},
        {"columns": {"age": [39], "height": [1.5], "sex": ["Male"]}},
    ):
        general = caller.http.post(path, json=body)
        assert general.status_code == (422 if "rows" in body else 200)
        assert "columns" not in body or general.content == first.content


def test_no_process_predicts_for_a_key_once_its_revocation_is_answered(
    server: Server,
    second: Server,
    trained: dict[str, Any],
    set_limit: SetLimit,
) -> None:
    set_limit("REVOCATION_S", 1.0)
    path = f"/models/{trained['model_id']}/predict"
    caller = server.granted(trained["dataset"], "predictor")
    there = Caller(caller.id, caller.key, second.client(caller.key))
    _until_at_once(there, path)
    begun: list[tuple[float, int]] = []
    predicted = threading.Event()

    def predict_until_refused() -> None:
        status = 200
        while status == 200:
            began_s = time.monotonic()
            status = there.http.post(path, json=ROWS).status_code
            begun.append((began_s, status))
            predicted.set()

    predicting = threading.Thread(target=predict_until_refused)
    predicting.start()
    assert predicted.wait(60)
    assert server.admin.http.delete(f"/keys/{caller.id}").status_code == 204
    answered_s = time.monotonic()
    assert caller.http.post(path, json=ROWS).status_code == 401
    predicting.join(60)
    assert begun[-1][1] == 401
    assert all(began_s < answered_s for began_s, status in begun if status == 200)
    assert len(begun) > 1
