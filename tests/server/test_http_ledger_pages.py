"""The pages of ledgers over HTTP: entries newest first with a running balance,
searches, and one entry in words.
"""

import json
import re
import secrets
from datetime import timedelta
from html import unescape
from typing import Any

from app.core import limits
from app.jobs.tables import JobRow
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.operations import EXTERNAL
from tests.support.pages import section, signed_in, text_of
from tests.support.server import Server, new_idempotency_key, training


def _busy(server: Server) -> tuple[str, str]:
    """A dataset whose ledger has an entry of every kind but an expiry, and its
    cancelled job.
    """
    dataset = server.uploaded(
        partitions=[{"name": "shard", "kind": "hash", "cells": 2}]
    )["id"]
    admin = server.admin.http
    for epsilon, scope in (
        ("0.5", {}),
        ("0.25", {"shard": [1]}),
        ("2", {"shard": [0]}),
    ):
        body = EXTERNAL | {
            "declared": {"adjacency": "add_remove", "epsilon": epsilon},
            "scope": scope,
        }
        answer = admin.post(
            f"/ledger/{dataset}/reservations", json=body, headers=new_idempotency_key()
        )
        assert answer.status_code == 201, answer.text
    submitted = server.submitted(dataset, epsilon="0.125", purpose="a pilot")
    job: str = submitted.json()["job_id"]
    admin.delete(f"/jobs/{job}").raise_for_status()
    admin.post(
        f"/ledger/{dataset}/cap", json={"cap": "9", "reason": "the board agreed"}
    ).raise_for_status()
    return dataset, job


def _rows(page: str) -> list[list[str]]:
    """The cells of the table of entries, as texts."""
    body = (
        page[page.index("Entries, newest first") :]
        .partition("<tbody>")[2]
        .partition("</tbody>")[0]
    )
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        for row in body.split("<tr>")[1:]
    ]
    return [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in rows]


@on_one_idle_server
def test_the_running_balance_leads_from_nothing_to_the_balance(
    idle_server: Server,
) -> None:
    """Summed here from the entries of the API: a charge of another cell moves nothing,
    a voided reservation nets 0.
    """
    dataset, _ = _busy(idle_server)
    admin = idle_server.admin.http
    balance = admin.get(f"/ledger/{dataset}").json()
    assert balance["tightest_cell"] == {"shard": 0}
    charged = reserved = 0.0
    expected = []
    for entry in admin.get(f"/ledger/{dataset}/entries").json()["entries"]:
        if 0 in entry["scope"].get("shard", [0]):
            amount = float(entry["amount"])
            charged += amount * (entry["kind"] == "charge")
            reserved += amount * {"reserve": 1, "charge": -1, "void": -1}.get(
                entry["kind"], 0
            )
        expected.insert(0, [str(entry["sequence"]), entry["kind"], charged, reserved])
    assert (
        (charged, reserved)
        == (float(balance["charged"]), float(balance["reserved"]))
        == (2.5, 0)
    )
    browser = signed_in(idle_server, idle_server.granted(dataset, "auditor"))
    whole = _rows(browser.get(f"/ui/ledger/{dataset}").text)
    assert [[row[0], row[1], float(row[3]), float(row[4])] for row in whole] == expected

    path, pages = f"/ui/ledger/{dataset}?limit=4", []
    while path:
        page = browser.get(path).text
        pages += _rows(page)
        following = re.search(r'<a href="([^"]+)">Next page<', page)
        path = (
            f"/ui/ledger/{dataset}{unescape(following[1])}&limit=4" if following else ""
        )
    assert pages == whole


@on_one_server
def test_a_guarantee_says_that_it_rests_on_what_was_attested(server: Server) -> None:
    """On the page, in the API, and so in the command, which prints the text; and on a
    card of an earlier model.
    """
    dataset = server.uploaded()["id"]
    admin, browser = server.admin.http, signed_in(server, server.admin)
    model = server.trained(dataset)["model_id"]

    def texts() -> list[str]:
        answers = [
            admin.get(path).json()
            for path in (f"/ledger/{dataset}", f"/models/{model}")
        ]
        return [
            *(answer["guarantee"]["text"] for answer in answers),
            browser.get(f"/ui/ledger/{dataset}").text,
        ]

    assert not any("attested" in text for text in texts()[:2])
    answer = admin.post(
        f"/ledger/{dataset}/reservations", json=EXTERNAL, headers=new_idempotency_key()
    )
    assert answer.status_code == 201, answer.text
    sentence = "so the guarantee also rests on what was attested about them, which the service cannot check."
    assert all(text.count(sentence) == 1 for text in texts())


