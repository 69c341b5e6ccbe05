"""Every operation of the OpenAPI document refuses query parameters that it does not
declare, and repeated ones.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest

from app.api.main import create_app
from app.core.settings import Settings
from app.services.keys import create_admin
from tests.support.in_process import in_process
from tests.support.openapi import DOCUMENT
from tests.support.operations import NOWHERE, REQUESTS

pytestmark = pytest.mark.contract

Ask: TypeAlias = Callable[[str, str], httpx.Response]
"""``ask(operation, query)``"""

DECLARED: dict[str, set[str]] = {
    operation["operationId"]: {
        parameter["name"]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    }
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
}
_CANARY = "canary9c1e"


@pytest.fixture
def ask(sqlite_database_url: str, tmp_path: Path) -> Iterator[Ask]:
    """Sends an otherwise valid request of an admin."""
    app = create_app(Settings(home=tmp_path / "home", database_url=sqlite_database_url))
    key = create_admin(app.state.installation.database, "test").text
    with in_process(app) as client:

        def send(operation: str, query: str) -> httpx.Response:
            method, path, options = REQUESTS[operation](NOWHERE)
            return client.request(
                method, f"{path.partition('?')[0]}?{query}", key=key, **options
            )

        yield send
    app.state.installation.close()


def test_an_unknown_parameter_is_refused_by_every_operation(ask: Ask) -> None:
    for operation, declared in DECLARED.items():
        answer = ask(operation, f"{_CANARY}={_CANARY}")
        assert answer.status_code == 422, operation
        (error,) = answer.json()["errors"]
        assert (error["at"], error["problem"], set(error.get("accepted", ()))) == (
            "",
            "unknown-parameter",
            declared,
        )
        assert _CANARY not in answer.text


def test_a_parameter_that_reads_like_a_parameter_is_named(ask: Ask) -> None:
    answer = ask("list_datasets", f"limt=5&sub_mitter=a&{_CANARY}=1&{_CANARY}2=1")
    errors = answer.json()["errors"]
    assert [error.get("field") for error in errors] == [None, "limt", "sub_mitter"]
    assert {error["problem"] for error in errors} == {"unknown-parameter"}
    assert _CANARY not in answer.text


def test_a_repeated_parameter_is_refused_by_every_operation(ask: Ask) -> None:
    for operation, declared in DECLARED.items():
        for name in declared:
            answer = ask(operation, f"{name}={_CANARY}&{name}={_CANARY}")
            assert answer.status_code == 422, operation
            assert {"at": f"/{name}", "problem": "repeated"} in answer.json()[
                "errors"
            ], (operation, name)
            assert _CANARY not in answer.text


def test_no_operation_declares_a_parameter_with_several_values() -> None:
    kinds = {
        str(parameter["schema"].get("type"))
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
    }
    assert "array" not in kinds
    assert sum(map(len, DECLARED.values())) > 20
