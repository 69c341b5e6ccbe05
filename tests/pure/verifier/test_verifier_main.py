"""The command: its exit codes, its output, and that it needs no file outside its
folder.
"""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import grovekeeper_verifier
from app.services.ledger.history import CSV_COLUMNS
from grovekeeper_verifier.main import main
from grovekeeper_verifier.result_text import NO_CHECKPOINT

Export = Callable[..., Any]


@pytest.fixture
def good(export: Export, tmp_path: Path) -> Path:
    file = tmp_path / "good.jsonl"
    file.write_bytes(
        b"".join(
            export(shards=2)
            .job("a", "1")
            .job("b", "0.7", None, scope={"shard": [1]})
            .lines()
        )
    )
    return file


def test_a_good_export_prints_its_balance_and_ends_with_0(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(good)]) == 0
    words = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert words[0] == ["CONSISTENT"]
    assert ["cap", "3"] in words
    assert ["charged", "1"] in words
    assert ["reserved", "0.7"] in words
    assert ["remaining", "1.3"] in words
    assert ["entries", "4 (1 open, 2 reserve, 1 charge)"] in words
    assert ["tightest", "cell shard=1"] in words
    assert NO_CHECKPOINT.split(maxsplit=1) in words


def test_a_byte_order_mark_is_no_part_of_an_export(good: Path) -> None:
    content = good.read_bytes()
    good.write_bytes(b"\xef\xbb\xbf" + content)
    assert main([str(good)]) == 0
    good.write_bytes(content.replace(b"\n", b"\n\xef\xbb\xbf", 1))
    assert main([str(good)]) == 1


