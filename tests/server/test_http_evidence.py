"""Checkpoints and proofs of a real server, checked by the verifier alone; a restored
database is refused.
"""

import shutil
import time
from pathlib import Path

import httpx
import pytest

from app.api.main import create_app
from app.cli.serve import ApiThread, bound
from app.ledger.checkpoints import Checkpoint, Signer
from tests.support.databases import on_one_idle_server
from tests.support.processes import fetched
from tests.support.server import Server
from tests.support.standalone import verified_alone

BEYOND = "9" * 15


@pytest.fixture
def ledger(idle_server: Server) -> tuple[Server, str]:
    """A dataset whose account has seven entries: the opening, and three cancelled jobs."""
    dataset = str(idle_server.uploaded()["id"])
    for _ in range(3):
        _submit_and_cancel(idle_server, dataset)
    return idle_server, dataset


def _submit_and_cancel(server: Server, dataset: str) -> None:
    """Appends two entries, and leaves no job in the queue that other tests share."""
    job_id = server.submitted(dataset).json()["job_id"]
    assert server.admin.http.delete(f"/jobs/{job_id}").status_code == 200


def _get(server: Server, path: str) -> httpx.Response:
    answer: httpx.Response = server.admin.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer


def _taken(server: Server, dataset: str, folder: Path) -> list[object]:
    """The newest checkpoint and the public key, as arguments of the verifier."""
    (folder / "note").write_text(_get(server, f"/ledger/{dataset}/checkpoint").text)
    (folder / "key").write_text(_get(server, "/signer").json()["public_key"])
    return ["--checkpoint", folder / "note", "--public-key", folder / "key"]


@on_one_idle_server
def test_an_export_is_held_to_a_checkpoint(
    ledger: tuple[Server, str], tmp_path: Path
) -> None:
    server, dataset = ledger
    answer = _get(server, f"/ledger/{dataset}/checkpoint")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    evidence = _taken(server, dataset, tmp_path)
    export = tmp_path / "export.jsonl"
    export.write_bytes(_get(server, f"/ledger/{dataset}/export").content)
    result = verified_alone(export, *evidence)
    assert (result["exit"], result["checkpoints"][0]["size"]) == (0, 7)
    lines = export.read_bytes().splitlines(keepends=True)
    export.write_bytes(b"".join(lines[:-1]))
    assert verified_alone(export)["exit"] == 0, "alone, the cut is not seen"
    result = verified_alone(export, *evidence)
    assert (result["exit"], "the export was truncated" in result["reason"]) == (1, True)


@on_one_idle_server
def test_proofs_of_every_entry_and_every_beginning_hold(
    ledger: tuple[Server, str], tmp_path: Path
) -> None:
    server, dataset = ledger
    evidence = _taken(server, dataset, tmp_path)
    proof = tmp_path / "proof.json"
    for sequence in (1, 4, 7):
        proof.write_bytes(
            _get(server, f"/ledger/{dataset}/proofs?sequence={sequence}").content
            + b"\n"
        )
        assert verified_alone(proof, *evidence)["exit"] == 0
    shutil.copy(tmp_path / "note", tmp_path / "earlier")
    _submit_and_cancel(server, dataset)
    evidence = [
        *_taken(server, dataset, tmp_path),
        "--checkpoint",
        tmp_path / "earlier",
    ]
    proof.write_bytes(
        _get(server, f"/ledger/{dataset}/proofs?from_size=7").content + b"\n"
    )
    assert verified_alone(proof, *evidence)["exit"] == 0
    proof.write_bytes(
        _get(server, f"/ledger/{dataset}/proofs?sequence=2&size=7").content + b"\n"
    )
    assert verified_alone(proof, *evidence)["exit"] == 0


