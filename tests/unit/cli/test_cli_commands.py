"""Every client command: what it asks for, what people see, what programs see, how it ends."""

import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress
from typer.testing import Result

from app.cli.exit_codes import ExitCode

Run = Callable[..., Result]

COMMANDS: list[tuple[list[str], list[str]]] = [
    (["datasets", "create", "file.json"], ["lifetime budget of 3 ε", "next: grovekeeper datasets upload census"]),
    (
        ["datasets", "upload", "census", "rows.csv"],
        ["epoch ep_1", "age", "dropped: 4 rows without", ", 7 rows of units", "next: grovekeeper plan census"],
    ),
    (["datasets", "list"], ["census", "ds_1", "1.5"]),
    (["datasets", "show", "census"], ["shard (10 hash cells)", "0 to 120", "Female, Male, or missing", "1.5 ε"]),
    (["datasets", "delete", "census", "--yes"], ["erased the rows of census"]),
    (["datasets", "grant", "census", "key_2", "analyst"], ["key_2 is analyst on census"]),
    (["datasets", "revoke", "census", "key_2"], ["key_2 has no role on census"]),
    (["algorithms"], ["mrf: Multinomial forest", "1 to 9 (by rule)", "a, b (a)"]),
    (
        ["algorithms"],
        [
            "claimed: much",
            "here: noise",
            "accuracy at ε = 1 (pure): adult 84.1 %, magic 83.5 %; table.md",
            "accuracy at ε = 1 (gdp): magic 85.5 %; table.md",
            "proof: proof.md",
        ],
    ),
    (
        ["plan", "census", "-a", "mrf", "-e", "0.1"],
        ["would cost 0.1 ε", "1.5", "note: small data"],
    ),
    (["train", "census", "-a", "mrf", "-e", "0.1"], ["job jb_1", "next: grovekeeper jobs show jb_1 --wait"]),
    (["train", "census", "-a", "mrf", "-e", "0.1", "--wait"], ["trained model md_1", "grovekeeper models show md_1"]),
    (
        ["profiles", "quote", "census", "-e", "0.1", "--delta", "1e-6", "-p", "bins=8", "--scope", "shard=0,1"],
        [
            "a profile on census would cost 0.1 ε",
            "2 counts",
            "release census --epsilon 0.1 --delta 1e-6 --parameter bins=8 --scope shard=0,1",
        ],
    ),
    (["profiles", "release", "census", "-e", "0.1"], ["job jb_1 holds", "next: grovekeeper jobs show jb_1 --wait"]),
    (["profiles", "list", "census"], ["pf_1", "0.1 ε"]),
    (["profiles", "show", "pf_1"], ["151.2", "17.5, 40", "For any two", "--profile pf_1"]),
    (
        ["evaluations", "quote", "md_1", "-e", "0.1", "-m", "accuracy"],
        ["an evaluation on census would cost 0.1 ε", "note: rows were trained on"],
    ),
    (["evaluations", "run", "md_1", "-e", "0.1", "--scope", "shard=1"], ["job jb_1 holds a reservation of 0.1 ε"]),
    (["evaluations", "best", "md_1", "md_2", "-e", "0.1", "--winner-accuracy"], ["job jb_1 holds a reservation"]),
    (["evaluations", "best", "md_1", "md_2", "-e", "0.1", "--quote"], ["a choice among 2 models on census", "0.1 ε"]),
    (["evaluations", "list", "md_1"], ["ev_1", "confusion, auroc", "best", "75.0%"]),
    (["evaluations", "show", "ev_1"], ["75.0% (70.0% to 80.0%)", "0.812 (± 0.010)", "11.5", "note: rows were"]),
    (["jobs", "list"], ["jb_1", "succeeded", "0.1 ε"]),
    (["jobs", "show", "jb_1"], ["8 of 8", "next: grovekeeper models show md_1"]),
    (["jobs", "show", "jb_1", "--wait"], ["trained model md_1"]),
    (["jobs", "cancel", "jb_1"], ["jb_1 is cancelled"]),
    (["models", "list"], ["md_1", "forest"]),
    (["models", "show", "md_1"], ["For any two datasets", "pf_1", "8 trees", "next: grovekeeper predict md_1"]),
    (["models", "delete", "md_1", "--yes"], ["deleted md_1"]),
    (["models", "download", "md_1", "new.safetensors"], ["wrote new.safetensors (8 bytes"]),
    (["models", "download", "md_1", "new.onnx", "--format", "onnx", "--read-out", "ta"], ["wrote new.onnx (8 bytes"]),
    (["predict", "md_1", "rows.csv"], ["P(high)", "0.750"]),
    (["ledger", "show"], ["census", "########====............"]),
    (["ledger", "show", "census"], ["tightest cell: shard=3", "For any two", "next: grovekeeper ledger export census"]),
    (
        ["ledger", "cap", "census", "2", "--reason", "less trust"],
        ["the cap of census is 2 ε from here on; 0.5 ε are left", "next: grovekeeper ledger show census"],
    ),
    (
        ["ledger", "charge", "census", "--description", "a mean", "--epsilon", "0.5"],
        ["Declared: at most ε = 0.5", "charged 0.5 ε to census as rs_2", "next: grovekeeper ledger show census"],
    ),
    (
        ["ledger", "charge", "census", "--description", "a mean", "--event", "file.json", "--quote"],
        ["would cost 0.5 ε; 0.1 left: it does not fit"],
    ),
    (["ledger", "reservations", "census"], ["rs_2", "0.5 ε", "key_3", "a mean"]),
    (["ledger", "entries", "census"], ["open", "abababababab"]),
    (["ledger", "checkpoint", "census"], ["grovekeeper/ledger/ds_1", "— grovekeeper c2ln"]),
    (
        ["ledger", "checkpoint", "census", "new.checkpoint"],
        ["wrote new.checkpoint", "next: grovekeeper verify census.jsonl --checkpoint new.checkpoint --public-key "],
    ),
    (["ledger", "proof", "census", "--from-size", "1"], ['"kind": "consistency"']),
    (["ledger", "proof", "census", "new.json", "--sequence", "1", "--size", "1"], ["wrote new.json"]),
    (["ledger", "signer"], ["-----BEGIN"]),
    (["ledger", "signer", "new.pem"], ["wrote new.pem"]),
    (["ledger", "export", "census", "new.jsonl"], ["wrote new.jsonl (3 bytes)", "next: grovekeeper verify new.jsonl"]),
    (["datasets", "erase-unit", "census", "ann", "--yes"], ["erased 3 rows from census; what was spent stays"]),
    (["datasets", "overlaps", "census"], ["ep_0", "?", "survey", "next: grovekeeper populations join census"]),
    (
        ["populations", "create", "patients", "--epsilon", "3"],
        ["opened patients (pp_1) with a lifetime budget of 3 ε", "next: grovekeeper populations join DATASET patients"],
    ),
    (["populations", "list"], ["patients", "1.5"]),
    (["populations", "show", "patients"], ["at most one row in each", "census", "erased", "For any two worlds"]),
    (["populations", "join", "census", "patients"], ["census belongs to patients"]),
    (
        ["populations", "cap", "patients", "2", "--reason", "less trust"],
        ["the cap of patients is 2 ε from here on; 0.5 ε are left", "next: grovekeeper populations show patients"],
    ),
    (["populations", "entries", "patients"], ["open", "load", "ds_1", "jb_1", "cdcdcdcdcdcd"]),
    (["populations", "checkpoint", "patients"], ["grovekeeper/ledger/ds_1", "— grovekeeper c2ln"]),
    (
        ["populations", "checkpoint", "patients", "new.checkpoint"],
        ["wrote new.checkpoint", "next: grovekeeper verify patients.jsonl --checkpoint new.checkpoint --public-key "],
    ),
    (["populations", "proof", "patients", "--from-size", "1"], ['"kind": "consistency"']),
    (["populations", "proof", "patients", "new.json", "--sequence", "1", "--size", "1"], ["wrote new.json"]),
    (
        ["populations", "export", "patients", "new.jsonl"],
        ["wrote new.jsonl (3 bytes)", "next: grovekeeper verify new.jsonl"],
    ),
    (["keys", "create", "ann"], ["key_2." + "t" * 43, "next: grovekeeper datasets grant DATASET key_2 analyst"]),
    (["keys", "list"], ["ann", "auditor"]),
    (["keys", "revoke", "key_2"], ["key_2 opens nothing"]),
]


