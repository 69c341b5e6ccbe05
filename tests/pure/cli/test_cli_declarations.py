"""The commands that draft a declaration from a data dictionary, and check it."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from grovekeeper_client.cli.problems import ExitCode

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")

DICTIONARY = {
    "name": "census",
    "fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0}},
        {
            "name": "income",
            "type": "string",
            "constraints": {"enum": ["low", "high"], "required": True},
        },
    ],
}
WARNING = "The bounds of age were read off the rows"


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    file = tmp_path / "dictionary.json"
    file.write_text(json.dumps(DICTIONARY), encoding="utf-8")
    return file


def test_a_draft_is_printed_and_the_checklist_beside_it(
    run: Run, service: Any, dictionary: Path
) -> None:
    done = run("datasets", "init", str(dictionary), "--label", "income")
    assert json.loads(done.stdout)["schema"]["label"] == {
        "name": "income",
        "classes": ["low", "high"],
    }
    assert "[ ] /schema/features/0/upper: age: the largest value" in done.stderr
    assert "[ ] /budget: " in done.stderr
    assert not service.requests


def test_a_draft_is_written_to_a_file_that_does_not_exist(
    run: Run, dictionary: Path, tmp_path: Path
) -> None:
    draft = tmp_path / "draft.json"
    done = run("datasets", "init", str(dictionary), "-")
    assert json.loads(done.stdout)["name"] == "census"
    assert not Path("-").exists()
    done = run("datasets", "init", str(dictionary), str(draft))
    assert (
        f"next: grovekeeper datasets check {draft}    (when the gaps are filled in)"
        in done.stdout
    )
    assert json.loads(draft.read_text(encoding="utf-8"))["name"] == "census"
    again = run("datasets", "init", str(dictionary), str(draft))
    assert (again.exit_code, "exists already" in again.stderr) == (
        ExitCode.WRONG_USE,
        True,
    )


def test_a_declaration_is_read_from_standard_input(run: Run, service: Any) -> None:
    done = run("datasets", "create", "-", input='{"name": "census"}')
    assert done.exit_code == 0, done.stderr
    assert service.body() == {"name": "census"}


@pytest.mark.usefixtures("files")
def test_rows_to_predict_are_read_from_standard_input(run: Run, tmp_path: Path) -> None:
    typed = (tmp_path / "rows.csv").read_text()
    done = run("predict", "md_1", "-", input=typed)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == run("predict", "md_1", "rows.csv").stdout


def test_a_download_is_never_written_to_a_file_that_stands_for_a_stream(
    run: Run,
) -> None:
    done = run("ledger", "export", "census", "-")
    assert done.exit_code == ExitCode.WRONG_USE
    assert "name one in place of -" in done.stderr
    assert not Path("-").exists()


def test_a_draft_as_json_has_the_checklist_in_it(run: Run, dictionary: Path) -> None:
    printed = json.loads(run("datasets", "init", str(dictionary), "--json").stdout)
    assert [set(remark) for remark in printed["lacking"]] == [{"at", "text"}] * 4
    assert printed["to_confirm"] == []
    assert [remark["at"] for remark in printed["optional"]] == [
        "/public_size",
        "/partitions",
    ]


def test_options_declare_what_no_dictionary_says(run: Run, dictionary: Path) -> None:
    options = (
        "--label",
        "income",
        "--epsilon",
        "3",
        "--public-size",
        "5000",
        "--cells",
        "5",
    )
    printed = json.loads(
        run("datasets", "init", str(dictionary), *options, "--json").stdout
    )
    declared = printed["declaration"]
    assert declared["budget"] == {"accountant": "pure", "epsilon": "3"}
    assert declared["public_size"] == 5000
    assert declared["partitions"] == [{"name": "shard", "kind": "hash", "cells": 5}]
    assert [remark["at"] for remark in printed["lacking"]] == [
        "/schema/features/0/upper"
    ]
    assert printed["optional"] == []


def test_points_cut_a_column_of_numbers_into_classes(
    run: Run, dictionary: Path
) -> None:
    done = run("datasets", "init", str(dictionary), "--cut", "age=18,64.5", "--json")
    printed = json.loads(done.stdout)
    schema = printed["declaration"]["schema"]
    assert schema["label"] == {"name": "age", "cuts": [18, 64.5]}
    assert [feature["name"] for feature in schema["features"]] == ["income"]
    assert [remark["at"] for remark in printed["lacking"]] == ["/budget"]


def test_several_columns_are_predicted(run: Run, dictionary: Path) -> None:
    options = ("--label", "income", "--cut", "age=18")
    done = run("datasets", "init", str(dictionary), *options, "--json")
    schema = json.loads(done.stdout)["declaration"]["schema"]
    assert schema == {
        "features": [],
        "labels": [
            {"name": "income", "classes": ["low", "high"]},
            {"name": "age", "cuts": [18]},
        ],
    }


@pytest.mark.parametrize(
    "option", ["age", "age=", "age=a", "age=1,,2", "=3", "age=nan"]
)
def test_points_that_are_no_numbers_are_refused(
    run: Run, dictionary: Path, option: str
) -> None:
    done = run("datasets", "init", str(dictionary), "--cut", option)
    assert done.exit_code == ExitCode.WRONG_USE
    assert f"--cut takes a column and points: los_days=3,7, not {option}" in done.stderr


def test_rows_are_refused_as_a_dictionary(run: Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("age,income\n39,low\n", encoding="utf-8")
    done = run("datasets", "init", str(rows))
    assert (done.exit_code, done.stdout) == (ExitCode.WRONG_USE, "")
    assert "never from rows" in done.stderr


def test_a_check_sends_the_file_and_prints_the_warnings(
    run: Run, service: Any, dictionary: Path
) -> None:
    status, dataset = service.answers["POST", "/datasets"]
    checked = {
        name: dataset[name]
        for name in ("name", "account", "partitions", "public_size", "population")
    }
    service.answers["POST", "/declarations"] = (
        200, checked | {"warnings": [WARNING], "guarantee": {"odds": {"add_remove": "0.9526"}}},
    )  # fmt: skip
    service.answers["POST", "/datasets"] = (status, dataset | {"warnings": [WARNING]})
    done = run("datasets", "check", str(dictionary))
    assert "census breaks no rule; its lifetime budget would be 3 ε" in done.stdout
    assert f"note: {WARNING}" in done.stdout
    assert "guesses right at most 96 % of the time (50 % before)" in done.stdout
    assert "No public size" not in done.stdout
    assert json.loads(service.requests[-1].content) == DICTIONARY
    assert f"note: {WARNING}" in run("datasets", "create", str(dictionary)).stdout


def test_a_declaration_without_a_public_size_is_noted(
    run: Run, service: Any, dictionary: Path
) -> None:
    status, dataset = service.answers["POST", "/datasets"]
    service.answers["POST", "/datasets"] = (status, dataset | {"public_size": None})
    assert (
        "note: No public size is declared, and none can be added later."
        in run("datasets", "create", str(dictionary)).stdout
    )


@pytest.mark.parametrize(
    "typed", [("datasets", "init", "dictionary.json"), ("ledger", "signer")]
)
def test_a_full_disk_leaves_no_part_of_a_file(
    run: Run, dictionary: Path, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...]
) -> None:
    folder = dictionary.parent
    before = sorted(folder.iterdir())

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        done = run(*typed, str(folder / "written"))
    assert done.exit_code != 0
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert sorted(folder.iterdir()) == before
