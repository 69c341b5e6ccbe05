"""The commands that declare, fill, show and erase datasets; API keys and their grants."""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from grovekeeper_client.cli import datasets
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_client.client import Client

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")


def test_a_key_without_a_role_is_to_be_granted_one(run: Run) -> None:
    granted = "next: grovekeeper datasets grant DATASET key_2"
    assert f"{granted} analyst" in run("keys", "create", "ann").stdout
    assert (
        granted
        not in run(
            "keys", "create", "ann", "--role", "predictor", "--role", "auditor"
        ).stdout
    )


@pytest.mark.parametrize(
    "typed",
    [
        ["datasets", "delete", "census"],
        ["datasets", "erase-unit", "census", "ann"],
        ["datasets", "erase-upload", "census", "ep_1"],
        ["datasets", "replace-upload", "census", "ep_1", "rows.csv"],
        ["models", "delete", "md_1"],
        ["populations", "join", "census", "patients"],
        ["populations", "erase-unit", "patients", "ann"],
    ],
)
def test_without_a_terminal_a_command_requires_yes_instead_of_asking(
    run: Run, service: Any, typed: list[str]
) -> None:
    result = run(*typed, "--json", input="y\n")
    assert (result.exit_code, result.stderr) == (ExitCode.WRONG_USE, "")
    assert json.loads(result.stdout)["type"] == "wrong-use"
    assert not service.requests


@pytest.mark.parametrize("typed", ["ann\n", "\ufeffann\r\n", "ann"])
def test_a_unit_is_read_from_standard_input(run: Run, service: Any, typed: str) -> None:
    assert (
        run("datasets", "erase-unit", "census", "-", "--yes", input=typed).exit_code
        == 0
    )
    assert json.loads(service.requests[-1].content) == {"unit": "ann"}


def test_an_erasure_names_its_act_and_sends_the_reference_of_the_request(
    run: Run, service: Any
) -> None:
    typed = ["datasets", "erase-unit", "census", "ann", "--yes"]
    done = run(*typed, "--reference", "request 118")
    assert "at 2026-11-28T14:29:00Z (act 131)" in " ".join(done.stdout.split())
    sent = json.loads(service.requests[-1].content)
    assert sent == {"unit": "ann", "reference": "request 118"}


def test_a_refused_erasure_tells_what_is_spelt_alike(run: Run, service: Any) -> None:
    problem = {"type": "no-rows-of-unit", "detail": "no row", "similar_units": 2}
    service.answers["POST", "/datasets/census/erasures"] = (404, problem)
    result = run("datasets", "erase-unit", "census", "3", "--yes")
    assert result.exit_code == ExitCode.FAILED
    assert "and were not erased: 2; if such a unit" in result.stderr
    service.answers["POST", "/datasets/census/erasures"] = (
        404,
        problem | {"similar_units": None},
    )
    assert "differ" not in run("datasets", "erase-unit", "census", "3", "--yes").stderr


def test_a_person_is_erased_from_the_named_members(run: Run, service: Any) -> None:
    typed = ["populations", "erase-unit", "patients", "-", "--yes", "--json"]
    answer = run(*typed, "--dataset", "census", "--dataset", "survey", input="ann\n")
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)["members"][0]["act"] == 131
    assert json.loads(service.requests[-1].content) == {
        "unit": "ann",
        "reference": None,
        "datasets": ["census", "survey"],
    }


def test_several_units_on_standard_input_erase_none(run: Run, service: Any) -> None:
    result = run("datasets", "erase-unit", "census", "-", "--yes", input="ann\nbob\n")
    assert result.exit_code == ExitCode.WRONG_USE
    assert "one command erases one unit" in " ".join(result.stderr.split())
    assert not service.requests


def test_before_an_upload_is_erased_the_question_says_what_stays(
    run: Run, service: Any
) -> None:
    asked = run("datasets", "erase-upload", "census", "ep_1", input="n\n")
    assert "places of their units stay taken" in asked.stderr
    assert not service.requests


