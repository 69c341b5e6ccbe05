"""New secrets and new names: what a repetition or a reader would take for something else is refused."""

from tests.support.server import Server, declaration


def test_a_secret_is_made_without_an_idempotency_key(idle_server: Server) -> None:
    """No answer with a secret is kept, so a repetition would make another secret and end the first."""
    http, dataset = idle_server.admin.http, idle_server.declared()["id"]
    key = idle_server.caller()
    hooks = f"/datasets/{dataset}/webhooks"
    hook = http.post(hooks, json={"url": "https://example.org/x", "events": ["job.ended"]}).json()["id"]
    for path, body in (
        ("/keys", {"name": "n", "roles": []}),
        (f"/keys/{key.id}/secret", {}),
        (hooks, {"url": "https://example.org/y", "events": ["job.ended"]}),
        (f"{hooks}/{hook}/secret", {}),
    ):
        refused = http.post(path, json=body, headers={"Idempotency-Key": "once"})
        assert (refused.status_code, refused.json()["errors"][0]["at"]) == (422, "/Idempotency-Key"), path
        assert key.http.get("/datasets").status_code == 200, "its secret stays"


def test_names_that_stand_for_something_else_are_refused(idle_server: Server) -> None:
    http, dataset = idle_server.admin.http, idle_server.declared()
    for name, problem in ((dataset["id"], "like-an-id"), ("worker", "reserved"), ("operator", "reserved")):
        refused = http.post("/keys", json={"name": name, "roles": []})
        assert [(item["at"], item["problem"]) for item in refused.json()["errors"]] == [("/name", problem)]
    for path in ("/datasets", "/declarations"):
        refused = http.post(path, json=declaration(name=idle_server.caller().id))
        assert [(item["at"], item["problem"]) for item in refused.json()["errors"]] == [("/name", "like-an-id")]
    joined = http.put(f"/datasets/{dataset['id']}/population", json={"population": dataset["id"]})
    assert joined.json()["errors"][0]["problem"] == "like-an-id"