@pytest.fixture(autouse=True)
def files(service: object, tmp_path: Path) -> None:
    """What the commands above read."""
    (tmp_path / "file.json").write_text('{"name": "census"}')
    (tmp_path / "rows.csv").write_text("age,sex,income\n39,Male,low\n")


@pytest.mark.parametrize(("typed", "shown"), COMMANDS)
def test_people_see_what_they_need_next(run: Run, typed: list[str], shown: list[str]) -> None:
    result = run(*typed)
    assert (result.exit_code, result.exception) == (0, None), result.output
    for text in shown:
        assert text in result.stdout


@pytest.mark.parametrize("typed", [typed for typed, _ in COMMANDS])
def test_json_is_one_value_and_nothing_else_on_stdout(run: Run, typed: list[str]) -> None:
    result = run(*typed, "--json")
    assert result.exit_code == 0
    assert isinstance(json.loads(result.stdout), dict)
    assert result.stderr == ""


@pytest.mark.parametrize("typed", [typed for typed, _ in COMMANDS])
def test_every_command_ends_with_5_when_nothing_answers(run: Run, service: Any, typed: list[str]) -> None:
    service.is_down = True
    result = run(*typed)
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "nothing listens there" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("status", "problem", "code"),
    [
        (409, "budget-exceeded", 3),
        (401, "unauthenticated", 4),
        (403, "role-missing", 4),
        (503, "unavailable", 5),
        (429, "too-many-requests", 5),
        (400, "malformed-request", 2),
        (422, "invalid-request", 2),
        (422, "idempotency-key-reused", 2),
        (422, "not-supported", 2),
        (404, "not-found", 1),
        (409, "no-rows-yet", 1),
        (409, "dataset-deleted", 1),
        (409, "accountant-mismatch", 1),
        (500, "internal", 1),
    ],
)
def test_exit_codes_are_those_of_the_contract(run: Run, service: Any, status: int, problem: str, code: int) -> None:
    service.answers["POST", "/train"] = (status, {"type": problem})
    typed = ["train", "census", "-a", "mrf", "-e", "1"]
    result = run(*typed)
    assert (result.exit_code, result.stdout) == (code, "")
    assert "a sentence" in result.stderr
    result = run(*typed, "--json")
    assert (result.exit_code, result.stderr) == (code, "")
    assert json.loads(result.stdout)["type"] == problem