def test_a_replacement_checks_the_file_erases_the_upload_then_stores_the_file(
    run: Run, service: Any
) -> None:
    done = run(
        "datasets",
        "replace-upload",
        "census",
        "ep_1",
        "rows.csv",
        "--accept-unknown",
        "--yes",
    )
    assert [
        (request.method, request.url.path, dict(request.url.params))
        for request in service.requests
    ] == [
        (
            "POST",
            "/datasets/census/rows/check",
            {"accept_unknown": "true", "replaces": "ep_1"},
        ),
        ("DELETE", "/datasets/census/uploads/ep_1", {}),
        ("POST", "/datasets/census/rows", {"accept_unknown": "true"}),
    ]
    assert "Idempotency-Key" not in service.requests[0].headers
    assert "erased the rows of upload ep_1 from census" in done.stdout
    assert "What was spent stays." in done.stdout
    assert "stored 40 rows as upload ep_1" in done.stdout
    as_json = json.loads(
        run(
            "datasets",
            "replace-upload",
            "census",
            "ep_1",
            "rows.csv",
            "--yes",
            "--json",
        ).stdout
    )
    assert (as_json["erased"]["places"], as_json["stored"]["rows"]) == ("free", 40)


def test_a_replacement_whose_file_is_refused_erases_nothing(
    run: Run, service: Any
) -> None:
    columns = [{"name": "income", "problem": "unknown", "count": 39, "percent": 97.5}]
    service.answers["POST", "/datasets/census/rows/check"] = (
        422,
        _problem("cells-unread", 422) | {"columns": columns},
    )
    done = run("datasets", "replace-upload", "census", "ep_1", "rows.csv", "--yes")
    assert done.exit_code == ExitCode.FAILED
    assert "nothing was erased: the rows of upload ep_1 stay" in done.stderr
    assert {request.method for request in service.requests} == {"POST"}
    assert "income: unknown, 39 times (97.5 %)" in done.stderr
    assert "--accept-unknown" in done.stderr


def test_the_check_of_a_replacement_names_the_upload_whose_rows_it_may_repeat(
    run: Run, service: Any
) -> None:
    refusal = (409, _problem("upload-repeated", 409) | {"upload": "ep_2"})
    service.answers["POST", "/datasets/census/rows/check"] = refusal
    done = run("datasets", "replace-upload", "census", "ep_1", "rows.csv", "--yes")
    assert (done.exit_code, "nothing was erased" in done.stderr) == (
        ExitCode.FAILED,
        True,
    )
    [check] = service.requests
    assert dict(check.url.params) == {"replaces": "ep_1"}


def test_a_replacement_whose_file_is_lost_after_the_check_says_that_the_upload_is_erased(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Client, "upload_rows", lost)
    done = run("datasets", "replace-upload", "census", "ep_1", "rows.csv", "--yes")
    assert done.exit_code == ExitCode.FAILED
    assert "upload ep_1 is erased, and rows.csv was not stored" in done.stderr
    monkeypatch.setattr(Client, "check_replacement", lost)
    done = run("datasets", "replace-upload", "census", "ep_1", "rows.csv", "--yes")
    assert (done.exit_code, "nothing was erased" in done.stderr) == (
        ExitCode.FAILED,
        True,
    )
    assert [request.method for request in service.requests] == ["POST", "DELETE"]


