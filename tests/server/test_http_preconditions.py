"""Changes of rules under a condition: of several that rest on the same rules, one is
made.
"""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import httpx
import pytest

from grovekeeper_client import Dataset
from grovekeeper_client.client import Client
from grovekeeper_client.errors import ApiProblem
from tests.support.pages import hidden, section, signed_in
from tests.support.server import CSV, Server, csv_rows, declaration

RULES: dict[str, Any] = {
    "largest_job": "1", "approval_above": None, "quotas": [], "frozen": False, "erase_rows_at": None,
}  # fmt: skip


def _outcomes(answers: list[httpx.Response]) -> list[int]:
    refused = [answer for answer in answers if answer.status_code == 412]
    assert {answer.json()["type"] for answer in refused} <= {"changed-meanwhile"}
    return sorted(answer.status_code for answer in answers)


def test_of_changes_that_rest_on_the_same_rules_one_is_made(
    idle_server: Server,
) -> None:
    path, http = (
        f"/datasets/{idle_server.declared()['id']}/rules",
        idle_server.admin.http,
    )
    seen = http.get(path)
    assert seen.headers["ETag"] == f'"{seen.json()["etag"]}"'
    held = {"If-Match": seen.headers["ETag"]}

    def change(number: int) -> httpx.Response:
        return http.put(path, json=RULES | {"largest_job": f"0.{number}"}, headers=held)

    with ThreadPoolExecutor(6) as threads:
        assert _outcomes(list(threads.map(change, range(1, 7)))) == [200, *[412] * 5]
    now = http.get(path)
    assert now.headers["ETag"] != held["If-Match"]
    again = http.put(
        path, json=RULES | {"largest_job": now.json()["largest_job"]}, headers=held
    )
    assert (again.status_code, again.headers["ETag"]) == (200, now.headers["ETag"]), (
        "a repetition changes nothing"
    )
    assert http.put(path, json=RULES).status_code == 200, "without a condition"


def test_a_proposal_is_a_part_of_what_an_owner_has_seen(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    first, second = (idle_server.granted(dataset, "owner") for _ in range(2))
    path = f"/datasets/{dataset}/rules"
    seen = first.http.put(path, json=RULES).json()["etag"]
    assert (
        first.http.put(path, json=RULES | {"largest_job": "2"}).json()["etag"] != seen
    )
    tighter = RULES | {"largest_job": "0.5"}
    late = second.http.put(path, json=tighter, headers={"If-Match": f'"{seen}"'})
    assert late.status_code == 412, (
        "the second owner has not seen the proposal, which the change would drop"
    )
    assert second.http.get(path).json()["proposal"]["rules"]["largest_job"] == "2"


def test_other_columns_replace_those_that_the_owner_has_seen(
    idle_server: Server,
) -> None:
    declared = idle_server.declared()
    path, http = f"/datasets/{declared['id']}", idle_server.admin.http
    first = http.get(path)
    schema = deepcopy(declared["schema"])
    schema["features"][0]["upper"] += 1
    seen = {"If-Match": first.headers["ETag"]}
    changed = http.patch(path, json={"schema": schema}, headers=seen)
    assert changed.headers["ETag"] == http.get(path).headers["ETag"]
    assert changed.headers["ETag"] != first.headers["ETag"]
    assert changed.json()["schema"] == schema
    late = http.patch(path, json={"schema": declared["schema"]}, headers=seen)
    assert (late.status_code, late.json()["type"]) == (412, "changed-meanwhile")
    again = http.patch(path, json={"schema": schema}, headers=seen)
    assert again.status_code == 200, "a repetition changes nothing"
    new = http.patch(path, json={"schema": schema}, headers={"If-None-Match": "*"})
    assert new.status_code == 412
    with Client(idle_server.url, idle_server.admin.key) as client:
        dataset = Dataset(client, client.dataset(declared["id"]))
        dataset.change(declared["schema"])
        assert dataset.schema == declared["schema"]
        other = Dataset(client, client.dataset(declared["id"]))
        other.change(schema)
        with pytest.raises(ApiProblem) as late_too:
            dataset.change(declared["schema"] | {"missing_values": ["-"]})
        assert late_too.value.type == "changed-meanwhile"
        other.change(declared["schema"])
        rows = csv_rows(3)
        assert http.post(f"{path}/rows", content=rows, headers=CSV).status_code == 201
        with pytest.raises(ApiProblem, match="declare another dataset") as refused:
            dataset.change(schema)
    assert refused.value.type == "declaration-fixed"


def test_a_declaration_is_answered_with_the_tag_of_its_columns(
    idle_server: Server,
) -> None:
    http, body = idle_server.admin.http, declaration()
    body["schema"] = deepcopy(body["schema"])
    bounds = ((0.0, 1e300), (0.5, 1e17))
    for feature, (lower, upper) in zip(
        body["schema"]["features"], bounds, strict=False
    ):
        feature |= {"type": "numeric", "lower": lower, "upper": upper}
    once = {"Idempotency-Key": body["name"]}
    made, again = (http.post("/datasets", json=body, headers=once) for _ in range(2))
    assert (made.status_code, again.content) == (201, made.content)
    shown = http.get(made.headers["Location"])
    tags = [answer.headers["ETag"] for answer in (made, again, shown)]
    assert len(set(tags)) == 1


@pytest.mark.parametrize("field", ["abc", '"a" "b"', '"', "*, *", ""])
def test_a_field_that_is_no_list_of_tags_is_refused(
    idle_server: Server, field: str
) -> None:
    path = f"/datasets/{idle_server.declared()['id']}/rules"
    refused = idle_server.admin.http.put(path, json=RULES, headers={"If-Match": field})
    assert (refused.status_code, refused.json()["errors"][0]["at"]) == (
        422,
        "/If-Match",
    )


def test_rules_are_never_new(idle_server: Server) -> None:
    path, http = (
        f"/datasets/{idle_server.declared()['id']}/rules",
        idle_server.admin.http,
    )
    refused = http.put(path, json=RULES, headers={"If-None-Match": "*"})
    assert (refused.status_code, refused.json()["type"]) == (412, "changed-meanwhile")
    assert http.get(path).json()["largest_job"] is None
    seen = http.put(path, json=RULES).json()["etag"]
    assert (
        http.put(path, json=RULES, headers={"If-None-Match": "*"}).status_code == 412
    ), "although it changes nothing"
    for fields in (
        {"If-None-Match": f'"{seen}"'},
        {"If-None-Match": ""},
        {"If-None-Match": "*", "If-Match": "*"},
    ):
        refused = http.put(path, json=RULES, headers=fields)
        assert (refused.status_code, refused.json()["errors"][0]["at"]) == (
            422,
            "/If-None-Match",
        )


def test_the_client_and_the_page_send_what_they_have_seen(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    path = f"/ui/datasets/{dataset}/rules"
    browser = signed_in(idle_server, idle_server.admin)
    opened = hidden(browser.get(path).text)["etag"]
    with Client(idle_server.url, idle_server.admin.key) as client:
        seen = client.rules(dataset)
        client.change_rules(dataset, RULES, etag=seen["etag"])
        with pytest.raises(ApiProblem, match="changed since") as refused:
            client.change_rules(
                dataset, RULES | {"largest_job": "2"}, etag=seen["etag"]
            )
    assert refused.value.status == 412
    late = browser.post(path, data={"etag": opened, "largest_job": "3"})
    assert late.status_code == 412
    assert "changed since" in section(late.text, "rules")
    assert (
        browser.post(
            path, data={"etag": hidden(late.text)["etag"], "largest_job": "3"}
        ).status_code
        == 303
    )