def test_a_refusal_says_what_would_fit(run: Run, service: Any) -> None:
    service.answers["POST", "/train"] = (409, {"type": "budget-exceeded", "largest_that_fits": "0.7"})
    result = run("train", "census", "-a", "mrf", "-e", "5")
    assert result.stderr.splitlines() == ["refused: a sentence", "  largest ε that fits: 0.7"]


def test_problems_of_fields_and_columns_are_listed(run: Run, service: Any) -> None:
    trees = {"at": "/parameters/n_estimators", "problem": "too-large", "limit": 63}
    errors = [{"at": "/epsilon", "problem": "not-positive"}, trees]
    service.answers["POST", "/plans"] = (422, {"type": "invalid-request", "errors": errors})
    assert run("plan", "census", "-a", "mrf", "-e", "0").stderr.splitlines()[1:] == [
        "  /epsilon: not-positive",
        "  /parameters/n_estimators: too-large; at most 63 here",
    ]
    columns = [{"name": "", "problem": "unknown-column", "count": 2}, {"name": "age", "problem": "empty", "count": 7}]
    service.answers["POST", "/datasets/census/rows"] = (422, {"type": "rows-invalid", "columns": columns})
    result = run("datasets", "upload", "census", "rows.csv")
    assert result.exit_code == 1
    assert "  (not declared): unknown-column, 2 times" in result.stderr
    assert "  age: empty, 7 times" in result.stderr


def test_delta_goes_out_as_it_was_typed(run: Run, service: Any) -> None:
    run("plan", "census", "--algorithm", "nbrt", "--epsilon", "1", "--delta", "1e-6")
    assert (service.body()["epsilon"], service.body()["delta"]) == ("1", "1e-6")


