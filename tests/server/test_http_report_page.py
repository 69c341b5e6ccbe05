"""The auditor's report of an account over HTTP: its facts, and what the verifier says
about the export.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from app.ledger.tables import Entry
from app.services.ledger import evidence
from app.services.ledger.history import json_lines
from tests.support.databases import on_one_idle_server
from tests.support.estate import with_unit
from tests.support.operations import EXTERNAL
from tests.support.pages import signed_in, text_of
from tests.support.server import Server, new_idempotency_key
from tests.support.set_limits import SetLimit

pytestmark = on_one_idle_server


def _charged(server: Server, **changes: object) -> str:
    """A dataset with an external charge and a lowered cap."""
    dataset: str = server.uploaded(**changes)["id"]
    admin = server.admin.http
    path = f"/ledger/{dataset}"
    answer = admin.post(
        f"{path}/reservations", json=EXTERNAL, headers=new_idempotency_key()
    )
    assert answer.status_code == 201, answer.text
    admin.post(
        f"{path}/cap", json={"cap": "9", "reason": "the board asked for less"}
    ).raise_for_status()
    return dataset


def test_the_report_has_the_facts_of_the_ledger_and_is_verified(
    idle_server: Server,
) -> None:
    dataset = _charged(idle_server)
    report = text_of(
        signed_in(idle_server, idle_server.granted(dataset, "auditor")).get(
            f"/ui/ledger/{dataset}/report"
        )
    )
    assert "VERIFIED: the verifier recomputed 4 entries" in report
    balance = idle_server.admin.http.get(f"/ledger/{dataset}").json()
    for fact in (
        f"Charged {balance['charged']} ε", "Cap now 9 ε", "Highest cap ever 100 ε", "External charges 1, for",
        "Reason: the board asked for less", "outside the service, as attested: a mean",
        balance["guarantee"]["text"], "Organised after the questions of NIST SP 800-226",
        f"grovekeeper/ledger/{dataset} 4 ",
    ):  # fmt: skip
        assert fact in report, fact
    assert "compliant" not in report.lower()


def test_the_first_page_lists_who_has_access_and_what_was_erased_since_a_day(
    idle_server: Server,
) -> None:
    dataset = with_unit(idle_server)
    owner = idle_server.granted(dataset, "owner")
    erased = owner.http.post(f"/datasets/{dataset}/erasures", json={"unit": "ann"})
    assert erased.status_code == 200, erased.text
    browser = signed_in(idle_server, owner)
    report = text_of(browser.get(f"/ui/ledger/{dataset}/report"))
    first_page, _, annex = report.partition("Annex")
    assert f"{owner.id} owner" in first_page
    assert "Erased the rows of one privacy unit" in first_page
    assert "Nothing was charged yet." in first_page
    assert "Read by" in first_page
    assert "1. What is promised, and to whom" in annex
    later = text_of(
        browser.get(f"/ui/ledger/{dataset}/report", params={"since": "2999-01-01"})
    )
    assert "Releases and acts since 2999-01-01." in later
    assert "Erased the rows of one privacy unit" not in later
    wrong = browser.get(f"/ui/ledger/{dataset}/report", params={"since": "yesterday"})
    assert wrong.status_code == 422


def test_the_report_of_a_population_names_its_members(idle_server: Server) -> None:
    name = f"people-{secrets.token_hex(4)}"
    dataset = _charged(idle_server, population=name)
    population = idle_server.admin.http.get(f"/populations/{name}").json()["id"]
    report = text_of(
        signed_in(idle_server, idle_server.admin).get(f"/ui/ledger/{population}/report")
    )
    assert "VERIFIED: the verifier recomputed" in report
    assert f"{dataset} 0.001 ε" in report


def test_a_report_says_where_the_export_is_not_verified(
    idle_server: Server, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    def altered(header: Mapping[str, Any], entries: Iterable[Entry]) -> Iterator[bytes]:
        return (line.replace(b"less", b"more") for line in json_lines(header, entries))

    dataset = _charged(idle_server)
    browser, path = (
        signed_in(idle_server, idle_server.admin),
        f"/ui/ledger/{dataset}/report",
    )
    monkeypatch.setattr(evidence, "json_lines", altered)
    report = text_of(browser.get(path))
    assert "NOT VERIFIED: " in report
    assert "(line 5 of the export)" in report
    assert "recomputed" not in report.partition("(line 5 of the export)")[0]
    assert "/dev/fd" not in report
    set_limit("MAX_VERIFIED_ENTRIES", 3)
    report = text_of(browser.get(path))
    assert "Not verified here: the ledger has 4 entries." in report
    assert (
        "grovekeeper verify ledger.jsonl --checkpoint checkpoint.txt --public-key signer.pem"
        in report
    )


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (
            {"verified": True, "verdict": "VERIFIED"},
            "VERIFIED: the verifier recomputed",
        ),
        (
            {"verified": True, "verdict": "VERIFIED (bounded)"},
            "VERIFIED (bounded): the verifier recomputed",
        ),
        (
            {
                "verified": False,
                "verdict": "NOT VERIFIED",
                "line": None,
                "reason": "a root",
            },
            "NOT VERIFIED: a root",
        ),
        (
            {
                "verified": False,
                "verdict": "UNREADABLE",
                "line": None,
                "reason": "a file",
            },
            "UNREADABLE: a file",
        ),
        (None, "Not verified here: the ledger has"),
    ],
)
def test_the_first_words_of_a_report_are_the_verdict_of_the_verifier(
    idle_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    result: dict[str, Any] | None,
    shown: str,
) -> None:
    dataset = idle_server.declared()["id"]
    note = {} if result is None else {"note": "a note"}
    monkeypatch.setattr(evidence, "_run", lambda *_: result and {**result, **note})
    report = text_of(
        signed_in(idle_server, idle_server.admin).get(f"/ui/ledger/{dataset}/report")
    )
    assert shown in report
    words = (
        "VERIFIED: ",
        "VERIFIED (bounded): ",
        "UNREADABLE: ",
        "Not verified here: ",
    )
    assert sum(report.count(word) for word in words) == 1


def test_a_report_is_for_readers_of_the_ledger(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    path = f"/ui/ledger/{dataset}/report"
    answers = {
        role: signed_in(idle_server, idle_server.granted(dataset, role))
        .get(path)
        .status_code
        for role in ("owner", "auditor", "analyst", "predictor")
    }
    assert answers == {"owner": 200, "auditor": 200, "analyst": 403, "predictor": 403}
    assert signed_in(idle_server, idle_server.caller()).get(path).status_code == 404