@pytest.mark.parametrize(
    "command", [["upload", "census"], ["replace-upload", "census", "ep_1"]]
)
def test_a_file_that_cannot_be_read_sends_nothing(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    done = run(
        "datasets", *command, "rows.csv", *(["--yes"] if "ep_1" in command else [])
    )
    assert (
        done.exit_code,
        "rows.csv cannot be read: Permission denied" in done.stderr,
    ) == (ExitCode.WRONG_USE, True)
    assert not service.requests


def test_an_upload_insists_only_if_it_is_told_to(run: Run, service: Any) -> None:
    run("datasets", "upload", "census", "rows.csv")
    run(
        "datasets",
        "upload",
        "census",
        "rows.csv",
        "--again",
        "--accept-unknown",
        "--accept-empty",
    )
    assert [dict(request.url.params) for request in service.requests] == [
        {},
        {"again": "true", "accept_unknown": "true", "accept_empty": "true"},
    ]
    service.answers["POST", "/datasets/census/rows"] = (
        409,
        _problem("upload-repeated", 409) | {"upload": "ep_1"},
    )
    refused = run("datasets", "upload", "census", "rows.csv")
    assert (refused.exit_code, "add --again" in refused.stderr) == (
        ExitCode.FAILED,
        True,
    )
    service.answers["POST", "/datasets/census/rows"] = (
        422,
        _problem("upload-empty", 422),
    )
    refused = run("datasets", "upload", "census", "rows.csv")
    assert (refused.exit_code, "add --accept-empty" in refused.stderr) == (
        ExitCode.FAILED,
        True,
    )


def _problem(slug: str, status: int) -> dict[str, Any]:
    return {
        "type": slug,
        "title": slug,
        "status": status,
        "detail": "nothing was stored",
    }


def test_every_kind_of_partition_is_described(run: Run, service: Any) -> None:
    partitions = [
        {"name": "shard", "kind": "hash", "cells": 10},
        {
            "name": "region",
            "kind": "column",
            "column": "land",
            "feature": False,
            "sizes": None,
            "cells": ["EU", "OTHER"],
        },
        {"name": "batch", "kind": "epoch", "how": "one per month"},
    ]
    status, dataset = service.answers["GET", "/datasets/census"]
    service.answers["GET", "/datasets/census"] = (
        status,
        {**dataset, "partitions": partitions},
    )
    shown = " ".join(run("datasets", "show", "census").stdout.split())
    assert (
        "shard (10 hash cells); region (by land: EU, OTHER); batch (by upload: one per month)"
        in shown
    )


def test_a_declaration_is_sent_byte_for_byte(
    run: Run, service: Any, tmp_path: Path
) -> None:
    (tmp_path / "file.json").write_bytes(b'{"budget": {"epsilon": 0.10}}')
    run("datasets", "create", "file.json")
    assert service.requests[-1].content == b'{"budget": {"epsilon": 0.10}}'


def test_a_gzip_file_is_uploaded_as_it_is(
    run: Run, service: Any, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"age\n1\n"))
    run("datasets", "upload", "census", "rows.csv.gz")
    assert service.requests[-1].headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(service.requests[-1].content) == b"age\n1\n"


def test_erasing_asks_first(run: Run, service: Any) -> None:
    for typed in (["datasets", "delete", "census"], ["models", "delete", "md_1"]):
        assert run(*typed, input="n\n").exit_code == 1
        assert service.requests == []
    assert run("datasets", "delete", "census", input="y\n").exit_code == 0


def test_joining_a_population_says_what_it_means_and_asks_first(
    run: Run, service: Any
) -> None:
    typed = ["populations", "join", "census", "patients"]
    result = run(*typed, input="n\n")
    assert result.exit_code == 1
    assert "No dataset leaves a population." in result.stderr
    assert "Join census to patients for good?" in result.stderr
    assert service.requests == []
    assert run(*typed, input="y\n").exit_code == 0
    assert service.body() == {"population": "patients"}


def _counts_rho(service: Any) -> None:
    """Gives the dataset a ρ account."""
    account = {
        "accountant": "zcdp",
        "unit": "rho",
        "cap": "0.04",
        "charged": "0",
        "reserved": "0",
        "remaining": "0.04",
    }
    for method, path in (("GET", "/datasets/census"), ("POST", "/datasets")):
        status, dataset = service.answers[method, path]
        service.answers[method, path] = (status, {**dataset, "account": account})
    guarantee = {
        "add_remove": {"epsilon": "1.5", "delta": "0.000001"},
        "replace_one": {},
        "text": "For any two …",
    }
    balance = {
        **service.answers["GET", "/ledger/census"][1],
        **account,
        "guarantee": guarantee,
    }
    service.answers["GET", "/ledger/ds_1"] = (200, balance)