def test_a_balance_tells_the_delta_that_is_set_aside(run: Run, service: Any) -> None:
    delta = {"set_aside": "0.0000002", "charged": "0.0000001", "remaining": "0.0000001"}
    balance = service.answers["GET", "/ledger/census"][1] | {"delta_set_aside": delta}
    service.answers["GET", "/ledger/census"] = (200, balance)
    told = run("ledger", "show", "census").stdout
    assert "δ set aside: 0.0000001 of 0.0000002 charged, 0.0000001 left" in told


def test_a_charge_for_elsewhere_goes_out_as_it_was_typed(run: Run, service: Any, tmp_path: Path) -> None:
    stated = ["--epsilon", "0.50", "--delta", "1e-7", "--per", "unit", "--scope", '{"shard": [1]}']
    run("ledger", "charge", "census", "--description", "a mean", *stated, "--idempotency-key", "k")
    declared = {"adjacency": "add_remove", "epsilon": "0.50", "delta": "1e-7"}
    assert service.body() == {
        "description": "a mean", "per": "unit", "scope": {"shard": [1]}, "declared": declared,
    }  # fmt: skip
    assert service.requests[-1].headers["Idempotency-Key"] == "k"
    (tmp_path / "event.json").write_text('{"type": "sequential/1", "parts": []}')
    run("ledger", "charge", "census", "--description", "a mean", "--event", "event.json")
    event = {"type": "sequential/1", "parts": []}
    assert service.body() == {"description": "a mean", "per": "row", "scope": {}, "event": event}


def test_epsilon_and_parameters_go_out_as_they_were_typed(run: Run, service: Any) -> None:
    run(
        "train", "census", "--algorithm", "mrf", "--epsilon", "0.100000000000000001", "--name", "mine",
        "-p", "n_estimators=16", "-p", "assignment=sharded", "--scope", '{"shard": [0, 1]}', "--idempotency-key", "k",
    )  # fmt: skip
    assert service.body() == {
        "dataset": "census",
        "algorithm": "mrf",
        "epsilon": "0.100000000000000001",
        "parameters": {"n_estimators": 16, "assignment": "sharded"},
        "scope": {"shard": [0, 1]},
        "name": "mine",
    }
    assert service.requests[-1].headers["Idempotency-Key"] == "k"


def test_a_scope_is_typed_in_words_or_in_json(run: Run, service: Any) -> None:
    asked = ["plan", "census", "-a", "mrf", "-e", "1"]
    run(*asked, "--scope", "region=EU,OTHER", "--scope", "shard=0,12", "--scope", "region=US")
    assert service.body()["scope"] == {"region": ["EU", "OTHER", "US"], "shard": [0, 12]}
    run("ledger", "show", "census", "--scope", "region=EU")
    assert json.loads(service.requests[-1].url.params["scope"]) == {"region": ["EU"]}
    run("ledger", "show", "census")
    assert "scope" not in service.requests[-1].url.params


def test_a_cell_of_digits_is_what_the_declaration_says_it_is(run: Run, service: Any) -> None:
    status, dataset = service.answers["GET", "/datasets/census"]
    code = {"name": "code", "kind": "column", "column": "code", "feature": False, "sizes": None, "cells": ["1", "2"]}
    declared = {**dataset, "partitions": [*dataset["partitions"], code]}
    service.answers["GET", "/datasets/census"] = service.answers["GET", "/datasets/ds_1"] = (status, declared)
    typed = ["--scope", "code=1,OTHER", "--scope", "shard=1"]
    meant = {"code": ["1", "OTHER"], "shard": [1]}

    for asked in (["plan", "census", "-a", "mrf"], ["profiles", "quote", "census"], ["evaluations", "quote", "md_1"]):
        run(*asked, "-e", "1", *typed)
        assert service.body()["scope"] == meant
    run("evaluations", "best", "md_1", "md_2", "-e", "1", "--dataset", "census", *typed)
    assert service.body()["scope"] == meant
    run("ledger", "charge", "census", "--description", "x", "--rho", "1", *typed)
    assert service.body()["scope"] == meant
    run("ledger", "show", "census", *typed)
    assert json.loads(service.requests[-1].url.params["scope"]) == meant
    run("plan", "ds_1", "-a", "sspe-1", "-e", "1", "--unlabelled", "census", "--unlabelled-scope", "code=2")
    assert service.body()["unlabelled"]["scope"] == {"code": ["2"]}


