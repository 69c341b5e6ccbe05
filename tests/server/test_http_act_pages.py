"""The pages of administrative acts over HTTP: sentences, searches, verification, and
the role rule of ``/audit``.
"""

import json
import re
import secrets
from html import unescape

from tests.support.databases import on_one_idle_server
from tests.support.pages import section, signed_in, text_of
from tests.support.server import Server

pytestmark = on_one_idle_server


def _rows(page: str) -> list[list[str]]:
    """The cells of the table of acts, as texts."""
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        for row in body.split("<tr>")[1:]
    ]
    return [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in rows]


def _scene(server: Server) -> tuple[str, str, str]:
    """The name of a dataset with acts, the name of a key that acted on it, and the id
    of that key.
    """
    name, key_name = f"wards-{secrets.token_hex(4)}", f"nurse {secrets.token_hex(4)}"
    dataset = server.declared(name=name)["id"]
    key = server.admin.http.post("/keys", json={"name": key_name, "roles": []}).json()
    server.admin.http.put(
        f"/datasets/{dataset}/grants/{key['id']}", json={"role": "owner"}
    ).raise_for_status()
    owner = server.client(key["key"])
    rules = {
        "largest_job": "1",
        "approval_above": None,
        "quotas": [{"keys": [key["id"]], "cap": "2"}],
    }
    owner.put(
        f"/datasets/{dataset}/rules",
        json={**rules, "frozen": True, "erase_rows_at": None},
    ).raise_for_status()
    owner.post(
        f"/ledger/{dataset}/cap", json={"cap": "9", "reason": "the board agreed"}
    ).raise_for_status()
    owner.delete(f"/datasets/{dataset}").raise_for_status()
    return name, key_name, key["id"]


def test_acts_are_found_by_kind_key_and_subject_in_words(idle_server: Server) -> None:
    name, key_name, key_id = _scene(idle_server)
    browser = signed_in(idle_server, idle_server.caller("auditor"))
    rows = _rows(browser.get("/ui/acts", params={"about": name}).text)
    admin = f"test admin {idle_server.admin.id}"
    owner = f"{key_name} {key_id}"
    assert [row[2:] for row in rows] == [
        [owner, f"Erased all rows of {name}."],
        [
            owner,
            f"Changed the cap of {name} from 100 ε to 9 ε: its ledger entry. Reason: the board agreed",
        ],
        [
            owner,
            f"Put rules in force on {name}: frozen; no job above 1; quota of 2 for {owner}.",
        ],
        [admin, f"Granted {owner} the role owner on {name}."],
        [admin, f"Declared the dataset {name}."],
    ]
    by_key = _rows(
        browser.get(
            "/ui/acts", params={"by": key_name.upper(), "kind": "cap-changed"}
        ).text
    )
    assert [row[0] for row in by_key] == [rows[1][0]]
    about_key = _rows(browser.get("/ui/acts", params={"about": key_id}).text)
    assert about_key[-1][3] == f"Issued the key {owner}, without a global role."
    nothing = section(
        browser.get("/ui/acts", params={"about": "no such thing"}).text, "acts"
    )
    assert "No act matches." in nothing
    assert browser.get("/ui/acts", params={"cursor": "x"}).status_code == 422


def test_pages_of_acts_are_those_of_the_api(idle_server: Server) -> None:
    _, key_name, _ = _scene(idle_server)
    browser = signed_in(idle_server, idle_server.admin)
    path, pages = f"/ui/acts?by={key_name}&limit=2", []
    while path:
        page = browser.get(path).text
        pages += _rows(page)
        following = re.search(r'<a href="([^"]+)">Next page<', page)
        path = f"/ui/acts{unescape(following[1])}&limit=2" if following else ""
    assert pages == _rows(browser.get("/ui/acts", params={"by": key_name}).text)
    assert len(pages) == 3
    sequence = int(pages[0][0])
    shown = unescape(browser.get(f"/ui/acts/{sequence}").text)
    listed = idle_server.admin.http.get(
        "/audit", params={"cursor": str(sequence - 1), "limit": 1}
    ).json()["acts"]
    assert json.loads(shown.partition("<pre>")[2].partition("</pre>")[0]) == listed[0]
    assert browser.get("/ui/acts/0").status_code == 404


def test_acts_are_verified_and_exported_on_their_pages(idle_server: Server) -> None:
    browser, admin = (
        signed_in(idle_server, idle_server.caller("auditor")),
        idle_server.admin.http,
    )
    verified = text_of(browser.get("/ui/acts/verification"))
    assert "VERIFIED: the verifier recomputed" in verified
    lines = browser.get("/ui/acts/export").text.splitlines()
    assert lines == admin.get("/audit/export").text.splitlines()
    assert browser.get("/ui/acts/checkpoint").text.splitlines()[0].endswith("control")


def test_acts_are_shown_to_admins_and_auditors_of_all_datasets_alone(
    idle_server: Server,
) -> None:
    dataset = idle_server.declared()["id"]
    callers = {
        role: idle_server.granted(dataset, role) for role in ("owner", "auditor")
    }
    for name, caller in {
        **callers,
        "global owner": idle_server.caller("owner"),
    }.items():
        browser = signed_in(idle_server, caller)
        for path in ("", "/1", "/verification", "/export", "/checkpoint"):
            assert browser.get(f"/ui/acts{path}").status_code == 403, (name, path)
        assert 'href="/ui/acts"' not in browser.get("/").text
    assert (
        'href="/ui/acts"'
        in signed_in(idle_server, idle_server.caller("auditor")).get("/").text
    )


def test_an_owner_reads_the_acts_on_her_dataset_with_the_names_of_its_keys(
    idle_server: Server,
) -> None:
    dataset, foreign = idle_server.declared(), idle_server.declared()["id"]
    owner = idle_server.granted(dataset["id"], "owner")
    grants = owner.http.get(f"/datasets/{dataset['id']}/grants").json()["grants"]
    names = {grant["key_id"]: grant["key_name"] for grant in grants}
    browser = signed_in(idle_server, owner)
    cap = {"cap": "9", "reason": "a <b>smaller</b> study"}
    owner.http.post(f"/ledger/{dataset['id']}/cap", json=cap).raise_for_status()
    answer = browser.get("/ui/acts", params={"dataset": dataset["id"]})
    lowered, *acts = [row[3] for row in _rows(answer.text)]
    said = f"Changed the cap of {dataset['name']} from 100 ε to 9 ε: its ledger entry."
    assert lowered == f"{said} Reason: a <b>smaller</b> study"
    granted = f"Granted {names[owner.id]} {owner.id} the role owner"
    assert acts[0].startswith(granted)
    assert acts[-1] == f"Declared the dataset {dataset['name']}."
    # what all acts are verified with is for those who may see all of them
    for hidden in ("/ui/acts/verification", "/ui/acts/export", 'href="/ui/acts/1"'):
        assert hidden not in answer.text, hidden
    path = f"/ui/acts?dataset={dataset['id']}"
    assert path in unescape(browser.get(f"/ui/datasets/{dataset['id']}/access").text)
    assert browser.get("/ui/acts", params={"dataset": foreign}).status_code == 404
    analyst = signed_in(idle_server, idle_server.granted(dataset["id"], "analyst"))
    assert analyst.get(path).status_code == 403
