"""New secrets and new names: what a repetition or a reader would take for something
else is refused.
"""

import re

import pytest

from app.ledger.control import OPERATOR
from app.services.datasets.erase import SWEEPER
from app.services.execution.charge import WORKER
from tests.support.databases import on_one_idle_server
from tests.support.pages import signed_in
from tests.support.server import Server, declaration, new_idempotency_key, training


@on_one_idle_server
def test_a_secret_is_made_without_an_idempotency_key(idle_server: Server) -> None:
    """The API keeps no answer with a secret, so a repetition would make another secret
    and end the first.
    """
    http, dataset = idle_server.admin.http, idle_server.declared()["id"]
    key = idle_server.caller()
    hooks = f"/datasets/{dataset}/webhooks"
    hook = http.post(
        hooks, json={"url": "https://example.org/x", "events": ["job.ended"]}
    ).json()["id"]
    for path, body in (
        ("/keys", {"name": "n", "roles": []}),
        (f"/keys/{key.id}/secret", {}),
        (hooks, {"url": "https://example.org/y", "events": ["job.ended"]}),
        (f"{hooks}/{hook}/secret", {}),
    ):
        refused = http.post(path, json=body, headers={"Idempotency-Key": "once"})
        assert (refused.status_code, refused.json()["errors"][0]["at"]) == (
            422,
            "/Idempotency-Key",
        ), path
        assert key.http.get("/datasets").status_code == 200, "its secret stays"


@on_one_idle_server
def test_names_that_stand_for_something_else_are_refused(idle_server: Server) -> None:
    http, dataset = idle_server.admin.http, idle_server.declared()
    for name, problem in (
        (dataset["id"], "like-an-id"),
        ("--help", "like-an-option"),
        (WORKER, "reserved"),
        (SWEEPER, "reserved"),
        (OPERATOR, "reserved"),
    ):
        refused = http.post("/keys", json={"name": name, "roles": []})
        assert [(item["at"], item["problem"]) for item in refused.json()["errors"]] == [
            ("/name", problem)
        ]
    for path in ("/datasets", "/declarations"):
        refused = http.post(path, json=declaration(name=idle_server.caller().id))
        assert [(item["at"], item["problem"]) for item in refused.json()["errors"]] == [
            ("/name", "like-an-id")
        ]
        refused = http.post(path, json=declaration(name="-x"))
        assert refused.json()["errors"][0]["problem"] == "like-an-option"
    joined = http.put(
        f"/datasets/{dataset['id']}/population", json={"population": dataset["id"]}
    )
    assert joined.json()["errors"][0]["problem"] == "like-an-id"


def _in_a_declaration(secret: str) -> list[tuple[dict[str, object], str]]:
    """Changes of a declaration that hold a secret, and where."""
    of_column: dict[str, object] = {
        "name": "shard",
        "kind": "column",
        "column": "site",
        "categories": ["a"],
    }
    feature = {"name": "site", "type": "categorical", "categories": ["a", "b"]}
    label = {"name": "y", "classes": ["a", "b"]}
    return [
        (
            {
                "partitions": [
                    of_column | {"name": secret.replace("/", "-").rstrip("=")}
                ]
            },
            "/partitions/0/name",
        ),
        ({"partitions": [of_column | {"column": secret}]}, "/partitions/0/column"),
        (
            {"partitions": [of_column | {"categories": ["a", secret]}]},
            "/partitions/0/categories",
        ),
        (
            {"partitions": [{"name": "month", "kind": "epoch", "how": f"by {secret}"}]},
            "/partitions/0/how",
        ),
        ({"privacy_unit": {"column": secret}}, "/privacy_unit/column"),
        (
            {"schema": {"features": [feature | {"name": secret}], "label": label}},
            "/schema/features/0/name",
        ),
        (
            {
                "schema": {
                    "features": [feature | {"categories": ["a", secret]}],
                    "label": label,
                }
            },
            "/schema/features/0/categories",
        ),
        (
            {"schema": {"features": [feature], "label": label | {"name": secret}}},
            "/schema/label/name",
        ),
        (
            {
                "schema": {
                    "features": [feature],
                    "label": label | {"classes": ["a", secret]},
                }
            },
            "/schema/label/classes",
        ),
    ]


@on_one_idle_server
@pytest.mark.parametrize(
    "secret",
    [
        f"key_{'a' * 16}.{'Ab1' * 14}_",
        f"boss.{'0a' * 22}",
        f"whsec_{'Ab1' * 14}/=",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJTRUNSRVQifQ.c2lnbmF0dXJl",
    ],
)
def test_a_secret_is_taken_for_no_name_and_stands_in_no_ledger(
    idle_server: Server, secret: str
) -> None:
    http, dataset = idle_server.admin.http, idle_server.declared()
    before = idle_server.footprint()
    declared = declaration()
    for path, body, at in (
        *(
            ("/datasets", declared | changes, at)
            for changes, at in _in_a_declaration(secret)
        ),
        ("/keys", {"name": secret, "roles": []}, "/name"),
        ("/datasets", declaration(name=secret.replace("/", "-").rstrip("=")), "/name"),
        (
            "/train",
            training(dataset["id"]) | {"purpose": f"with {secret}, as agreed"},
            "/purpose",
        ),
        ("/train", training(dataset["id"]) | {"name": secret}, "/name"),
        (
            f"/ledger/{dataset['id']}/cap",
            {"cap": "1", "reason": f"({secret})"},
            "/reason",
        ),
    ):
        refused = http.post(
            path, json=body, headers=new_idempotency_key() if path == "/train" else None
        )
        assert (refused.status_code, secret in refused.text) == (422, False), path
        assert [(item["at"], item["problem"]) for item in refused.json()["errors"]] == [
            (at, "like-a-secret")
        ], path
    refused = http.post("/datasets", json=declared, headers={"Idempotency-Key": secret})
    assert [(item["at"], item["problem"]) for item in refused.json()["errors"]] == [
        ("/Idempotency-Key", "like-a-secret")
    ]
    assert idle_server.footprint() == before


@on_one_idle_server
def test_a_name_of_words_is_no_secret(idle_server: Server) -> None:
    for name in (
        "census.north-region-patients-admissions-2024-quarter-1",
        "key_abcdefghijklmnop. It was lost",
    ):
        made = idle_server.admin.http.post("/keys", json={"name": name, "roles": []})
        assert made.status_code == 201, name


@on_one_idle_server
def test_a_browser_sends_no_key_in_a_search(idle_server: Server) -> None:
    """The fields of a search stand in the address of the page."""
    browser, dataset = (
        signed_in(idle_server, idle_server.admin),
        idle_server.declared()["id"],
    )
    for path, n_fields in (
        ("/ui/admin/keys", 1),
        ("/ui/acts", 2),
        (f"/ui/ledger/{dataset}", 3),
    ):
        patterns = re.findall(
            r'<input [^>]*pattern="(\(\?![^"]+)"', browser.get(path).text
        )
        assert len(patterns) == n_fields, path
        for pattern in map(re.compile, patterns):
            assert not pattern.fullmatch(idle_server.admin.key)
            assert not pattern.fullmatch(
                f"eyJhbGciOiJSUzI1NiJ9.eyJ{'zdWIi' * 9}.c2lnbmF0dXJl"
            )
            assert pattern.fullmatch(idle_server.admin.id)
            assert pattern.fullmatch("Ann B. Smith")