def test_a_refused_statement_is_not_told_the_epsilon_of_a_job(run: Run, service: Any) -> None:
    refusal = {"type": "budget-exceeded", "largest_that_fits": "0.7"}
    service.answers["POST", "/ledger/census/reservations"] = (409, refusal)
    charge = ["ledger", "charge", "census", "--description", "x"]
    for stated in (["--rho", "1"], ["--mu", "1"], ["--event", "file.json"]):
        result = run(*charge, *stated)
        assert (result.exit_code, result.stderr) == (ExitCode.REFUSED, "refused: a sentence\n")
        assert json.loads(run(*charge, *stated, "--json").stdout)["largest_that_fits"] == "0.7"
    assert "largest ε that fits: 0.7" in run(*charge, "--epsilon", "1").stderr


@pytest.mark.parametrize(
    ("kind", "n_trees", "doing"),
    [
        ("train", 3, "running"),
        ("profile", 0, "counting rows for a profile"),
        ("evaluation", 0, "counting answers for an evaluation"),
    ],
)
def test_jobs_that_grow_no_trees_say_what_they_do(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch, *, kind: str, n_trees: int, doing: str
) -> None:
    ended = {**service.answers["GET", "/jobs/jb_1"][1], "kind": kind, "trees_done": n_trees, "n_trees": n_trees}
    running = {**ended, "state": "running", "trees_done": 0}
    answers = iter([running, running, running, ended])
    monkeypatch.setattr("app.client.client.Client.func.job", lambda *_: next(answers))
    told: list[str] = []
    update = Progress.update

    def seen(progress: Progress, *bar: Any, description: str, **changes: Any) -> None:
        told.append(description)
        update(progress, *bar, description=description, **changes)

    monkeypatch.setattr(Progress, "update", seen)
    shown = run("jobs", "show", "jb_1", "--wait").stderr
    assert told == [doing, "succeeded"]
    assert ("3/3 trees" in shown) is (kind == "train")
    assert "0/0" not in shown


def test_the_next_command_names_a_delta_where_one_is_needed(run: Run, service: Any) -> None:
    assert "--delta" not in run("datasets", "upload", "census", "rows.csv").stdout
    assert "--delta" not in run("profiles", "show", "pf_1").stdout
    dataset = service.answers["GET", "/datasets/census"][1]
    account = {**dataset["account"], "accountant": "gdp", "unit": "mu_squared"}
    service.answers["GET", "/datasets/census"] = (200, {**dataset, "account": account})
    last = run("datasets", "upload", "census", "rows.csv").stdout.splitlines()[-1]
    assert last == "next: grovekeeper plan census --algorithm auto --epsilon 1 --delta 1e-6"
    profile = service.answers["GET", "/profiles/pf_1"][1]
    service.answers["GET", "/profiles/pf_1"] = (200, {**profile, "price": {**profile["price"], "delta": "0.0001"}})
    last = run("profiles", "show", "pf_1").stdout.splitlines()[-1]
    assert last == "next: grovekeeper plan census --algorithm auto --epsilon 1 --delta 0.0001 --profile pf_1"


def test_a_key_whose_roles_mean_nothing_by_themselves_is_to_be_granted_one(run: Run) -> None:
    granted = "next: grovekeeper datasets grant DATASET key_2"
    assert f"{granted} analyst" in run("keys", "create", "ann").stdout
    assert f"{granted} predictor" in run("keys", "create", "ann", "--role", "predictor").stdout
    assert granted not in run("keys", "create", "ann", "--role", "predictor", "--role", "auditor").stdout


def test_a_job_on_two_datasets_says_both_prices(run: Run, service: Any) -> None:
    job = service.answers["GET", "/jobs/jb_1"][1]
    also = {"dataset": "ds_2", "dataset_name": "register", "reservation_id": "rs_2", "price": job["price"]}
    service.answers["GET", "/jobs/jb_1"] = (200, {**job, "unlabelled": also})
    assert "0.1 ε on census, 0.1 ε on register" in run("jobs", "show", "jb_1").stdout