def test_gzip_is_unpacked_and_a_part_of_it_checks_nothing(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = good.read_bytes()
    good.write_bytes(gzip.compress(content))
    assert main([str(good)]) == 0
    good.write_bytes(gzip.compress(content.replace(b'"0.7"', b'"0.6"')))
    assert main([str(good)]) == 1
    capsys.readouterr()
    whole = gzip.compress(content)
    for part in (
        whole[:-1],
        whole[:-9],
        whole[:12],
        whole[:2],
        whole[:20] + b"\0" * 20,
        whole[:-8] + bytes(8),
    ):
        good.write_bytes(part)
        assert main([str(good)]) == 2
        assert "cannot read" in capsys.readouterr().err


def test_blank_lines_are_read_at_the_end_alone(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = good.read_bytes()
    for blank in (b"\n", b"\r\n"):
        good.write_bytes(content + blank)
        assert main([str(good)]) == 0
    capsys.readouterr()
    for changed, line in (
        (content.replace(b"\n", b"\n\n", 1), 2),
        (content + b"\n\n", 6),
        (b"\n" + content, 1),
    ):
        good.write_bytes(changed)
        assert main([str(good)]) == 1
        assert f"line {line}: " in capsys.readouterr().out


@pytest.mark.parametrize("n_bytes", [1, 2, 30])
def test_a_cut_line_is_not_verified(
    good: Path, n_bytes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = good.read_bytes()
    good.write_bytes(whole[:-1][:-n_bytes])
    assert main([str(good)]) == 1
    assert "line 5: the line has no line end" in capsys.readouterr().out


def test_json_output_is_one_object_and_nothing_else(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(good), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verified"] is True
    assert (
        answer["cap"],
        answer["charged"],
        answer["reserved"],
        answer["remaining"],
    ) == ("3", "1", "0.7", "1.3")
    assert answer["tightest_cell"] == {"shard": 1}


def test_a_program_is_told_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.jsonl"), "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["line"]) == (False, None)
    assert "No such file" in answer["reason"]


def test_a_failure_prints_its_line_and_reason_on_stdout_and_exits_with_1(
    good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good.write_bytes(good.read_bytes().replace(b'"0.7"', b'"0.6"'))
    assert main([str(good)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("NOT VERIFIED")
    assert "line 5: hash is not that of the entry's content" in printed
    assert main([str(good), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verified"], answer["line"]) == (False, 5)


def test_an_unreadable_file_ends_with_2_and_prints_nothing_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "absent.jsonl")]) == 2
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [[], ["--checkpoint"], ["a", "b"], ["a", "--js"]])
def test_invalid_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_standard_input_is_no_file_to_verify(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["-"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "name one in place of -" in printed.err


def test_an_empty_or_binary_file_is_not_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in (b"", b"\x00\xff" * 100, b"{" * 1000):
        (tmp_path / "file").write_bytes(content)
        assert main([str(tmp_path / "file")]) == 1
        assert "line 1: " in capsys.readouterr().out


def test_a_csv_export_is_not_a_file_to_verify(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.csv").write_text(",".join(CSV_COLUMNS) + "\n1,open,3\n")
    assert main([str(tmp_path / "file.csv")]) == 2
    assert (
        "only an export as JSON Lines (--format jsonl) can be verified"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("kind", [[], {}, ["inclusion"], 1, None, "", "exports"])
def test_a_first_line_of_any_kind_is_no_more_than_not_verified(
    kind: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text(json.dumps({"kind": kind}) + "\n", encoding="utf-8")
    assert main([str(tmp_path / "file")]) == 1
    assert "line 1: the header has not exactly the fields" in capsys.readouterr().out


def test_a_reader_that_leaves_early_does_not_change_the_result(
    good: Path, tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        command = [sys.executable, "-m", "grovekeeper_verifier", str(good)]
        done = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_it_runs_with_every_other_package_deleted(good: Path, tmp_path: Path) -> None:
    """Also without site packages: the folder and an interpreter are enough."""
    alone = tmp_path / "alone" / "grovekeeper_verifier"
    source = Path(grovekeeper_verifier.__file__).parent
    shutil.copytree(source, alone, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-I", "-S", "-c", "import sys, runpy; sys.path.insert(0, '.'); "
               "sys.argv = ['verify', sys.argv[1]]; "
               "runpy.run_module('grovekeeper_verifier', run_name='__main__')"]  # fmt: skip
    done = subprocess.run(
        [*command, str(good)],
        cwd=alone.parent,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("CONSISTENT")


@pytest.mark.parametrize(
    ("accountant", "shown"),
    [("pure", "1"), ("gdp", "1 (the guarantee is that of the highest cap, 3)")],
)
def test_a_lowered_cap_is_shown_with_the_cap_of_the_guarantee(
    export: Export,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    accountant: str,
    shown: str,
) -> None:
    writer = export(
        accountant=accountant, delta=None if accountant == "pure" else "0.001"
    ).job("a", "1")
    writer.add("cap", "1", details={"reason": "the study ended"})
    writer.header["cap"] = "1"
    (tmp_path / "export").write_bytes(b"".join(writer.lines()))
    assert main([str(tmp_path / "export")]) == 0
    (line,) = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  cap ")
    ]
    assert line.split(maxsplit=1)[1] == shown


def test_the_output_counts_external_charges(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = {
        "attested_by": "key_ann",
        "declared": {"adjacency": "add_remove", "epsilon": "1"},
    }
    (tmp_path / "export").write_bytes(
        b"".join(export().job("rs_1", "1", event=None, details=word).lines())
    )
    assert main([str(tmp_path / "export")]) == 0
    assert (
        "rest on the attester's statement, which cannot be checked: 1 by key_ann."
        in capsys.readouterr().out
    )


FORGED = "ds\n  charged       0\n\x1b[2J\x9b\u202eVERIFIED\u2028\r"
SHOWN = r"ds\n  charged       0\n\x1b[2J\x9b\u202eVERIFIED\u2028\r"


def test_no_text_of_an_export_passes_for_a_line_of_the_result(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control sequences of a terminal could erase the true result and print another in
    its place.
    """
    word = {
        "attested_by": FORGED,
        "declared": {"adjacency": "add_remove", "epsilon": "1"},
    }
    partitions = [{"name": FORGED, "kind": "hash", "cells": 2}]
    writer = export(partitions=partitions, dataset=FORGED).job(
        "rs_1", "1", event=None, details=word
    )
    (tmp_path / "export").write_bytes(b"".join(writer.lines()))
    assert main([str(tmp_path / "export")]) == 0
    printed = capsys.readouterr().out
    lines = printed.rstrip("\n").split("\n")
    assert lines[0] == "CONSISTENT"
    assert [line for line in lines if line.split(maxsplit=1)[0] == "charged"] == [
        "  charged       1"
    ]
    assert printed.count(SHOWN) == 3, "dataset, cell and witness"
    assert all(line.isprintable() for line in lines)


def test_no_text_of_an_export_passes_for_a_line_of_a_refusal(
    export: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = export(partitions=[{"name": FORGED, "kind": "hash", "cells": 2}]).job(
        "a", "4"
    )
    file = tmp_path / "export\nVERIFIED"
    file.write_bytes(b"".join(writer.lines()))
    assert main([str(file)]) == 1
    first, second, *others = capsys.readouterr().out.splitlines()
    assert first == f"NOT VERIFIED: {tmp_path}/export" + r"\nVERIFIED"
    assert second.startswith(f"line 3: charged and reserved in cell {SHOWN}=0 are 4")
    assert others == []
    assert main([f"{file}\n\x1b[2J"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()


def test_without_cryptography_a_checkpoint_is_wrong_use_and_an_export_alone_is_verified() -> (
    None
):
    """Run as an auditor's machine runs it: in a process that has the standard library
    alone.
    """
    folder = Path(__file__).parents[3]
    blocked = (
        "import runpy, sys; sys.modules['cryptography'] = None; sys.argv[0] = 'verify'; "
        "runpy.run_module('grovekeeper_verifier', run_name='__main__')"
    )
    example = Path(__file__).with_name("by_hand") / "dataset"
    evidence = [
        "--checkpoint",
        str(example / "census.checkpoint"),
        "--public-key",
        str(example / "grovekeeper.pem"),
    ]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            blocked,
            str(example / "census.jsonl"),
            *arguments,
        ]
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False
        )

    refused = run(*evidence)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "cryptography" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert run().returncode == 0