def test_accounts_in_rho_show_epsilon_and_delta_too(run: Run, service: Any) -> None:
    _counts_rho(service)
    declared = run("datasets", "create", "file.json").stdout
    shown = run("datasets", "show", "census").stdout
    assert "with a lifetime budget of 0.04 ρ: ε = 1.5 at δ = 0.000001" in declared
    assert "ε = 1.5 at δ = 0.000001" in next(
        line for line in shown.splitlines() if line.startswith("guarantee")
    )


@pytest.mark.parametrize(
    ("kind", "words"), [("integer", "a whole number"), ("number", "a number")]
)
def test_a_label_that_is_a_number_is_shown_with_its_bounds(
    run: Run, service: Any, kind: str, words: str
) -> None:
    address = "GET", "/datasets/census"
    dataset = service.answers[address][1]
    label = {"name": "days", "type": kind, "lower": 0, "upper": 1460}
    number = {**dataset, "schema": {**dataset["schema"], "label": label}}
    service.answers[address] = (200, number)
    shown = run("datasets", "show", "census")
    assert shown.exit_code == 0
    assert f"days: {words}, 0 to 1,460" in shown.stdout


@pytest.mark.parametrize(
    "answer", [(403, {"type": "role-missing"}), (503, {"type": "unavailable"})]
)
def test_commands_succeed_if_the_guarantee_cannot_be_read(
    run: Run, service: Any, answer: tuple[int, Any]
) -> None:
    _counts_rho(service)
    service.answers["GET", "/ledger/ds_1"] = answer
    for typed in (["datasets", "create", "file.json"], ["datasets", "show", "census"]):
        result = run(*typed)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "0.04 ρ" in result.stdout
        assert "ε =" not in result.stdout


def test_an_account_that_counts_epsilon_asks_for_no_balance(
    run: Run, service: Any
) -> None:
    assert run("datasets", "show", "census").exit_code == 0
    assert [request.url.path for request in service.requests] == ["/datasets/census"]


def test_the_report_of_an_upload_lists_the_columns_with_counts(
    run: Run, service: Any
) -> None:
    status, report = service.answers["POST", "/datasets/census/rows"]
    clean = {"name": "sex", "clamped": 0, "missing": 0, "unknown": 0}
    service.answers["POST", "/datasets/census/rows"] = (
        status,
        report | {"columns": [*report["columns"], clean]},
    )
    shown = run("datasets", "upload", "census", "rows.csv").stdout
    assert "age" in shown
    assert "sex" not in shown
    assert "the other columns: none" in shown
    service.answers["POST", "/datasets/census/rows"] = (
        status,
        report | {"columns": [clean]},
    )
    assert (
        "no cell was clamped, missing or unknown"
        in run("datasets", "upload", "census", "rows.csv").stdout
    )