@pytest.mark.parametrize(
    "typed",
    [["datasets", "delete", "census"], ["datasets", "erase-unit", "census", "ann"], ["models", "delete", "md_1"]],
)
def test_a_program_is_not_asked_but_told_to_confirm(run: Run, service: Any, typed: list[str]) -> None:
    result = run(*typed, "--json", input="y\n")
    assert (result.exit_code, result.stderr) == (ExitCode.WRONG_USE, "")
    assert json.loads(result.stdout)["type"] == "wrong-use"
    assert not service.requests


def test_the_cells_of_a_balance_are_shown_as_far_as_they_can_be_read(run: Run, service: Any) -> None:
    amounts = {"charged": "1", "reserved": "0", "remaining": "2"}
    partitions = [
        {"name": "region", "kind": "column", "cells": [{"cell": cell, **amounts} for cell in ("EU", "OTHER")]},
        {"name": "shard", "kind": "hash", "cells": [{"cell": cell, **amounts} for cell in range(100)]},
        {"name": "batch", "kind": "epoch", "cells": []},
    ]
    balance = {**service.answers["GET", "/ledger/census"][1], "partitions": partitions, "exact": False}
    service.answers["GET", "/ledger/census"] = (200, balance)
    shown = run("ledger", "show", "census").stdout
    assert "OTHER" in shown
    assert "shard: 100 cells; see --json" in shown
    assert "no uploads yet" in shown
    assert "upper bound" in shown
    assert "largest ε that fits: 0.5" in shown


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
    service.answers["GET", "/datasets/census"] = (status, {**dataset, "partitions": partitions})
    shown = " ".join(run("datasets", "show", "census").stdout.split())
    assert "shard (10 hash cells); region (by land: EU, OTHER); batch (by upload: one per month)" in shown


def test_the_next_command_asks_for_the_very_plan_that_was_quoted(run: Run) -> None:
    typed = ["census", "--algorithm", "mrf", "--epsilon", "0.1", "--parameter", "n_estimators=2"]
    result = run("plan", *typed, "--scope", '{"shard": [0]}')
    following = result.stdout.splitlines()[-1].removeprefix("next: ")
    assert shlex.split(following) == ["grovekeeper", "train", *typed, "--scope", '{"shard": [0]}', "--wait"]


SECOND = ["--unlabelled", "register", "--unlabelled-epsilon", "2", "--unlabelled-delta", "1e-6"]


def test_a_second_dataset_goes_out_as_it_was_typed_and_into_the_next_command(run: Run, service: Any) -> None:
    typed = ["census", "--algorithm", "sspe-1", "--epsilon", "0.1", *SECOND, "--unlabelled-scope", '{"shard": [1]}']
    plan = service.answers["POST", "/plans"][1]
    part = {name: plan[name] for name in ("dataset", "price", "receipt", "fits", "largest_that_fits")}
    service.answers["POST", "/plans"] = (200, {**plan, "unlabelled": {**part, "dataset_name": "register"}})
    result = run("plan", *typed)
    following = result.stdout.splitlines()[-1].removeprefix("next: ")

    assert json.loads(service.requests[-1].content)["unlabelled"] == {
        "dataset": "register", "epsilon": "2", "delta": "1e-6", "scope": {"shard": [1]},
    }  # fmt: skip
    assert "on census would cost 0.1 ε" in result.stdout
    assert "on register would cost 0.1 ε" in result.stdout
    assert shlex.split(following) == ["grovekeeper", "train", *typed, "--wait"]


def test_a_second_dataset_pays_the_same_unless_told_otherwise(run: Run, service: Any) -> None:
    run("plan", "census", "-a", "sspe-1", "-e", "0.1", "--unlabelled", "register")
    assert json.loads(service.requests[-1].content)["unlabelled"] == {"dataset": "register", "epsilon": "0.1"}


def test_no_next_step_where_the_second_account_does_not_have_it(run: Run, service: Any) -> None:
    plan = service.answers["POST", "/plans"][1]
    service.answers["POST", "/plans"] = (200, {**plan, "unlabelled": {**plan, "fits": False}})
    assert "next:" not in run("plan", "census", "-a", "sspe-1", "-e", "1", "--unlabelled", "register").stdout


