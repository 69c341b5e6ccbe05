"""Verifications that auditors state, and the service's own: whose word each is, up to
which entry it reaches, and what no statement may hide.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from tests.support.pages import signed_in, text_of
from tests.support.server import Caller, Server


def _state(client: Caller, dataset: str, **stated: object) -> httpx.Response:
    answer: httpx.Response = client.http.put(
        f"/ledger/{dataset}/verification", json=stated
    )
    return answer


def _checkpoint(server: Server, dataset: str) -> str:
    return str(server.admin.http.get(f"/ledger/{dataset}/checkpoint").text)


def _shown(server: Server, dataset: str) -> list[dict[str, Any]]:
    """The verifications of an account, which every answer with its balance has."""
    shown: list[dict[str, Any]] = server.admin.http.get(f"/ledger/{dataset}").json()[
        "verifications"
    ]
    listed = server.admin.http.get("/ledger?limit=500").json()["datasets"]
    [balance] = [item for item in listed if item["dataset"] == dataset]
    assert balance["verifications"] == shown
    return shown


def _grow(server: Server, dataset: str) -> None:
    """Appends an entry to an account."""
    lower = {"cap": "9", "reason": "a test"}
    server.admin.http.post(f"/ledger/{dataset}/cap", json=lower).raise_for_status()


def test_a_verification_reaches_to_its_checkpoint_and_says_what_came_since(
    idle_server: Server,
) -> None:
    dataset = idle_server.declared()["id"]
    assert _shown(idle_server, dataset) == []
    auditor = idle_server.granted(dataset, "auditor")
    export = idle_server.admin.http.get(f"/ledger/{dataset}/export").content
    note = _checkpoint(idle_server, dataset)
    stated = _state(auditor, dataset, verdict="VERIFIED", checkpoint=note)
    assert stated.status_code == 200, stated.text
    [shown] = _shown(idle_server, dataset)
    assert stated.json() == {"verifications": [shown]}
    assert (shown["verdict"], shown["by"], shown["checkpoint"]) == (
        "VERIFIED", auditor.id, note,
    )  # fmt: skip
    assert shown["by_name"], "who states a result is named"
    assert (shown["entries"], shown["entries_since"]) == (1, 0)
    again = idle_server.admin.http.get(f"/ledger/{dataset}/export").content
    assert again == export, "a verification is no entry"
    _grow(idle_server, dataset)
    [shown] = _shown(idle_server, dataset)
    assert (shown["entries"], shown["entries_since"]) == (1, 1)
    browser = signed_in(idle_server, auditor)
    for place in ("ledger", "datasets"):
        page = text_of(browser.get(f"/ui/{place}/{dataset}").raise_for_status())
        said = f"VERIFIED up to entry 1, as {shown['by_name']} states"
        assert said in page, place
        assert "1 entry since" in page, place


def test_only_an_auditor_states_a_verification(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    for role in ("owner", "attester", "analyst"):
        refused = _state(
            idle_server.granted(dataset, role), dataset, verdict="NOT VERIFIED"
        )
        assert (refused.status_code, refused.json()["type"]) == (403, "role-missing")
    assert _shown(idle_server, dataset) == []
    # an administrator has every role
    assert _state(idle_server.admin, dataset, verdict="NOT VERIFIED").is_success


def test_a_verification_is_about_entries_of_this_account(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    other = idle_server.declared()["id"]
    auditor = idle_server.granted(dataset, "auditor")
    [header, entry] = [
        json.loads(line)
        for line in idle_server.admin.http.get(
            f"/ledger/{dataset}/export"
        ).text.splitlines()
    ]
    assert header["kind"] == "export"
    note = _checkpoint(idle_server, dataset)
    forged = note.replace("\n1\n", "\n2\n")
    for stated, at in (
        ({"verdict": "VERIFIED"}, "/checkpoint"),
        ({"verdict": "VERIFIED", "checkpoint": forged}, "/checkpoint"),
        ({"verdict": "VERIFIED", "checkpoint": note + "x"}, "/checkpoint"),
        (
            {"verdict": "VERIFIED", "checkpoint": _checkpoint(idle_server, other)},
            "/checkpoint",
        ),
        ({"verdict": "CONSISTENT"}, "/last_hash"),
        (
            {"verdict": "CONSISTENT", "last_hash": hashlib.sha256(b"").hexdigest()},
            "/last_hash",
        ),
        (
            {"verdict": "CONSISTENT", "entries": 2, "last_hash": entry["hash"]},
            "/entries",
        ),
        ({"verdict": "PROVED"}, "/verdict"),
    ):
        refused = _state(auditor, dataset, **stated)
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["at"] == at
    assert _shown(idle_server, dataset) == []
    _grow(idle_server, dataset)
    bounded = _state(
        auditor,
        dataset,
        verdict="CONSISTENT (bounded)",
        entries=1,
        last_hash=entry["hash"],
    )
    assert bounded.status_code == 200, bounded.text
    [shown] = _shown(idle_server, dataset)
    assert (shown["entries"], shown["entries_since"], shown["checkpoint"]) == (
        1, 1, None,
    )  # fmt: skip


def test_nobody_else_hides_a_failure(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    first, second = (idle_server.granted(dataset, "auditor") for _ in range(2))
    note = _checkpoint(idle_server, dataset)
    verified = {"verdict": "VERIFIED", "checkpoint": note}
    assert _state(first, dataset, verdict="NOT VERIFIED").status_code == 200
    assert _state(second, dataset, **verified).status_code == 200
    report = signed_in(idle_server, second).get(f"/ui/ledger/{dataset}/report")
    assert report.status_code == 200, "the service verifies, too"
    failed, service, auditor = _shown(idle_server, dataset)
    assert (failed["verdict"], failed["by"]) == ("NOT VERIFIED", first.id)
    assert (failed["entries"], failed["entries_since"]) == (None, None)
    assert (service["by"], service["by_name"]) == (None, None)
    assert (service["verdict"], service["entries"]) == ("VERIFIED", 1)
    assert service["checkpoint"].startswith(f"grovekeeper/ledger/{dataset}\n1\n")
    assert auditor["by"] == second.id
    _state(first, dataset, **verified).raise_for_status()
    shown = _shown(idle_server, dataset)
    assert [item["verdict"] for item in shown] == ["VERIFIED"] * 3
    assert [item["by"] for item in shown] == [first.id, None, second.id]


def test_a_command_verifies_here_and_states_what_it_found(
    idle_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = idle_server.declared()["id"]
    auditor = idle_server.granted(dataset, "auditor")
    monkeypatch.setenv("GROVEKEEPER_URL", idle_server.url)
    monkeypatch.setenv("GROVEKEEPER_API_KEY", auditor.key)
    verify = ["ledger", "verify", dataset]
    silent = CliRunner().invoke(grovekeeper, verify)
    assert silent.exit_code == 0, silent.output
    assert silent.stdout.startswith("VERIFIED: A checkpoint of ")
    assert "not stated to the service: an auditor adds --state" in silent.stdout
    assert _shown(idle_server, dataset) == [], "nothing is stated unasked"
    CliRunner().invoke(grovekeeper, [*verify, "--state"])
    [shown] = _shown(idle_server, dataset)
    assert (shown["verdict"], shown["entries"]) == ("VERIFIED", 1)
    another = Ed25519PrivateKey.generate().public_key()
    kept = tmp_path / "kept.pem"
    kept.write_bytes(
        another.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    wrong = [*verify, "--public-key", str(kept), "--state", "--json"]
    failed = CliRunner().invoke(grovekeeper, wrong)
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["verdict"] == "NOT VERIFIED"
    [shown] = _shown(idle_server, dataset)
    assert (shown["verdict"], shown["by"]) == ("NOT VERIFIED", auditor.id)
    kept.write_text("no key")
    unread = CliRunner().invoke(grovekeeper, wrong)
    assert unread.exit_code == 2
    assert _shown(idle_server, dataset) == [shown], "nothing was checked"
