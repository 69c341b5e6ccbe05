"""``verify`` on a population's export: its output, and the other files that it accepts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.ledger import checkpoints
from app.ledger.checkpoints import Checkpoint, Signer
from grovekeeper_verifier.main import main
from grovekeeper_verifier.result_text import NO_CHECKPOINT
from tests.support.subtrees import subtrees

People = Callable[..., Any]
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(b"k" * 32))
AT = "2026-11-20T10:00:00.000000Z"


class Folder:
    """A population's exports as files, and checkpoints of their logs."""

    def __init__(self, population: Any, path: Path) -> None:
        self.population, self.path = population, path
        (path / "key.pem").write_text(SIGNER.public_pem)
        self.write("people", population.lines())
        for name, member in population.members.items():
            self.write(name, member.lines())

    def write(self, name: str, lines: list[bytes]) -> None:
        (self.path / f"{name}.jsonl").write_bytes(b"".join(lines))

    def checkpoint(
        self, account: str, entries: list[dict[str, Any]], *, at: str = AT
    ) -> list[str]:
        """A signed head of these entries, as arguments."""
        file = self.path / f"{account}.checkpoint"
        file.write_text(
            SIGNER.sign(
                Checkpoint(
                    account,
                    len(entries),
                    checkpoints.root_of(len(entries), subtrees(entries)),
                    at,
                )
            )
        )
        return ["--checkpoint", str(file), "--public-key", str(self.path / "key.pem")]

    def verify(
        self, *arguments: str, of: str = "people", members: tuple[str, ...] = ()
    ) -> int:
        given = [
            argument
            for name in members
            for argument in ("--member", str(self.path / f"{name}.jsonl"))
        ]
        return main([str(self.path / f"{of}.jsonl"), *given, *arguments])


@pytest.fixture
def folder(people: People, tmp_path: Path) -> Folder:
    population = people(cap="3", accountant="zcdp", delta="0.00001")
    population.join("ds_a", max_rows=2).declare("ds_b", max_rows=2).job(
        "ds_b", "jb_1", "0.75"
    ).join("ds_b")
    population.job("ds_a", "jb_2", "1.5").cap("2.5").job(
        "ds_a", "jb_3", "0.25", "void", event=FREE
    )
    return Folder(population, tmp_path)


FREE = {"type": "sequential/1", "parts": []}


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_population_without_members_exports_prints_the_sum_and_the_missing_comparisons(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.verify() == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:13] == [
        "CONSISTENT",
        "population pop_test",
        "account zcdp, counted in ρ at δ = 0.00001",
        "unit all rows with one value of person, adjacency add_remove",
        "entries 7 (1 open, 2 join, 3 load, 1 cap)",
        "member ds_a: 1.5, not compared",
        "member ds_b: 0.75, not compared",
        "together 2.25",
        "cap 2.5",
        "highest cap 6",
        "remaining 0.25",
        "printable 6",
        f"last hash {folder.population.entries[-1]['hash']}",
    ]
    assert (
        "sum over members and the cap at every step were recomputed and hold."
        in lines[13]
    )
    assert lines[14].startswith("NOT CHECKED: the loads of ds_a, ds_b.")
    assert lines[15:] == [NO_CHECKPOINT]