def test_what_both_accounts_hold_is_said(run: Run, service: Any) -> None:
    status, accepted = service.answers["POST", "/train"]
    also = {"dataset": "ds_2", "dataset_name": "register", "reservation_id": "rs_2", "price": accepted["price"]}
    service.answers["POST", "/train"] = (status, {**accepted, "unlabelled": also})
    said = run("train", "census", "-a", "sspe-1", "-e", "0.1", "--unlabelled", "register").stdout
    assert "and one of 0.1 ε on register" in said


def test_a_plan_that_does_not_fit_is_an_answer_without_a_next_step(run: Run, service: Any) -> None:
    plan = {**service.answers["POST", "/plans"][1], "fits": False}
    service.answers["POST", "/plans"] = (200, plan)
    result = run("plan", "census", "-a", "mrf", "-e", "9")
    assert result.exit_code == 0
    assert "It does not fit" in result.stdout
    assert "next:" not in result.stdout


def test_an_internal_error_names_the_request(run: Run, service: Any) -> None:
    service.answers["GET", "/datasets"] = (500, {"type": "internal"})
    result = run("datasets", "list")
    assert result.exit_code == 1
    assert "request id: rq_1" in result.stderr


def test_a_declaration_is_sent_byte_for_byte(run: Run, service: Any, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(b'{"budget": {"epsilon": 0.10}}')
    run("datasets", "create", "file.json")
    assert service.requests[-1].content == b'{"budget": {"epsilon": 0.10}}'


def test_a_gzip_file_is_uploaded_as_it_is(run: Run, service: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"age\n1\n"))
    run("datasets", "upload", "census", "rows.csv.gz")
    assert service.requests[-1].headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(service.requests[-1].content) == b"age\n1\n"