@on_one_idle_server
def test_entries_are_searched_by_job_key_and_cell(idle_server: Server) -> None:
    dataset, job = _busy(idle_server)
    browser = signed_in(idle_server, idle_server.admin)
    path = f"/ui/ledger/{dataset}"
    assert [row[1] for row in _rows(browser.get(path, params={"job": job}).text)] == [
        "void",
        "reserve",
    ]
    all_rows = _rows(browser.get(path).text)
    assert len(
        _rows(browser.get(path, params={"key": idle_server.admin.id}).text)
    ) == len(all_rows)
    other = _rows(browser.get(path, params={"cell": "shard=1"}).text)
    assert {row[5] for row in other} == {"the whole dataset", "shard=1"}
    assert other[0][3] == "0.75", (
        "the running balance is that of the cell that is searched for"
    )
    nothing = section(browser.get(path, params={"job": "jb_nothing"}).text, "entries")
    assert "No entry matches." in nothing
    assert browser.get(path, params={"cursor": "x"}).status_code == 422
    assert browser.get(path, params={"cell": "shard=99"}).status_code == 422, (
        "no filter is left out without a word"
    )


@on_one_idle_server
def test_the_api_searches_as_the_page_does_and_lists_in_order(
    idle_server: Server,
) -> None:
    dataset, job = _busy(idle_server)
    path, admin = f"/ledger/{dataset}/entries", idle_server.admin.http
    browser = signed_in(idle_server, idle_server.admin)
    everything = admin.get(path).json()["entries"]
    searches: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"kind": "charge"}, {"kind": "charge"}),
        ({"job": job}, {"job": job}),
        (
            {"actor": idle_server.admin.id, "kind": "void"},
            {"key": idle_server.admin.id, "kind": "void"},
        ),
        ({"scope": '{"shard": [1]}'}, {"cell": "shard=1"}),
        ({"purpose": "a pilot"}, {"purpose": " a pilot "}),
    ]
    for query, fields in searches:
        listed = admin.get(path, params=query).json()["entries"]
        assert [str(entry["sequence"]) for entry in listed][::-1] == [
            row[0]
            for row in _rows(
                browser.get(f"/ui{path.removesuffix('/entries')}", params=fields).text
            )
        ]
        assert 0 < len(listed) < len(everything), query
        assert [entry for entry in everything if entry in listed] == listed, (
            "in order, and as they were hashed"
        )
        paged: list[Any] = []
        cursor: dict[str, str] = {}
        while len(paged) < len(everything):
            page = admin.get(path, params={**query, **cursor, "limit": 1}).json()
            paged += page["entries"]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert paged == listed
    for wrong in (
        {"kind": "gift"},
        {"scope": "{"},
        {"scope": '{"region": ["EU"]}'},
        {"colour": "red"},
    ):
        assert admin.get(path, params=wrong).status_code == 422, wrong