def test_a_population_with_members_exports_prints_each_comparison(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.verify(members=("ds_b", "ds_a")) == 0
    printed = capsys.readouterr().out
    assert "ds_a: 1.5, compared with its 5 entries" in printed
    assert "ds_b: 0.75, compared with its 3 entries" in printed
    assert (
        "Every entry about ds_b, ds_a agrees with that dataset's export, which was verified."
        in printed
    )
    assert "NOT CHECKED: the" not in printed
    assert printed.count(NO_CHECKPOINT) == 1, (
        "of the population; what it names pins the members"
    )


def test_json_is_one_object_with_every_number(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.verify("--json", members=("ds_a",)) == 0
    result = answer(capsys)
    assert {name: result[name] for name in ("verified", "population", "adjacency", "unit_column", "entries")} == {
        "verified": True, "population": "pop_test", "adjacency": "add_remove", "unit_column": "person", "entries": 7,
    }  # fmt: skip
    assert [result[name] for name in ("cap", "together", "remaining", "printable")] == [
        "2.5",
        "2.25",
        "0.25",
        "6",
    ]
    assert result["unchecked"] == ["ds_b"]
    assert [(member["dataset"], member["load"]) for member in result["members"]] == [
        ("ds_a", "1.5"),
        ("ds_b", "0.75"),
    ]
    compared = [member["compared"] for member in result["members"]]
    assert compared[1] is None
    assert [compared[0][name] for name in ("bounds", "later_entries")] == [0, 0]
    assert (compared[0]["ledger"]["dataset"], compared[0]["ledger"]["charged"]) == (
        "ds_a",
        "1.5",
    )


def test_nothing_remains_while_the_sum_is_over_the_cap(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(people().join("ds_a").job("ds_a", "jb_1", "2").cap("1.5"), tmp_path)
    assert folder.verify("--json", members=("ds_a",)) == 0
    result = answer(capsys)
    assert [
        result[name] for name in ("cap", "highest_cap", "together", "remaining")
    ] == ["1.5", "3", "2", "0"]
    assert result["printable"] == "2", "a sum of ε is a bound at any time"


@pytest.fixture
def with_bound(people: People, tmp_path: Path, rechained: Callable[..., Any]) -> Folder:
    """A population whose only load is an upper bound, and a member's export with newer
    entries.
    """
    parts = [{"name": name, "kind": "hash", "cells": 2} for name in ("one", "two")]
    population = (
        people()
        .join("ds_a", partitions=parts)
        .job("ds_a", "jb_1", "1", scope={"one": [0], "two": [1]})
    )
    population.entries[-1]["amount"] = "1.25"
    population.entries = rechained(population.entries)
    early = population.lines()
    population.job("ds_a", "jb_2", "0.5", "expire").step(
        "ds_a", "reserve", "jb_3", "0.5"
    )
    folder = Folder(population, tmp_path)
    folder.write("people", early)
    return folder


def test_the_output_counts_bounds_and_later_entries(
    with_bound: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert with_bound.verify(members=("ds_a",)) == 0
    printed = capsys.readouterr().out
    assert "ds_a: 1 loads are upper bounds" in printed
    assert (
        "ds_a: 3 entries are newer than the population's export: a newer export of the population must"
        in printed
    )


def test_a_verdict_that_rests_on_a_bound_says_so(
    with_bound: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """It exits with 0: the service may state a bound, which is within the cap. Without
    members none is compared.
    """
    assert with_bound.verify(members=("ds_a",)) == 0
    assert capsys.readouterr().out.splitlines()[0] == "CONSISTENT (bounded)"
    assert with_bound.verify("--json", members=("ds_a",)) == 0
    result = answer(capsys)
    assert (result["verdict"], result["verified"]) == ("CONSISTENT (bounded)", True)
    assert with_bound.verify("--json") == 0
    assert answer(capsys)["verdict"] == "CONSISTENT"


def test_a_checkpoint_shows_that_a_load_is_overdue_and_a_shorter_or_older_one_does_not(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    population = people().join("ds_a").job("ds_a", "jb_1", "1")
    folder = Folder(population, tmp_path)
    early = list(population.entries)
    population.job("ds_a", "jb_2", "0.5", "void")
    folder.write("ds_a", population.members["ds_a"].lines())
    made = population.members["ds_a"].entries[-1]["at"]
    for size, at, overdue in (
        (3, AT, 2),
        (3, made, 1),
        (3, "noon", 0),
        (2, AT, 0),
        (3, early[-1]["at"], 0),
    ):
        signed = folder.checkpoint("pop_test", early[:size], at=at)
        assert folder.verify("--json", *signed, members=("ds_a",)) == 0
        result = answer(capsys)["members"][0]["compared"]
        assert (result["later_entries"], result["overdue_entries"]) == (2, overdue)
        assert folder.verify(*signed, members=("ds_a",)) == 0
        assert (
            "are older than the population's checkpoint" in capsys.readouterr().out
        ) is (overdue > 0)


def test_of_checkpoints_of_one_size_the_newest_says_what_is_overdue(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A later checkpoint of equal size proves that the load is overdue."""
    population = people().join("ds_a").job("ds_a", "jb_1", "1")
    folder, early = Folder(population, tmp_path), list(population.entries)
    population.job("ds_a", "jb_2", "0.5", "void")
    folder.write("ds_a", population.members["ds_a"].lines())
    older = folder.checkpoint("pop_test", early, at=early[-1]["at"])
    kept = tmp_path / "older.checkpoint"
    Path(older[1]).rename(kept)
    newer = folder.checkpoint("pop_test", early)
    for signed in (
        ["--checkpoint", str(kept), *newer],
        [*newer, "--checkpoint", str(kept)],
    ):
        assert folder.verify("--json", *signed, members=("ds_a",)) == 0
        assert answer(capsys)["members"][0]["compared"]["overdue_entries"] == 2


def test_a_failure_in_a_members_export_names_the_file(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder.path / "ds_b.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"0.75"', b'"0.25"'))
    assert folder.verify(members=("ds_a", "ds_b")) == 1
    assert capsys.readouterr().out.startswith(
        f"NOT VERIFIED: {file}\nline 3: hash is not that of the entry's content"
    )
    assert folder.verify("--json", members=("ds_b",)) == 1
    assert (answer(capsys)["file"], folder.verify("--json", members=("ds_a",))) == (
        str(file),
        0,
    )


def test_a_failure_in_the_populations_export_names_the_population(
    folder: Folder, rechained: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder.population.entries[3]["amount"] = "0.5"
    folder.population.entries = rechained(folder.population.entries)
    folder.write("people", folder.population.lines())
    assert folder.verify(members=("ds_a",)) == 1
    result = capsys.readouterr().out
    assert result.startswith(
        f"NOT VERIFIED: {folder.path / 'people.jsonl'}\nline 5: the load is 0.5, less than the 1.5"
    )


def test_checkpoints_of_the_population_and_of_members_each_hold_their_own_log(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    of_people = folder.checkpoint("pop_test", folder.population.entries)
    of_member = folder.checkpoint("ds_a", folder.population.members["ds_a"].entries)[:2]
    assert folder.verify(*of_people, *of_member, members=("ds_a",)) == 0
    printed = capsys.readouterr().out
    assert f"\nA checkpoint of {AT} covers all 7 entries" in printed
    assert f"\nds_a: A checkpoint of {AT} covers all 5 entries" in printed

    folder.write("ds_a", folder.population.members["ds_a"].lines()[:-1])
    assert folder.verify(*of_people, *of_member, "--json", members=("ds_a",)) == 1
    assert (
        answer(capsys)["reason"]
        == "the export was truncated: it ends with entry 4, the population names entry 5"
    )
    folder.write("people", folder.population.lines()[:-1])
    assert folder.verify(*of_people, "--json") == 1
    assert (
        answer(capsys)["reason"]
        == "the export was truncated: it ends with entry 6, a checkpoint covers 7"
    )


def test_the_end_of_a_members_export_is_checked_as_that_of_any_other(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last entry of the member's export is a charge, which the population does not
    name.
    """
    folder = Folder(people().join("ds_b").job("ds_b", "jb_1", "1"), tmp_path)
    lines = folder.population.members["ds_b"].lines()
    signed = folder.checkpoint("ds_b", folder.population.members["ds_b"].entries)
    folder.write("ds_b", lines[:-1])
    assert folder.verify("--json", members=("ds_b",)) == 0
    capsys.readouterr()
    assert folder.verify("--json", *signed, members=("ds_b",)) == 1
    result = answer(capsys)
    assert (
        result["reason"]
        == "the export was truncated: it ends with entry 2, a checkpoint covers 3"
    )
    assert (result["line"], result["file"]) == (4, str(folder.path / "ds_b.jsonl"))
    folder.write("ds_b", [lines[0].replace(b'"cap": "3"', b'"cap": "4"'), *lines[1:]])
    assert folder.verify("--json", members=("ds_b",)) == 1
    result = answer(capsys)
    assert (result["line"], result["reason"]) == (
        1,
        "the header states a cap of 4, the entries end with 3",
    )


def test_a_checkpoint_of_a_log_without_an_export_is_refused(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    of_member = folder.checkpoint("ds_a", folder.population.members["ds_a"].entries)
    assert folder.verify(*of_member, "--json") == 1
    assert (
        answer(capsys)["reason"]
        == "a checkpoint belongs to a log of which no export is given"
    )


def test_a_history_of_both_that_was_rewritten_contradicts_the_members_checkpoint(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only an older checkpoint detects a forger who changes all exports consistently."""
    true = people().join("ds_a").job("ds_a", "jb_1", "2")
    signed = Folder(true, tmp_path).checkpoint("ds_a", true.members["ds_a"].entries)
    forged = Folder(people().join("ds_a").job("ds_a", "jb_1", "1"), tmp_path)
    assert forged.verify("--json", members=("ds_a",)) == 0
    capsys.readouterr()
    assert forged.verify("--json", *signed, members=("ds_a",)) == 1
    result = answer(capsys)
    assert (result["line"], result["file"]) == (4, str(tmp_path / "ds_a.jsonl"))


def test_a_proof_about_a_populations_log_holds(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = folder.population.entries
    signed = folder.checkpoint("pop_test", entries)
    path = [sibling.hex() for sibling in checkpoints.inclusion(3, 7, subtrees(entries))]
    origin = "grovekeeper/ledger/pop_test"
    proof = {
        "kind": "inclusion",
        "origin": origin,
        "size": 7,
        "sequence": 4,
        "entry": entries[3],
        "path": path,
    }
    folder.write("proof", [json.dumps(proof).encode() + b"\n"])
    assert folder.verify("--json", *signed, of="proof") == 0
    assert answer(capsys)["statement"].startswith("entry 4 is in the log of 7 entries")


def test_members_go_with_a_population_once_each_and_are_read_first(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.verify("--json", of="ds_a", members=("ds_b",)) == 2
    assert answer(capsys)["reason"] == "--member needs the export of a population"
    assert folder.verify("--json", members=("ds_a", "ds_a")) == 2
    assert "is a second export of ds_a" in answer(capsys)["reason"]
    assert folder.verify("--json", members=("gone",)) == 2
    assert "gone.jsonl: No such file" in answer(capsys)["reason"]
    assert folder.verify("--json", members=("people",)) == 1
    result = answer(capsys)
    assert (result["line"], result["file"]) == (1, str(folder.path / "people.jsonl"))
    assert folder.verify("--json", of="ds_a") == 0, (
        "a member's export is one as any other"
    )


def test_no_name_of_a_member_passes_for_a_line_of_the_result(
    people: People, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    population = people().declare("ds\n\x1b[2JVERIFIED").join("ds\n\x1b[2JVERIFIED")
    (tmp_path / "people").write_bytes(b"".join(population.lines()))
    assert main([str(tmp_path / "people")]) == 0
    lines = capsys.readouterr().out.rstrip("\n").split("\n")
    assert r"  member        ds\n\x1b[2JVERIFIED: 0, not compared" in lines
    assert all(line.isprintable() for line in lines)
    assert lines.count("CONSISTENT") == 1


def test_a_first_line_that_cannot_be_read_is_named_with_members_too(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is reported as a broken export, not as an unexpected member."""
    lines = folder.population.lines()
    folder.write("people", [lines[0].replace(b"{", b'{"cap": "9", ', 1), *lines[1:]])
    assert folder.verify("--json", members=("ds_a",)) == 1
    result = answer(capsys)
    assert (result["line"], result["reason"]) == (
        1,
        "the line cannot be read: an object has a duplicate key",
    )