@pytest.mark.parametrize(
    "typed",
    [
        ["datasets", "create"],
        ["datasets", "create", "absent.json"],
        ["datasets", "upload", "census", "absent.csv"],
        ["plan", "census", "-a", "mrf"],
        ["plan", "census", "-a", "mrf", "-e", "1", "-p", "n_estimators"],
        ["plan", "census", "-a", "mrf", "-e", "1", "--scope", "[1]"],
        ["plan", "census", "-a", "sspe-1", "-e", "1", "--unlabelled-epsilon", "1"],
        ["ledger", "show", "census", "--scope", "{"],
        ["ledger", "show", "census", "--scope", "region"],
        ["ledger", "show", "census", "--scope", "region="],
        ["ledger", "show", "census", "--scope", "=EU"],
        ["ledger", "show", "census", "--scope", '{"shard": [0]}', "--scope", "region=EU"],
        ["ledger", "charge", "census", "--description", "x"],
        ["ledger", "charge", "census", "--description", "x", "--rho", "1", "--event", "file.json"],
        ["ledger", "charge", "census", "--description", "x", "--event", "rows.csv"],
        ["ledger", "charge", "census", "--description", "x", "--event", "absent.json"],
        ["ledger", "export", "census", "rows.csv"],
        ["ledger", "checkpoint", "census", "rows.csv"],
        ["ledger", "signer", "rows.csv"],
        ["ledger", "proof", "census"],
        ["ledger", "proof", "census", "--sequence", "1", "--from-size", "1"],
        ["ledger", "proof", "census", "--sequence", "0"],
        ["verify", "rows.csv", "--checkpoint", "rows.csv"],
        ["verify", "rows.csv", "--public-key", "rows.csv"],
        ["ledger", "export", "census", "no/such/folder.jsonl"],
        ["models", "download", "md_1", "rows.csv"],
        ["predict", "md_1", "absent.csv"],
        ["datasets", "list", "--url", "ftp://grove.test"],
        ["datasets", "list", "--key-file", "absent.key"],
        ["no-such-command"],
        ["algorithms", "no-such-forest"],
        ["verify"],
        ["verify", "absent.jsonl"],
    ],
)
def test_wrong_use_ends_with_2_and_changes_nothing(run: Run, service: Any, typed: list[str], tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    result = run(*typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert [request.method for request in service.requests] in ([], ["GET"])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_algorithms_are_shown_by_name(run: Run, service: Any) -> None:
    ((status, listed),) = [service.answers["GET", "/algorithms"]]
    other = {**listed["algorithms"][0], "slug": "rdt-ta", "title": "Random trees"}
    service.answers["GET", "/algorithms"] = (status, {"algorithms": [*listed["algorithms"], other]})

    shown = run("algorithms", "rdt-ta").stdout
    assert "rdt-ta: Random trees" in shown
    assert "accounts: pure" in shown
    assert "mrf" not in shown
    told = json.loads(run("algorithms", "mrf", "--json").stdout)
    assert [item["slug"] for item in told["algorithms"]] == ["mrf"]
    assert len(json.loads(run("algorithms", "--json").stdout)["algorithms"]) == 2


def test_a_job_that_did_not_succeed_ends_with_1(run: Run, service: Any) -> None:
    service.answers["GET", "/jobs/jb_1"] = (
        200, {**service.answers["GET", "/jobs/jb_1"][1], "state": "failed", "reason": "lost", "model_id": None},
    )  # fmt: skip
    for typed in (["train", "census", "-a", "mrf", "-e", "1", "--wait"], ["jobs", "show", "jb_1", "--wait"]):
        result = run(*typed)
        assert result.exit_code == 1
        assert "job jb_1 failed: lost" in result.stderr
        assert "trained model" not in result.stdout
        assert json.loads(run(*typed, "--json").stdout)["state"] == "failed"


def test_a_model_that_is_not_the_one_on_the_card_is_not_kept(run: Run, service: Any, tmp_path: Path) -> None:
    service.answers["GET", "/models/md_1/artifact"] = (200, b"something else")
    result = run("models", "download", "md_1", "new.safetensors")
    assert result.exit_code == 1
    assert not (tmp_path / "new.safetensors").exists()


def test_erasing_asks_first(run: Run, service: Any) -> None:
    for typed in (["datasets", "delete", "census"], ["models", "delete", "md_1"]):
        assert run(*typed, input="n\n").exit_code == 1
        assert service.requests == []
    assert run("datasets", "delete", "census", input="y\n").exit_code == 0


def test_the_key_comes_from_the_option_then_the_environment_then_the_home(
    run: Run, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "admin.key").write_text("key_home." + "h" * 43 + "\n")
    (tmp_path / "mine.key").write_text("key_file." + "f" * 43 + "\n")

    def sent(*options: str) -> str:
        assert run("datasets", "list", *options).exit_code == 0
        return str(service.requests[-1].headers["Authorization"]).removeprefix("Bearer ").split(".")[0]

    assert sent("--key-file", "mine.key") == "key_file"
    assert sent() == "key_test"
    monkeypatch.delenv("GROVEKEEPER_API_KEY")
    assert sent() == "key_home"
    (tmp_path / "home" / "admin.key").unlink()
    result = run("datasets", "list")
    assert result.exit_code == ExitCode.NOT_ALLOWED
    assert "GROVEKEEPER_API_KEY" in result.stderr


def test_the_address_comes_from_the_option_then_the_environment(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("datasets", "list")
    monkeypatch.setenv("GROVEKEEPER_URL", "http://env.test")
    run("datasets", "list")
    run("datasets", "list", "--url", "http://option.test:1")
    asked = [f"{request.url.host}:{request.url.port}" for request in service.requests]
    assert asked == ["127.0.0.1:8731", "env.test:None", "option.test:1"]


def test_texts_of_the_service_are_never_read_as_markup(run: Run, service: Any) -> None:
    model = {**service.answers["GET", "/models/md_1"][1], "name": "[red]forest[/red] [/x]"}
    service.answers["GET", "/models"] = (200, {"models": [model], "next": None})
    assert "[red]forest[/red] [/x]" in run("models", "list").stdout


def test_interrupting_a_wait_says_that_the_job_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.client.client.Client.func.wait_for_job", interrupted)
    result = run("train", "census", "-a", "mrf", "-e", "1", "--wait")
    assert result.exit_code == 1
    assert "the job goes on; follow it with: grovekeeper jobs show jb_1 --wait" in result.stderr