@on_one_idle_server
def test_a_change_of_the_cap_says_its_reason(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    body = {"cap": "9", "reason": "less <trust>"}
    idle_server.admin.http.post(f"/ledger/{dataset}/cap", json=body).raise_for_status()
    page = signed_in(idle_server, idle_server.admin).get(f"/ui/ledger/{dataset}").text
    row = next(row for row in _rows(page) if row[1] == "cap")
    assert "Reason: less <trust>" in map(unescape, row)
    assert "<trust>" not in page


@on_one_idle_server
def test_pages_say_that_the_whole_dataset_has_no_room_where_cells_may_have_some(
    idle_server: Server,
) -> None:
    shards = [{"name": "shard", "kind": "hash", "cells": 4}]
    declared = idle_server.uploaded(
        budget={"accountant": "pure", "epsilon": "1"}, partitions=shards
    )
    browser = signed_in(idle_server, idle_server.admin)
    idle_server.submitted(
        declared["id"], epsilon="1", scope={"shard": [2]}
    ).raise_for_status()
    page = browser.get("/ui/datasets", params={"name": declared["name"]})
    assert "nothing limited by the cap" in text_of(page)


@on_one_idle_server
def test_what_is_left_and_what_fits_are_explained_by_one_limit(
    idle_server: Server,
) -> None:
    """*Datasets* says that no job fits, *Ledger* that something is left: both name the
    quota.
    """
    declared = idle_server.uploaded(budget={"accountant": "pure", "epsilon": "1"})
    browser, dataset = signed_in(idle_server, idle_server.admin), declared["id"]
    search = {"name": declared["name"]}
    assert "limited by" not in browser.get("/ui/datasets", params=search).text
    predictor = signed_in(idle_server, idle_server.granted(dataset, "predictor"))
    assert "may not submit" in predictor.get("/ui/datasets", params=search).text
    quota = {"keys": [idle_server.admin.id], "cap": "0.5"}
    rules = {
        "largest_job": None,
        "approval_above": None,
        "quotas": [quota],
        "frozen": False,
        "erase_rows_at": None,
    }
    idle_server.admin.http.put(
        f"/datasets/{dataset}/rules", json=rules
    ).raise_for_status()
    assert "ε = 0.5 limited by a quota of your key" in text_of(
        browser.get("/ui/datasets", params=search)
    )
    idle_server.submitted(dataset, epsilon="0.5").raise_for_status()
    assert "nothing limited by a quota of your key" in text_of(
        browser.get("/ui/datasets", params=search)
    )
    for path in (f"/ui/ledger/{dataset}", "/ui/ledger?limit=500"):
        page = text_of(browser.get(path))
        assert (
            "0.5 left For one job of your key: 0, limited by a quota of your key."
            in page
        ), path
    page = browser.get(f"/ui/datasets/{dataset}").text
    assert "<strong>0</strong>, limited by a quota of your key" in page
    page = browser.get(
        f"/ui/datasets/{dataset}/train",
        params={"algorithm": "rdt-ta", "epsilon": "0.1"},
    ).text
    assert "Nothing fits now, limited by a quota of your key." in page


@on_one_idle_server
def test_nothing_is_left_to_a_job_of_an_erased_dataset(idle_server: Server) -> None:
    dataset, http = idle_server.uploaded()["id"], idle_server.admin.http
    http.delete(f"/datasets/{dataset}").raise_for_status()
    listed = next(
        each
        for each in http.get("/ledger?limit=500").json()["datasets"]
        if each["account"] == dataset
    )
    shown = http.get(f"/datasets/{dataset}").json()["account"]
    for balance in (http.get(f"/ledger/{dataset}").json(), listed, shown):
        assert (balance["available"], balance["limited_by"]) == ("0", "erased")
        assert balance["remaining"] == balance["cap"], "nothing was spent"


@on_one_idle_server
def test_an_ambiguous_name_lists_the_ids_of_its_keys(idle_server: Server) -> None:
    """In the answer of the API and on the page; each id then finds the entries of its
    key.
    """
    dataset = idle_server.declared()["id"]
    path = f"/ledger/{dataset}/entries"
    owners = [idle_server.granted(dataset, "owner") for _ in range(2)]
    for cap, owner in zip(("9", "8"), owners, strict=True):
        owner.http.post(
            f"/ledger/{dataset}/cap", json={"cap": cap, "reason": "less"}
        ).raise_for_status()
    refused = owners[0].http.get(path, params={"actor": "test"})
    ids = sorted(owner.id for owner in owners)
    assert (refused.status_code, refused.json()["errors"]) == (
        422,
        [{"at": "/actor", "problem": "ambiguous", "accepted": ids}],
    )
    page = signed_in(idle_server, owners[0]).get(
        f"/ui/ledger/{dataset}", params={"key": "test"}
    )
    assert page.status_code == 422
    assert all(key_id in page.text for key_id in ids)
    for owner in owners:
        (entry,) = (
            owners[0].http.get(path, params={"actor": owner.id}).json()["entries"]
        )
        assert (entry["kind"], entry["actor"]) == ("cap", owner.id)


@on_one_idle_server
def test_the_load_of_all_members_runs_beside_the_entries_of_a_population(
    idle_server: Server,
) -> None:
    """Summed here from the entries of the API, over two members."""
    name, admin = f"people-{secrets.token_hex(4)}", idle_server.admin.http
    datasets = [idle_server.uploaded(population=name)["id"] for _ in range(2)]
    requests = ((0, "1"), (1, "2"), (0, "3"))
    jobs = [
        idle_server.submitted(datasets[member], epsilon=epsilon)
        for member, epsilon in requests
    ]
    admin.delete(f"/jobs/{jobs[0].json()['job_id']}").raise_for_status()
    population = admin.get(f"/populations/{name}").json()["id"]
    loads: dict[str, float] = {}
    expected = []
    for entry in admin.get(f"/ledger/{population}/entries").json()["entries"]:
        if entry["kind"] in ("join", "load"):
            loads[entry["details"]["member"]["dataset"]] = float(entry["amount"])
        expected.insert(0, [str(entry["sequence"]), sum(loads.values())])
    assert expected[0][1] == 5
    browser, path = (
        signed_in(idle_server, idle_server.admin),
        f"/ui/ledger/{population}",
    )
    rows = _rows(browser.get(path).text)
    assert [[row[0], float(row[3])] for row in rows] == expected
    page = browser.get(path, params={"limit": 2, "cursor": "5"}).text
    assert [[row[0], float(row[3])] for row in _rows(page)] == [
        item for item in expected if item[0] in ("4", "3")
    ]
    searched = section(browser.get(path, params={"kind": "load"}).text, "entries")
    assert "All members after" not in searched
    assert "The running balance is shown where no entry is left out" in searched
    assert (
        admin.get(
            f"/ledger/{population}/entries", params={"scope": '{"shard": [0]}'}
        ).status_code
        == 422
    )


@on_one_idle_server
def test_an_entry_is_shown_in_words_and_as_it_was_hashed(idle_server: Server) -> None:
    dataset, job = _busy(idle_server)
    browser = signed_in(idle_server, idle_server.granted(dataset, "owner"))
    entries = idle_server.admin.http.get(f"/ledger/{dataset}/entries").json()["entries"]
    said = {
        "open": "The account was opened with a cap of 100 ε.",
        "reserve": "0.5 ε was reserved for a mechanism outside the service, attested by ",
        "charge": "A charge is final.",
        "void": f"The reservation of 0.125 ε for job {job} was given back",
        "cap": "The cap was changed to 9 ε. Reason: the board agreed",
    }
    for kind, words in said.items():
        entry = next(entry for entry in entries if entry["kind"] == kind)
        page = unescape(
            browser.get(f"/ui/ledger/{dataset}/entries/{entry['sequence']}").text
        )
        assert words in page
        assert json.loads(page.rpartition("<pre>")[2].partition("</pre>")[0]) == entry
        assert "<bdi>test admin</bdi> <code>" in page, (
            "the admin has a grant on the dataset that it declared"
        )
        assert ("The event in words" in page) == (kind == "void"), (
            "of the job; a declared loss has no event"
        )
    for sequence in (0, len(entries) + 1):
        assert (
            browser.get(f"/ui/ledger/{dataset}/entries/{sequence}").status_code == 404
        )
    assert (
        signed_in(idle_server, idle_server.granted(dataset, "analyst"))
        .get(f"/ui/ledger/{dataset}/entries/1")
        .status_code
        == 403
    )


@on_one_idle_server
def test_the_page_of_an_expiry_says_what_took_too_long(idle_server: Server) -> None:
    dataset = idle_server.uploaded()["id"]
    job = idle_server.submitted(dataset, epsilon="0.125").json()["job_id"]
    with idle_server.database.write() as session:
        row = session.get_one(JobRow, job)
        row.submitted_at = row.waits_since = row.waits_since - timedelta(
            seconds=limits.MAX_QUEUE_S + 1
        )
    assert idle_server.ended(job)["reason"] == "not-started"
    entries = idle_server.admin.http.get(f"/ledger/{dataset}/entries").json()["entries"]
    assert entries[-1]["kind"] == "expire"
    page = signed_in(idle_server, idle_server.admin).get(
        f"/ui/ledger/{dataset}/entries/{entries[-1]['sequence']}"
    )
    assert (
        f"for job {job} was given back, because no worker started the job within 24 hours."
        in unescape(page.text)
    )


@on_one_idle_server
def test_names_of_keys_are_shown_to_those_who_may_know_them(
    idle_server: Server,
) -> None:
    """An owner knows the keys with a grant on the dataset; an auditor of all datasets
    knows every key.
    """
    dataset = idle_server.declared()["id"]
    admin, other = idle_server.admin.http, idle_server.granted(dataset, "owner")
    other.http.post(
        f"/ledger/{dataset}/cap", json={"cap": "9", "reason": "less"}
    ).raise_for_status()
    admin.delete(f"/datasets/{dataset}/grants/{other.id}").raise_for_status()
    key = f'<bdi title="{other.id}">test</bdi>'
    path = f"/ui/ledger/{dataset}"
    readers = {
        role: idle_server.granted(dataset, role) for role in ("owner", "auditor")
    }
    readers |= {
        "admin": idle_server.admin,
        "auditor of all": idle_server.caller("auditor"),
    }
    knows = {
        name: key in signed_in(idle_server, reader).get(path).text
        for name, reader in readers.items()
    }
    assert knows == {
        "owner": False,
        "auditor": False,
        "admin": True,
        "auditor of all": True,
    }


@on_one_idle_server
def test_the_ledger_of_a_population_has_pages(idle_server: Server) -> None:
    name = f"people-{secrets.token_hex(4)}"
    idle_server.declared(population=name)
    population = idle_server.admin.http.get(f"/populations/{name}").json()["id"]
    browser = signed_in(idle_server, idle_server.admin)
    assert [row[1] for row in _rows(browser.get(f"/ui/ledger/{population}").text)] == [
        "join",
        "open",
    ]
    assert "became a member" in browser.get(f"/ui/ledger/{population}/entries/2").text


@on_one_idle_server
def test_amounts_of_a_ledger_may_sum_to_more_than_64_bits(idle_server: Server) -> None:
    """No balance does; but reservations that were given back are entries, too."""
    largest = limits.MAX_CAP_EPSILON
    dataset = idle_server.uploaded(
        budget={"accountant": "pure", "epsilon": str(largest)}
    )["id"]
    for _ in range(10):
        answer = idle_server.submitted(
            dataset, algorithm="mrf", epsilon=str(largest), parameters={}
        )
        idle_server.admin.http.delete(
            f"/jobs/{answer.json()['job_id']}"
        ).raise_for_status()
    rows = _rows(
        signed_in(idle_server, idle_server.admin).get(f"/ui/ledger/{dataset}").text
    )
    assert [row[3:5] for row in rows[:2]] == [["0", "0"], ["0", str(largest)]]


@on_one_idle_server
def test_the_sums_of_charges_are_those_of_the_api(idle_server: Server) -> None:
    """Four views of one number: the API, the page of sums, the balance and the page of
    the ledger.
    """
    dataset, _ = _busy(idle_server)
    admin, browser = idle_server.admin.http, signed_in(idle_server, idle_server.admin)
    spent = admin.get(f"/ledger/{dataset}/spent").json()
    balance = admin.get(f"/ledger/{dataset}").json()
    assert spent["spent"] == balance["charged"] == "2.5"
    assert spent["charged"] == spent["groups"][0]["charged"] == "2.75"
    page = text_of(browser.get(f"/ui/ledger/{dataset}/spent"))
    assert "2.75 ε in the charges that your key sees; 2.5 ε spent of the cap" in page
    assert f"{idle_server.admin.id} 3 2.75 ε 100.0 %" in page
    cells = text_of(browser.get(f"/ui/ledger/{dataset}/spent?by=cell"))
    assert "shard=0 2.5 ε 90.9 % shard=1 0.75 ε 27.3 %" in cells
    assert "is the most that one record in it was charged" in cells
    assert f"/ui/ledger/{dataset}/spent" in browser.get(f"/ui/ledger/{dataset}").text


@on_one_idle_server
def test_an_analyst_sees_the_sums_of_the_own_key(idle_server: Server) -> None:
    dataset, _ = _busy(idle_server)
    analyst = idle_server.granted(dataset, "analyst")
    page = text_of(signed_in(idle_server, analyst).get(f"/ui/ledger/{dataset}/spent"))
    assert "0 ε in the charges that your key sees; 2.5 ε spent" in page
    assert "Nothing was charged yet" in page
    other = analyst.http.get(f"/ledger/{dataset}/spent?actor=somebody")
    assert (other.status_code, other.json()["type"].rpartition("/")[2]) == (
        403,
        "role-missing",
    )


@on_one_idle_server
def test_an_analyst_reads_the_entries_of_what_the_own_key_submitted(
    idle_server: Server,
) -> None:
    dataset, job = _busy(idle_server)
    analyst = idle_server.granted(dataset, "analyst")
    pages, entries = signed_in(idle_server, analyst), f"/ledger/{dataset}/entries"
    assert analyst.http.get(entries).json()["entries"] == []
    assert "No entry matches" in pages.get(f"/ui/ledger/{dataset}").text

    submission = analyst.http.post(
        "/train", json=training(dataset), headers=new_idempotency_key()
    )
    own = submission.json()["job_id"]
    listed = analyst.http.get(entries).json()
    assert [(it["kind"], it["job_id"]) for it in listed["entries"]] == [
        ("reserve", own)
    ]
    assert listed["actors"] == {analyst.id: "test"}
    for other in (f"?job={job}", "?kind=cap", "?kind=open"):
        assert analyst.http.get(entries + other).json()["entries"] == []
    of_others = analyst.http.get(f"{entries}?actor={idle_server.admin.id}")
    assert of_others.status_code == 403

    page = pages.get(f"/ui/ledger/{dataset}").text
    assert [row[0].strip() for row in _rows(page)] == [
        str(listed["entries"][0]["sequence"])
    ]
    assert "Those of what your key submitted" in page
    for denied in ("report", "export", "checkpoint", "entries/1"):
        assert f"/ui/ledger/{dataset}/{denied}" not in page
        assert pages.get(f"/ui/ledger/{dataset}/{denied}").status_code == 403