def test_a_secret_is_saved_to_a_private_file_and_not_shown(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "ann.key"
    for typed in (["create", "ann"], ["rotate", "key_2"]):
        done = run("keys", *typed, "--save", str(file))
        secret = file.read_text(encoding="utf-8").strip()
        assert secret.startswith("key_2.")
        assert secret not in done.output
        assert file.stat().st_mode & 0o777 == 0o600
        refused = run("keys", *typed, "--save", str(file), "--json")
        assert refused.exit_code == ExitCode.WRONG_USE
        file.unlink()
        assert (
            json.loads(run("keys", *typed, "--save", str(file), "--json").stdout)["key"]
            is None
        )
        file.unlink()


def test_a_change_sends_the_schema_of_a_declaration(run: Run, service: Any) -> None:
    schema = {"features": [], "label": {"name": "income", "classes": ["a", "b"]}}
    Path("d.json").write_text(json.dumps({"name": "census", "schema": schema}))
    done = run("datasets", "change", "census", "d.json")
    assert "changed the columns of census" in done.stdout
    assert "next:" not in done.stdout, "it has rows"
    sent = service.requests[-1]
    assert (sent.method, sent.url.path) == ("PATCH", "/datasets/census")
    assert json.loads(sent.content) == {"schema": schema}
    Path("d.json").write_text("{}")
    assert run("datasets", "change", "census", "d.json").exit_code == ExitCode.WRONG_USE


STATED = {
    "name": "census",
    "schema": {"features": [], "label": {"name": "income", "classes": ["a", "b"]}},
    "budget": {"accountant": "pure", "epsilon": "3"},
    "privacy_unit": {"column": None},
    "protects": "row",
    "partitions": [
        {"name": "shard", "kind": "hash", "cells": 10, "column": None},
        {"name": "site", "kind": "column", "column": "site", "categories": ["a"],
         "sizes": [{"cell": "OTHER", "rows": 0}, {"cell": "a", "rows": 12345},
                   {"cell": "MISSING", "rows": 7}]},
    ],
    "public_size": 29999,
}  # fmt: skip


@pytest.fixture
def declared(service: Any) -> None:
    """The dataset that :data:`STATED` declares, as the service shows it."""
    status, shown = service.answers["GET", "/datasets/census"]
    site = {
        "name": "site", "kind": "column", "column": "site", "feature": False,
        "cells": ["a", "OTHER", "MISSING"], "sizes": [12000, 0, 7],
    }  # fmt: skip
    account = shown["account"] | {"accountant": "pure", "cap": "3"}
    changed = {"partitions": [*shown["partitions"], site], "account": account}
    service.answers["GET", "/datasets/census"] = (status, shown | changed)


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize("epsilon", ["3", "3.0", 3])
def test_a_change_takes_the_declaration_of_the_dataset_however_it_is_written(
    run: Run, service: Any, epsilon: object
) -> None:
    budget = {"accountant": "pure", "epsilon": epsilon}
    Path("d.json").write_text(json.dumps(STATED | {"budget": budget}))
    assert run("datasets", "change", "census", "d.json").exit_code == 0
    assert service.requests[-1].method == "PATCH"


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("name", "other"),
        ("privacy_unit", {"column": "person", "max_rows": 3}),
        ("privacy_unit", {"column": None, "max_rows": 2}),
        ("protects", "label"),
        ("partitions", []),
        ("partitions", [{"name": "shard", "kind": "hash", "cells": 11}]),
        ("public_size", None),
        ("public_size", 40000),
        ("budget", {"accountant": "pure", "epsilon": "4"}),
        ("budget", {"accountant": "gdp", "epsilon": "3", "delta": "1e-6"}),
        ("budget", "3"),
    ],
)
def test_a_change_of_more_than_the_columns_is_refused_with_the_names_of_the_fields(
    run: Run, service: Any, member: str, value: object
) -> None:
    Path("d.json").write_text(json.dumps(STATED | {member: value}))
    done = run("datasets", "change", "census", "d.json")
    assert done.exit_code == ExitCode.WRONG_USE
    said = " ".join(done.stderr.split())
    assert f"another {member} than census has" in said
    assert "never change; declare another dataset" in said
    assert ("grovekeeper ledger cap" in said) == (member == "budget")
    assert [request.method for request in service.requests] == ["GET"]


def test_a_change_rests_on_the_columns_that_were_read(run: Run, service: Any) -> None:
    status, shown = service.answers["GET", "/datasets/census"]
    service.answers["GET", "/datasets/census"] = (status, shown, {"ETag": 'W/"seen"'})
    Path("d.json").write_text(json.dumps({"schema": STATED["schema"]}))
    assert run("datasets", "change", "census", "d.json").exit_code == 0
    assert service.requests[-1].headers["If-Match"] == '"seen"'


def test_dummy_rows_are_written_and_said_to_mean_nothing(
    run: Run, service: Any
) -> None:
    done = run("datasets", "dummy", "census", "3")
    assert done.stdout.split()[0] == "age,sex,income"
    assert len(done.stdout.split()) == 4
    assert "They mean nothing." in done.stderr
    assert [request.method for request in service.requests] == ["GET"]
    assert run("datasets", "dummy", "census", "3").stdout == done.stdout
    assert run("datasets", "dummy", "census", "3", "--seed", "1").stdout != done.stdout
    asked = run("datasets", "dummy", "--help")
    assert "They mean nothing" in " ".join(asked.stdout.split())