@on_one_idle_server
@pytest.mark.parametrize(
    ("query", "at", "problem"),
    [
        ("", "/sequence", "give-sequence-or-from-size"),
        ("?sequence=1&from_size=1", "/sequence", "give-sequence-or-from-size"),
        ("?size=1", "/sequence", "give-sequence-or-from-size"),
        ("?sequence=8", "/sequence", "out-of-range"),
        (f"?sequence={BEYOND}", "/sequence", "out-of-range"),
        ("?sequence=1&size=8", "/size", "out-of-range"),
        ("?sequence=3&size=2", "/sequence", "out-of-range"),
        ("?from_size=8", "/from_size", "out-of-range"),
        ("?from_size=3&size=2", "/from_size", "out-of-range"),
    ],
)
def test_a_proof_of_a_missing_entry_is_an_invalid_request(
    ledger: tuple[Server, str], query: str, at: str, problem: str
) -> None:
    server, dataset = ledger
    answer = server.admin.http.get(f"/ledger/{dataset}/proofs{query}")
    assert (answer.status_code, answer.json()["errors"]) == (
        422,
        [{"at": at, "problem": problem}],
    )


@on_one_idle_server
@pytest.mark.parametrize(
    "query",
    ["?sequence=0", "?sequence=-1", "?sequence=x", f"?size={'9' * 30}&sequence=1"],
)
def test_a_count_out_of_form_is_a_broken_rule(
    ledger: tuple[Server, str], query: str
) -> None:
    server, dataset = ledger
    assert server.admin.http.get(f"/ledger/{dataset}/proofs{query}").status_code == 422


@on_one_idle_server
def test_the_acts_are_exported_with_a_signed_head_and_verify(
    ledger: tuple[Server, str], tmp_path: Path
) -> None:
    server, _ = ledger
    export, note, key = tmp_path / "export", tmp_path / "note", tmp_path / "key"
    export.write_bytes(_get(server, "/audit/export").content)
    note.write_text(_get(server, "/audit/checkpoint").text, encoding="utf-8")
    key.write_text(_get(server, "/signer").json()["public_key"])
    result = verified_alone(export, "--checkpoint", note, "--public-key", key)
    assert (result["exit"], result["log"]) == (0, "control")
    assert result["entries"] == len(export.read_bytes().splitlines()) - 1
    assert result["kinds"].keys() >= {
        "open",
        "key-made",
        "signer-pinned",
        "dataset-declared",
    }
    lines = export.read_bytes().splitlines(keepends=True)
    export.write_bytes(b"".join(lines[:-1]))
    assert (
        verified_alone(export, "--checkpoint", note, "--public-key", key)["exit"] == 1
    )


def test_a_server_beside_a_longer_head_answers_nothing_but_its_health(
    idle_server: Server, tmp_path: Path
) -> None:
    """The head file has entries that the database lacks, as after a restore of an older
    backup.
    """
    home = tmp_path / "home"
    shutil.copytree(
        idle_server.settings.home, home, ignore=shutil.ignore_patterns("*.sqlite3*")
    )
    gone = Checkpoint("ds_gone", 5, bytes(32), "2026-11-20T10:00:00.000000Z")
    note = Signer.open(home / "signing.key", make=False).sign(gone)
    (home / "checkpoints" / "ds_gone.checkpoint").write_text(note, encoding="utf-8")
    url = idle_server.settings.database_url
    settings = type(idle_server.settings)(home=home, database_url=url)
    with bound("127.0.0.1", 0) as listener:
        app = create_app(settings)
        api = ApiThread(app, listener)
        api.start()
        try:
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            _until_it_listens(address)
            ready = fetched(f"{address}/readyz")
            assert (ready.status_code, ready.json()["type"]) == (503, "unavailable")
            assert "ds_gone" not in ready.text
            # a backup revives revoked keys
            for path in ("/ledger", "/models/md_a", "/models/md_a/artifact"):
                requested = fetched(f"{address}{path}", idle_server.admin.key)
                assert requested.status_code == 503, path
            assert fetched(f"{address}/healthz").status_code == 200
        finally:
            api.begin_stop()
            api.join()
            app.state.installation.close()


def _until_it_listens(address: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            fetched(f"{address}/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError("the server does not listen")
