"""Exports and proofs against checkpoints: cut exports, rewritten histories and forged
signatures are found.
"""

import base64
import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.ledger import checkpoints
from app.ledger.checkpoints import Checkpoint, Signer
from grovekeeper_verifier.main import Evidence, main, run
from grovekeeper_verifier.result_text import NO_CHECKPOINT
from tests.support.subtrees import subtrees

Export = Callable[..., Any]
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
AT = "2026-11-20T10:00:00.000000Z"


class Case:
    """An export of nine entries in a folder, and the notes that are signed for it."""

    def __init__(self, writer: Any, folder: Path) -> None:
        self.writer, self.folder = writer, folder
        self.export = folder / "export.jsonl"
        self.key = folder / "key.pem"
        self.key.write_text(Signer(KEY).public_pem)
        self.write(writer.lines())

    def write(self, lines: list[bytes]) -> None:
        self.export.write_bytes(b"".join(lines))

    def note(
        self, size: int, *, account: str = "ds_test", key: Ed25519PrivateKey = KEY
    ) -> str:
        return Signer(key).sign(
            Checkpoint(
                account,
                size,
                checkpoints.root_of(size, subtrees(self.writer.entries)),
                AT,
            )
        )

    def checkpoint(self, size: int, *, name: str = "", text: str | None = None) -> Path:
        file = self.folder / f"{name or size}.checkpoint"
        file.write_text(self.note(size) if text is None else text)
        return file

    def proof(self, kind: str, **changes: object) -> Path:
        size = 9
        path = (
            checkpoints.inclusion(4, size, subtrees(self.writer.entries))
            if kind == "inclusion"
            else None
        )
        path = (
            path
            if path is not None
            else checkpoints.consistency(6, size, subtrees(self.writer.entries))
        )
        facts: dict[str, object] = {"sequence": 5, "entry": self.writer.entries[4]}
        facts = facts if kind == "inclusion" else {"from_size": 6}
        proof = {
            "kind": kind,
            "origin": "grovekeeper/ledger/ds_test",
            "size": size,
            "path": [p.hex() for p in path],
        }
        file = self.folder / "proof.json"
        file.write_text(json.dumps({**proof, **facts, **changes}) + "\n")
        return file

    def check(self, file: Path, *checkpoints: Path, key: Path | None = None) -> int:
        return run(file, Evidence(checkpoints, key or self.key), as_json=True)


@pytest.fixture
def case(export: Export, tmp_path: Path) -> Case:
    writer = export(cap="9", shards=2)
    for number in range(4):
        writer.job(f"jb_{number}", "1")
    return Case(writer, tmp_path)