def test_dummy_rows_go_to_a_new_file_beside_a_like_declaration(run: Run) -> None:
    files = ["--output", "dummy.csv", "--declaration", "like.json"]
    done = run("datasets", "dummy", "census", "20", *files)
    assert done.exit_code == ExitCode.DONE, done.stderr
    assert done.stdout.startswith("\nnext: grovekeeper datasets create like.json ")
    assert run("datasets", "check", "like.json", "dummy.csv").exit_code == ExitCode.DONE
    again = run("datasets", "dummy", "census", "20", "--output", "dummy.csv")
    assert again.exit_code == ExitCode.WRONG_USE
    assert "exists already" in again.stderr
    other = run("datasets", "dummy", "census", "20", "--output", "rows.xlsx")
    assert "ends in .csv, .parquet" in " ".join(other.stderr.split())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["--output", "rows.xlsx"], "ends in .csv"),
        (["--output", "./like.csv"], "named for the rows and the declaration"),
    ],
)
def test_dummy_rows_that_cannot_be_written_leave_no_file(
    run: Run, service: Any, files: list[str], said: str
) -> None:
    before = set(Path().iterdir())
    done = run("datasets", "dummy", "census", "5", *files, "--declaration", "like.csv")
    assert done.exit_code == ExitCode.WRONG_USE
    assert said in " ".join(done.stderr.split())
    assert set(Path().iterdir()) == before
    assert not service.requests


def test_a_number_of_dummy_rows_has_a_limit(run: Run) -> None:
    done = run("datasets", "dummy", "census", "1000001")
    assert done.exit_code == ExitCode.WRONG_USE
    assert "1000000" in done.stderr


def test_a_like_declaration_comes_with_what_it_lacks(run: Run, service: Any) -> None:
    status, dataset = service.answers["GET", "/datasets/census"]
    account = {"accountant": "gdp", "unit": "mu_squared", "cap": "0.02"}
    dataset = {**dataset, "account": account, "population": "pop_1"}
    service.answers["GET", "/datasets/census"] = status, dataset
    status, balance = service.answers["GET", "/ledger/census"]
    terms = {dataset["adjacency"]: {"epsilon": "1", "delta": "0.000001"}}
    service.answers["GET", "/ledger/census"] = (
        status,
        {**balance, "guarantee": {**balance["guarantee"], **terms}},
    )
    typed = ["datasets", "dummy", "census", "5", "--declaration", "like.json"]
    done = run(*typed)
    assert "more fits in the like dataset" in done.stderr
    assert "names no population" in done.stderr
    Path("like.json").unlink()
    assert len(json.loads(run(*typed, "--json").stdout)["not_alike"]) == 2


def test_dummy_rows_as_json_say_that_they_mean_nothing(run: Run) -> None:
    answer = json.loads(run("datasets", "dummy", "census", "2", "--json").stdout)
    assert answer["note"].endswith("They mean nothing.")
    assert [len(cells) for cells in answer["columns"].values()] == [2, 2, 2]


def test_rows_come_from_standard_input(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    rows = b"age,sex,income\n39,Male,low\n"
    for sent, media_type in (
        (rows, "text/csv"),
        (b"PAR1" + rows, "vnd.apache.parquet"),
    ):
        result = run("datasets", "upload", "census", "-", input=sent)
        assert result.exit_code == ExitCode.DONE, result.output
        assert service.requests[-1].content == sent
        assert media_type in service.requests[-1].headers["Content-Type"]
    assert not list((tmp_path / "temporary").iterdir())


def test_a_terminal_holds_no_rows(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "sys", SimpleNamespace(stdin=_Terminal()))
    result = run("datasets", "upload", "census", "-")
    assert result.exit_code == ExitCode.WRONG_USE
    assert "this is a terminal" in result.stderr
    assert not service.requests


class _Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "typed", [["datasets", "erase-unit", "census"], ["populations", "erase-unit", "p"]]
)
def test_a_unit_on_standard_input_needs_yes(run: Run, typed: list[str]) -> None:
    """Standard input is at its end, so that nobody can confirm there."""
    result = run(*typed, "-", input="ann\n")
    assert result.exit_code == 2
    assert "cannot confirm: add --yes" in result.stderr