def _answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_an_export_that_its_checkpoint_covers_says_that_nothing_is_missing(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    assert case.check(case.export, case.checkpoint(9)) == 0
    answer = _answer(capsys)
    assert answer["checkpoints"] == [{"size": 9, "at": AT}]
    assert "covers all 9 entries" in answer["note"]


def test_an_older_checkpoint_covers_a_beginning_and_says_so(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    assert case.check(case.export, case.checkpoint(6), case.checkpoint(1)) == 0
    answer = _answer(capsys)
    assert [item["size"] for item in answer["checkpoints"]] == [1, 6]
    assert "covers the first 6 of 9 entries" in answer["note"]


def test_without_a_checkpoint_the_output_names_what_is_not_checked(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(case.export, as_json=True) == 0
    assert _answer(capsys)["note"] == NO_CHECKPOINT


@pytest.mark.parametrize("kept", range(1, 9))
def test_a_truncated_export_is_detected(
    case: Case, capsys: pytest.CaptureFixture[str], kept: int
) -> None:
    signed = [case.checkpoint(size) for size in (1, 9)]
    case.write(case.writer.lines()[: kept + 1])
    assert case.check(case.export, *signed) == 1
    result = _answer(capsys)
    assert (
        result["reason"]
        == f"the export was truncated: it ends with entry {kept}, a checkpoint covers 9"
    )
    assert result["line"] == kept + 2


@pytest.mark.parametrize("index", range(1, 9))
@pytest.mark.parametrize("field", ["actor", "at", "amount"])
def test_a_history_that_was_rewritten_with_its_whole_chain_is_found(
    case: Case,
    rechained: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    index: int,
    field: str,
) -> None:
    """Without a checkpoint a rewritten history verifies: it is consistent, though not
    the true history.
    """
    signed = [case.checkpoint(size) for size in (1, 9)]
    entries = copy.deepcopy(case.writer.entries)
    later = {
        "actor": "key_other",
        "at": entries[min(index + 1, 8)]["at"],
        "amount": "0.5",
    }
    for entry in entries:
        if entry is entries[index] or (
            field == "amount" and entry["job_id"] == entries[index]["job_id"]
        ):
            entry[field] = (
                later[field]
                if field != "at" or index < 8
                else "2026-11-21T09:00:00.000000Z"
            )
    case.writer.entries = rechained(entries)
    case.write(case.writer.lines())
    assert run(case.export, as_json=True) == 0
    capsys.readouterr()
    assert case.check(case.export, *signed) == 1
    result = _answer(capsys)
    assert (
        result["line"],
        "are not those whose root was signed" in result["reason"],
    ) == (10, True)


def test_of_several_checkpoints_the_first_that_does_not_hold_is_named(
    case: Case, rechained: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = [case.checkpoint(size) for size in (9, 3, 6)]
    entries = copy.deepcopy(case.writer.entries)
    entries[4]["actor"] = "key_other"
    case.writer.entries = rechained(entries)
    case.write(case.writer.lines())
    assert case.check(case.export, *checkpoints) == 1
    assert _answer(capsys)["line"] == 7


def test_a_checkpoint_of_another_account_is_found(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    other = case.checkpoint(9, text=case.note(9, account="ds_other"))
    assert case.check(case.export, other) == 1
    assert (
        _answer(capsys)["reason"]
        == "a checkpoint belongs to a log of which no export is given"
    )


def _other_signature(note: str) -> str:
    head, _, encoded = note.rpartition(" ")
    signature = bytearray(base64.b64decode(encoded))
    signature[-1] ^= 1
    return f"{head} {base64.b64encode(signature).decode()}\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda note: note.replace("\n9\n", "\n8\n"), "signature is invalid"),
        (lambda note: note.replace("ds_test", "ds_tess"), "signature is invalid"),
        (
            lambda note: note.replace(AT, "2026-11-20T11:00:00.000000Z"),
            "signature is invalid",
        ),
        (_other_signature, "signature is invalid"),
        (lambda note: note.replace("— grovekeeper", "— another"), "another key"),
    ],
)
def test_a_note_that_was_changed_is_found(
    case: Case,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[str], str],
    reason: str,
) -> None:
    assert case.check(case.export, case.checkpoint(9, text=change(case.note(9)))) == 1
    assert reason in _answer(capsys)["reason"]


@pytest.mark.parametrize(
    "change",
    [
        lambda note: note.replace("\n9\n", "\n9\nmore\n"),
        lambda note: note.replace("\n9\n", "\n09\n"),
        lambda note: note[: len(note) // 2],
        lambda note: f"{note}no signature\n",
        lambda note: note.partition("\n\n")[0],
        lambda note: note.replace("\n", "\r"),
        lambda _: "",
        lambda _: "any other file\n",
    ],
)
def test_a_file_that_is_no_checkpoint_checks_nothing(
    case: Case, capsys: pytest.CaptureFixture[str], change: Callable[[str], str]
) -> None:
    assert case.check(case.export, case.checkpoint(9, text=change(case.note(9)))) == 2
    answer = _answer(capsys)
    assert (answer["verified"], answer["verdict"]) == (False, "UNREADABLE")
    assert "9.checkpoint is not a checkpoint: " in answer["reason"]


CHANGES_OF_LINE_ENDS: list[Callable[[bytes], bytes]] = [
    lambda content: content.replace(b"\n", b"\r\n"),
    lambda content: content[:-1],
    lambda content: content.replace(b"\n", b"\r\n")[:-2],
    lambda content: content + b"\n",
    lambda content: content.replace(b"\n", b"\r\n") + b"\r\n",
    lambda content: b"\xef\xbb\xbf" + content,
]


@pytest.mark.parametrize("change", CHANGES_OF_LINE_ENDS)
def test_mail_git_and_editors_change_line_ends_and_no_verdict(
    case: Case, capsys: pytest.CaptureFixture[str], change: Callable[[bytes], bytes]
) -> None:
    checkpoint = case.checkpoint(9)
    for file in (case.export, checkpoint):
        file.write_bytes(change(file.read_bytes()))
    assert case.check(case.export, checkpoint) == 0
    assert _answer(capsys)["checkpoints"] == [{"size": 9, "at": AT}]
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"ds_test", b"ds_tess"))
    assert case.check(case.export, checkpoint) == 1
    assert "signature is invalid" in _answer(capsys)["reason"]


def test_a_note_of_another_key_is_found(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
    assert (
        case.check(case.export, case.checkpoint(9, text=case.note(9, key=other))) == 1
    )
    assert "another key" in _answer(capsys)["reason"]


def test_the_key_may_be_given_as_one_line(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = tmp_path / "key.txt"
    line.write_text(Signer(KEY).verifier_key + "\n")
    assert case.check(case.export, case.checkpoint(9), key=line) == 0
    line.write_text(
        "\ufeff" + Signer(KEY).verifier_key + "\r\n\r\n", encoding="utf-8", newline=""
    )
    note = case.checkpoint(9)
    note.write_bytes(b"\xef\xbb\xbf" + note.read_bytes())
    assert case.check(case.export, note, key=line) == 0
    capsys.readouterr()


def test_an_unreadable_or_missing_key_file_exits_with_2(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad"
    private = KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for content in (b"", b"canary", private, b"grovekeeper+00000000+AQ==\n"):
        bad.write_bytes(content)
        assert case.check(case.export, case.checkpoint(9), key=bad) == 2
    assert case.check(case.export, tmp_path / "absent") == 2
    assert case.check(case.export, case.checkpoint(9), key=tmp_path / "absent") == 2
    assert case.check(case.proof("inclusion")) == 2
    printed = capsys.readouterr()
    assert [json.loads(line)["verified"] for line in printed.out.splitlines()] == [
        False
    ] * 7
    assert "canary" not in printed.out + printed.err


def test_a_key_without_a_checkpoint_or_the_reverse_is_invalid_usage(case: Case) -> None:
    for arguments in (
        ["--public-key", str(case.key)],
        ["--checkpoint", str(case.checkpoint(9))],
    ):
        with pytest.raises(SystemExit) as ended:
            main([str(case.export), *arguments])
        assert ended.value.code == 2


def test_proofs_say_what_they_show(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        str(case.proof("inclusion")),
        "--checkpoint",
        str(case.checkpoint(9)),
        "--public-key",
        str(case.key),
    ]
    assert main(arguments) == 0
    assert (
        capsys.readouterr().out
        == f"VERIFIED\nEntry 5 is in the log of 9 entries that was signed at {AT}.\n"
    )
    assert (
        case.check(case.proof("consistency"), case.checkpoint(9), case.checkpoint(6))
        == 0
    )
    assert "begins with the log of 6" in _answer(capsys)["statement"]


INCLUSION_CHANGES: list[dict[str, object]] = [
    {"size": 0}, {"size": True}, {"sequence": 4}, {"sequence": 10}, {"sequence": "5"}, {"path": []},
    {"path": ["00" * 32] * 4}, {"path": ["0"] * 4}, {"path": "00"}, {"path": ["00" * 32] * 200},
    {"entry": {}}, {"entry": None}, {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize("changes", INCLUSION_CHANGES)
def test_a_changed_proof_of_inclusion_shows_nothing(
    case: Case, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    assert case.check(case.proof("inclusion", **changes), case.checkpoint(9)) == 1
    assert _answer(capsys)["verified"] is False


def test_an_inclusion_proof_of_a_changed_entry_fails(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    for rehash in (False, True):
        for field, value in {
            "amount": "0.1",
            "actor": "key_other",
            "scope": {"shard": [0]},
            "sequence": 6,
        }.items():
            entry = {**case.writer.entries[4], field: value}
            if rehash:
                content = {name: item for name, item in entry.items() if name != "hash"}
                text = json.dumps(
                    content, sort_keys=True, separators=(",", ":"), ensure_ascii=False
                )
                entry["hash"] = hashlib.sha256(text.encode()).hexdigest()
            assert (
                case.check(case.proof("inclusion", entry=entry), case.checkpoint(9))
                == 1
            )
            capsys.readouterr()


CONSISTENCY_CHANGES: list[dict[str, object]] = [
    {"from_size": 5}, {"from_size": 9}, {"from_size": 10}, {"size": 6}, {"path": []}, {"path": ["00" * 32] * 4},
    {"sequence": 1},
]  # fmt: skip


@pytest.mark.parametrize("changes", CONSISTENCY_CHANGES)
def test_a_changed_proof_of_consistency_shows_nothing(
    case: Case, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    proof = case.proof("consistency", **changes)
    assert case.check(proof, *(case.checkpoint(size) for size in (5, 6, 9))) == 1
    assert _answer(capsys)["verified"] is False


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 8},
        {"from_size": 4},
        {"origin": "grovekeeper/ledger/ds_other"},
        {"origin": None},
    ],
)
def test_a_proof_without_its_checkpoint_is_not_checked(
    case: Case, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    proof = case.proof("consistency", **changes)
    assert case.check(proof, *(case.checkpoint(size) for size in (6, 9))) == 2
    answer = _answer(capsys)
    assert answer["verified"] is False
    assert answer["reason"].endswith("entries: add --checkpoint FILE")


def test_a_fork_is_found_by_two_checkpoints_of_one_size(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    first = case.checkpoint(9)
    case.writer.entries[-1]["hash"] = "0" * 64
    second = case.checkpoint(9, name="fork")
    case.writer.entries = case.writer.entries[:-1]
    proof = case.folder / "same.json"
    proof.write_text(
        json.dumps(
            {
                "kind": "consistency",
                "origin": "grovekeeper/ledger/ds_test",
                "from_size": 9,
                "size": 9,
                "path": [],
            }
        )
        + "\n"
    )
    assert case.check(proof, first, second) == 1
    assert "contradict each other" in _answer(capsys)["reason"]


def test_signatures_of_witnesses_on_a_checkpoint_are_ignored(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """A signed note may carry signatures of other keys, before and after the log's
    signature.
    """
    body, own = case.note(9).split("\n\n")
    witness = Signer(Ed25519PrivateKey.from_private_bytes(b"w" * 32))
    theirs = witness.sign(Checkpoint("ds_test", 9, b"r" * 32, AT)).split("\n\n")[1]
    elsewhere = "— witness.example/w1 AAAAAAAA\n"
    for signatures in (own + theirs, theirs + own, elsewhere + own + theirs, own + own):
        assert (
            case.check(case.export, case.checkpoint(9, text=f"{body}\n\n{signatures}"))
            == 0
        ), signatures
        assert _answer(capsys)["checkpoints"] == [{"size": 9, "at": AT}]


def test_signatures_of_others_do_not_stand_in_for_the_logs_own(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    body, own = case.note(9).split("\n\n")
    other = Signer(Ed25519PrivateKey.from_private_bytes(b"w" * 32)).sign(
        Checkpoint(
            "ds_test", 9, checkpoints.root_of(9, subtrees(case.writer.entries)), AT
        )
    )
    theirs = other.split("\n\n")[1]
    forged = base64.b64decode(own.split()[2])[:4] + b"x" * 64
    broken = f"— grovekeeper {base64.b64encode(forged).decode()}\n"
    for signatures, reason in (
        (theirs + "— witness.example AAAAAAAA\n", "another key"),
        (theirs + broken, "its signature is invalid"),
        (own + broken, "its signature is invalid"),
    ):
        assert (
            case.check(case.export, case.checkpoint(9, text=f"{body}\n\n{signatures}"))
            == 1
        ), signatures
        assert reason in _answer(capsys)["reason"]


def test_an_entry_at_another_index_than_its_sequence_is_not_proven(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator signed a log whose leaves are in another order than the entries."""
    entries = case.writer.entries
    moved = [*entries[:3], entries[4], entries[3], *entries[5:]]
    note = Signer(KEY).sign(
        Checkpoint("ds_test", 9, checkpoints.root_of(9, subtrees(moved)), AT)
    )
    path = [node.hex() for node in checkpoints.inclusion(3, 9, subtrees(moved))]
    proof = case.proof("inclusion", sequence=4, entry=entries[4], path=path)
    assert case.check(proof, case.checkpoint(9, text=note)) == 1
    assert _answer(capsys)["reason"] == "the entry has another sequence than the proof"
