"""The commands for plans, jobs and models: values are sent as typed, and the output
suggests the next command.
"""

import errno
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress
from typer.testing import Result

from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_client.errors import ApiProblem, Unreachable
from grovekeeper_common.job_words import HOLDS

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")


def test_delta_goes_out_as_it_was_typed(run: Run, service: Any) -> None:
    run("plan", "census", "--algorithm", "nbrt", "--epsilon", "1", "--delta", "1e-6")
    assert (service.body()["epsilon"], service.body()["delta"]) == ("1", "1e-6")


def test_epsilon_and_parameters_go_out_as_they_were_typed(
    run: Run, service: Any
) -> None:
    run(
        "train", "census", "--algorithm", "mrf", "--epsilon", "0.100000000000000001", "--name", "mine",
        "--purpose", "a pilot", "--label", "ill",
        "-p", "n_estimators=16", "-p", "assignment=sharded", "--scope", '{"shard": [0, 1]}', "--idempotency-key", "k",
    )  # fmt: skip
    assert service.body() == {
        "dataset": "census",
        "algorithm": "mrf",
        "epsilon": "0.100000000000000001",
        "parameters": {"n_estimators": 16, "assignment": "sharded"},
        "scope": {"shard": [0, 1]},
        "label": "ill",
        "name": "mine",
        "purpose": "a pilot",
    }
    assert service.requests[-1].headers["Idempotency-Key"] == "k"


def test_a_scope_is_typed_in_words_or_in_json(run: Run, service: Any) -> None:
    requested = ["plan", "census", "-a", "mrf", "-e", "1"]
    run(
        *requested,
        "--scope",
        "region=EU,OTHER",
        "--scope",
        "shard=0,12",
        "--scope",
        "region=US",
    )
    assert service.body()["scope"] == {
        "region": ["EU", "OTHER", "US"],
        "shard": [0, 12],
    }
    run("ledger", "show", "census", "--scope", "region=EU")
    assert json.loads(service.requests[-1].url.params["scope"]) == {"region": ["EU"]}
    run("ledger", "show", "census")
    assert "scope" not in service.requests[-1].url.params


def test_a_cell_of_digits_is_what_the_declaration_says_it_is(
    run: Run, service: Any
) -> None:
    status, dataset = service.answers["GET", "/datasets/census"]
    code = {
        "name": "code",
        "kind": "column",
        "column": "code",
        "feature": False,
        "sizes": None,
        "cells": ["1", "2"],
    }
    declared = {**dataset, "partitions": [*dataset["partitions"], code]}
    service.answers["GET", "/datasets/census"] = service.answers[
        "GET", "/datasets/ds_1"
    ] = (status, declared)
    typed = ["--scope", "code=1-2,OTHER", "--scope", "shard=1,5-7,9–10,20‑21,4-3,a-b"]
    shards = [1, 5, 6, 7, 9, 10, 20, 21, "4-3", "a-b"]
    meant = {"code": ["1-2", "OTHER"], "shard": shards}

    for asked in (
        ["plan", "census", "-a", "mrf"],
        ["profiles", "quote", "census"],
        ["evaluations", "quote", "md_1"],
    ):
        run(*asked, "-e", "1", *typed)
        assert service.body()["scope"] == meant
    run("evaluations", "best", "md_1", "md_2", "-e", "1", "--dataset", "census", *typed)
    assert service.body()["scope"] == meant
    run("ledger", "charge", "census", "--description", "x", "--rho", "1", *typed)
    assert service.body()["scope"] == meant
    run("ledger", "show", "census", *typed)
    assert json.loads(service.requests[-1].url.params["scope"]) == meant
    run(
        "plan",
        "ds_1",
        "-a",
        "sspe-1",
        "-e",
        "1",
        "--unlabelled",
        "census",
        "--unlabelled-scope",
        "code=2",
    )
    assert service.body()["unlabelled"]["scope"] == {"code": ["2"]}


@pytest.mark.parametrize(
    ("kind", "n_trees", "doing"),
    [
        ("train", 3, "running"),
        ("profile", 0, "counting rows for a profile"),
        ("evaluation", 0, "counting answers for an evaluation"),
    ],
)
def test_jobs_that_grow_no_trees_say_what_they_do(
    run: Run,
    service: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    kind: str,
    n_trees: int,
    doing: str,
) -> None:
    ended = {
        **service.answers["GET", "/jobs/jb_1"][1],
        "kind": kind,
        "trees_done": n_trees,
        "n_trees": n_trees,
    }
    running = {**ended, "state": "running", "trees_done": 0}
    answers = [{**running, "preparing": True}, running, running, ended]
    monkeypatch.setattr(
        "grovekeeper_client.client.Client.func.follow_job",
        lambda *_, **__: iter(answers),
    )
    service.answers["GET", "/jobs/jb_1"] = (200, running)
    reports: list[str] = []
    update = Progress.update

    def seen(progress: Progress, *bar: Any, description: str, **changes: Any) -> None:
        reports.append(description)
        update(progress, *bar, description=description, **changes)

    monkeypatch.setattr(Progress, "update", seen)
    shown = run("jobs", "show", "jb_1", "--wait").stderr
    assert reports == ["preparing this machine, once", doing, "succeeded"]
    assert ("3/3 trees" in shown) is (kind == "train")
    assert "0/0" not in shown


@pytest.mark.parametrize("state", ["waiting", "queued", "running"])
def test_a_wait_ends_before_a_job_that_goes_on(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch, *, state: str
) -> None:
    """An approval may take a week; a queue may be long, so a wait can have a limit."""
    job = {**service.answers["GET", "/jobs/jb_1"][1], "state": state, "trees_done": 0}
    service.answers["GET", "/jobs/jb_1"] = (200, job)

    def followed(*_: object, **__: object) -> Iterator[dict[str, Any]]:
        yield job
        raise AssertionError("the command goes on waiting")

    if state == "waiting":
        monkeypatch.setattr(
            "grovekeeper_client.client.Client.func.follow_job", followed
        )
    limit = [] if state == "waiting" else ["--timeout", "0"]
    shown = run("jobs", "show", "jb_1", "--wait", *limit)
    assert shown.exit_code == ExitCode.GOES_ON == 6
    assert "grovekeeper jobs show jb_1 --wait" in shown.stderr
    assert ("waits for an approval" in shown.stderr) == (state == "waiting")
    assert (
        json.loads(run("jobs", "show", "jb_1", "--wait", *limit, "--json").stdout)[
            "state"
        ]
        == state
    )


@pytest.mark.parametrize(
    ("held_by", "why"), [("frozen", "is frozen"), ("erasure-due", "the date has come")]
)
def test_a_queued_job_that_no_worker_may_start_says_why_and_a_wait_for_it_ends(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch, held_by: str, why: str
) -> None:
    job = {
        **service.answers["GET", "/jobs/jb_1"][1],
        "state": "queued",
        "held_by": held_by,
        "charged": False,
    }
    service.answers["GET", "/jobs/jb_1"] = (200, job)
    service.answers["GET", "/jobs"] = (200, {"jobs": [job], "next": None})

    def followed(*_: object, **__: object) -> Iterator[dict[str, Any]]:
        yield job
        raise AssertionError("the command goes on waiting")

    monkeypatch.setattr("grovekeeper_client.client.Client.func.follow_job", followed)
    for typed in (
        ["jobs", "show", "jb_1", "--wait"],
        ["train", "census", "--epsilon", "0.1", "--wait"],
    ):
        waited = run(*typed)
        assert waited.exit_code == ExitCode.GOES_ON
        assert why in waited.stderr
    assert why in run("jobs", "show", "jb_1").stdout
    assert f"queued: {HOLDS[held_by]}" in run("jobs", "list").stdout


@pytest.mark.parametrize("seconds", ["nan", "-1", "-inf"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(
    run: Run, service: Any, seconds: str
) -> None:
    refused = run("jobs", "show", "jb_1", "--wait", f"--timeout={seconds}")
    assert (refused.exit_code, service.requests) == (2, [])
    assert "--timeout" in refused.stderr
    assert "not a number of seconds, 0 or more" in refused.stderr


@pytest.mark.parametrize(
    "typed",
    [["datasets", "upload", "census", "rows.csv"], ["profiles", "show", "pf_1"]],
)
def test_the_next_command_is_a_quote(run: Run, typed: list[str]) -> None:
    assert (
        run(*typed)
        .stdout.splitlines()[-1]
        .split("next: ")[-1]
        .strip()
        .startswith("grovekeeper plan census --epsilon 1")
    )


def test_a_job_on_two_datasets_says_both_prices(run: Run, service: Any) -> None:
    job = service.answers["GET", "/jobs/jb_1"][1]
    also = {
        "dataset": "ds_2",
        "dataset_name": "register",
        "reservation_id": "rs_2",
        "price": job["price"],
    }
    service.answers["GET", "/jobs/jb_1"] = (200, {**job, "unlabelled": also})
    assert "0.1 ε on census, 0.1 ε on register" in run("jobs", "show", "jb_1").stdout


def test_the_next_command_asks_for_the_very_plan_that_was_quoted(run: Run) -> None:
    typed = [
        "census",
        "--algorithm",
        "mrf",
        "--epsilon",
        "0.1",
        "--parameter",
        "n_estimators=2",
    ]
    result = run("plan", *typed, "--scope", '{"shard": [0]}')
    following = result.stdout.splitlines()[-1].removeprefix("next: ")
    assert shlex.split(following) == [
        "grovekeeper",
        "train",
        *typed,
        "--scope",
        '{"shard": [0]}',
        "--wait",
    ]


SECOND = [
    "--unlabelled",
    "register",
    "--unlabelled-epsilon",
    "2",
    "--unlabelled-delta",
    "1e-6",
]


def test_a_second_dataset_goes_out_as_it_was_typed_and_into_the_next_command(
    run: Run, service: Any
) -> None:
    typed = [
        "census",
        "--algorithm",
        "sspe-1",
        "--epsilon",
        "0.1",
        *SECOND,
        "--unlabelled-scope",
        '{"shard": [1]}',
    ]
    plan = service.answers["POST", "/plans"][1]
    part = {
        name: value
        for name, value in plan.items()
        if name not in ("algorithm", "why", "parameters", "warnings")
    }
    service.answers["POST", "/plans"] = (
        200,
        {**plan, "unlabelled": {**part, "dataset_name": "register"}},
    )
    result = run("plan", *typed)
    following = result.stdout.splitlines()[-1].removeprefix("next: ")

    assert json.loads(service.requests[-1].content)["unlabelled"] == {
        "dataset": "register", "epsilon": "2", "delta": "1e-6", "scope": {"shard": [1]},
    }  # fmt: skip
    assert (
        "mrf, its part with labels, on census\n  price                ε = 0.1 "
        in result.stdout
    )
    assert (
        "mrf, its part without labels, on register\n  price                ε = 0.1 "
        in result.stdout
    )
    assert shlex.split(following) == ["grovekeeper", "train", *typed, "--wait"]


def test_a_second_dataset_pays_the_same_unless_told_otherwise(
    run: Run, service: Any
) -> None:
    run("plan", "census", "-a", "sspe-1", "-e", "0.1", "--unlabelled", "register")
    assert json.loads(service.requests[-1].content)["unlabelled"] == {
        "dataset": "register",
        "epsilon": "0.1",
    }


def test_the_next_step_is_the_balance_of_the_account_that_a_job_does_not_fit(
    run: Run, service: Any
) -> None:
    plan = service.answers["POST", "/plans"][1]
    second = {**plan, "dataset_name": "register", "fits": False}
    service.answers["POST", "/plans"] = (200, {**plan, "unlabelled": second})
    shown = run(
        "plan", "census", "-a", "sspe-1", "-e", "1", "--unlabelled", "register"
    ).stdout
    assert shown.splitlines()[-1] == "next: grovekeeper ledger show register"


def test_the_reservations_of_both_accounts_are_shown(run: Run, service: Any) -> None:
    status, accepted = service.answers["POST", "/train"]
    also = {
        "dataset": "ds_2",
        "dataset_name": "register",
        "reservation_id": "rs_2",
        "price": accepted["price"],
    }
    service.answers["POST", "/train"] = (status, {**accepted, "unlabelled": also})
    said = run(
        "train", "census", "-a", "sspe-1", "-e", "0.1", "--unlabelled", "register"
    ).stdout
    assert "accepted as job jb_1, which reserved 0.1 ε, and 0.1 ε on register" in said


def test_a_share_counts_as_recovered_from_where_no_larger_epsilon_loses_it(
    run: Run, service: Any
) -> None:
    """Each ε of a curve was measured on other tables, so a curve falls where a hard
    table joins.
    """
    middles = {"0.5": 0.86, "0.7": 0.9, "1": 0.91, "3": 0.85, "7": 0.91, "10": 0.94}
    curve = [
        {"epsilon": at, "low": 0, "middle": middle, "high": 1}
        for at, middle in middles.items()
    ]
    service.answers["POST", "/plans"][1]["expected_accuracy"] |= {"curve": curve}
    for share, needed in (
        ("85", "from ε = 0.5 on"),
        ("90", "from ε = 7 on"),
        ("95", "at no ε that was measured"),
    ):
        assert (
            f"recovered {share} % {needed}."
            in run("plan", "census", "-e", "1", "--recover", share).stdout
        )


def test_a_plan_says_what_similar_public_tables_recovered(
    run: Run, service: Any
) -> None:
    typed = ["plan", "census", "-a", "mrf", "-e", "1"]
    shown = " ".join(run(*typed, "--recover", "80").stdout.split())
    assert (
        service.answers["POST", "/plans"][1]["expected_accuracy"]["spread"] in shown
    ), "the service alone rounds"
    assert (
        "Expected accuracy: Expect about 84.6 % if always answering the commonest class gives 75.0 %."
        in shown
    )
    assert "Similar tables recovered 80 % from ε = 0.5 on." in shown
    assert "at no ε that was measured" in run(*typed, "--recover", "99").stdout
    note = "Not measured for mrf on such accounts."
    service.answers["POST", "/plans"][1]["expected_accuracy"] |= {
        "sentence": None,
        "spread": None,
        "band": None,
        "tables": [],
        "curve": [],
        "note": note,
    }
    assert (
        f"Expected accuracy: {note} This is no statement about your rows."
        in run(*typed).stdout
    )


def test_a_plan_that_does_not_fit_is_an_answer_and_names_the_population_that_refuses(
    run: Run, service: Any
) -> None:
    limits = {"fits": False, "population": "patients", "limited_by": "population"}
    plan = {**service.answers["POST", "/plans"][1], **limits}
    service.answers["POST", "/plans"] = (200, plan)
    result = run("plan", "census", "-a", "mrf", "-e", "9")
    assert result.exit_code == 0
    assert "largest ε that fits  1.5: this job does not fit" in result.stdout
    assert "the cap of the population patients, which leaves less" in result.stdout
    assert result.stdout.splitlines()[-1] == "next: grovekeeper ledger show census"


@pytest.mark.parametrize(
    ("is_used", "size", "note"),
    [
        (
            True,
            151,
            "note: uses the bins of profile pf_1 of census (the whole dataset) at no cost; the rules assume 151 rows.",
        ),
        (
            False,
            None,
            "note: needs no bins of profile pf_1 of census (the whole dataset).\n",
        ),
    ],
)
def test_a_quote_says_what_it_uses_of_a_profile(
    run: Run, service: Any, *, is_used: bool, size: int | None, note: str
) -> None:
    profile = {
        "id": "pf_1",
        "dataset_name": "census",
        "scope": {},
        "is_used": is_used,
        "size": size,
    }
    service.answers["POST", "/plans"] = (
        200,
        {**service.answers["POST", "/plans"][1], "profile": profile},
    )
    assert (
        note
        in run("plan", "census", "-a", "mrf", "-e", "1", "--profile", "pf_1").stdout
    )


def test_parameters_are_shown_as_they_are_typed(run: Run, service: Any) -> None:
    plan = service.answers["POST", "/plans"][1]
    service.answers["POST", "/plans"] = (
        200,
        {**plan, "parameters": {"assignment": "sharded", "n_estimators": 8}},
    )
    shown = run("plan", "census", "-a", "mrf", "-e", "1").stdout
    assert "sharded" in shown
    assert '"' not in shown


def test_the_numbers_of_a_guarantee_come_before_its_statement(
    run: Run, service: Any
) -> None:
    lines = run("models", "show", "md_1").stdout.splitlines()
    at = lines.index("For any two datasets …")
    assert lines[at - 5 : at] == [
        "adds, given all earlier releases: 0.1 ε (added or removed), 0.2 ε (replaced)",
        "  Given everything that was released before, somebody who knows all rows of every other privacy unit and "
        "flips a fair coin about whether one privacy unit is in the data guesses right at "
        "most 53 % of the time (50 % before).",
        "  Given everything that was released before, somebody who knows all rows of every other privacy unit and "
        "flips a fair coin about whether one privacy unit or another is in the data guesses "
        "right at most 55 % of the time (50 % before).",
        "all outputs together, until the cap is raised: ε = 3 (added or removed), ε = 6 (replaced)",
        "  Somebody who knows all rows of every other privacy unit and flips a fair coin about "
        "whether one privacy unit is in the data guesses right at most 96 % of the time (50 % before).",
    ]
    labels = {
        "add_remove": None,
        "replace_one": None,
        "label": {"epsilon": "2", "delta": "0.001"},
        "text": "Labels",
    }
    service.answers["GET", "/models/md_1"] = (
        200,
        {**service.answers["GET", "/models/md_1"][1], "guarantee": labels},
    )
    together = "all outputs together, until the cap is raised:"
    assert (
        f"{together} ε = 2, δ = 0.001 (a label changed)\nLabels"
        in run("models", "show", "md_1").stdout
    )
    assert (
        f"{together} ε = 3, δ = 1e-6\nFor any two worlds"
        in run("ledger", "show", "pop_1").stdout
    )


def test_facts_without_a_value_are_left_out(run: Run, service: Any) -> None:
    service.answers["GET", "/models/md_1"] = (
        200,
        {**service.answers["GET", "/models/md_1"][1], "name": None},
    )
    assert "name" not in run("models", "show", "md_1").stdout.split()


def test_algorithms_are_shown_by_name(run: Run, service: Any) -> None:
    ((status, listed),) = [service.answers["GET", "/algorithms"]]
    other = {**listed["algorithms"][0], "slug": "rdt-ta", "title": "Random trees"}
    service.answers["GET", "/algorithms"] = (
        status,
        {"algorithms": [*listed["algorithms"], other]},
    )

    shown = run("algorithms", "rdt-ta").stdout
    assert "rdt-ta: Random trees" in shown
    assert "accounts: pure" in shown
    assert "mrf" not in shown
    output = json.loads(run("algorithms", "mrf", "--json").stdout)
    assert [item["slug"] for item in output["algorithms"]] == ["mrf"]
    assert len(json.loads(run("algorithms", "--json").stdout)["algorithms"]) == 2


def test_a_job_that_did_not_succeed_ends_with_1(run: Run, service: Any) -> None:
    lost = {"state": "failed", "reason": "lost", "charged": True, "model_id": None}
    service.answers["GET", "/jobs/jb_1"] = (
        200,
        {**service.answers["GET", "/jobs/jb_1"][1], **lost},
    )
    for typed in (
        ["train", "census", "-a", "mrf", "-e", "1", "--wait"],
        ["jobs", "show", "jb_1", "--wait"],
    ):
        result = run(*typed)
        assert result.exit_code == 1
        assert "job jb_1 failed: no worker finished it" in result.stderr
        assert "0.1 ε spent for good" in result.stderr
        assert "trained model" not in result.stdout
        assert json.loads(run(*typed, "--json").stdout)["state"] == "failed"


def test_a_job_that_ended_before_its_charge_cost_nothing(
    run: Run, service: Any
) -> None:
    job = service.answers["GET", "/jobs/jb_1"][1]
    expired = {
        **job,
        "state": "failed",
        "reason": "expired",
        "charged": False,
        "model_id": None,
    }
    service.answers["GET", "/jobs/jb_1"] = (200, expired)
    said = run("jobs", "show", "jb_1", "--wait").stderr
    assert "no worker took the job" in said
    assert said.endswith("; nothing was charged\n")
    shown = " ".join(run("jobs", "show", "jb_1").stdout.split())
    assert "reason no worker took the job" in shown
    assert "charged no" in shown


def test_a_quote_begins_with_the_algorithm_its_price_and_what_is_left(
    run: Run, service: Any
) -> None:
    plan = service.answers["POST", "/plans"][1]
    price = {
        "accountant": "gdp",
        "unit": "mu_squared",
        "amount": "0.03",
        "epsilon": "0.5",
        "delta": "0.000001",
    }
    service.answers["POST", "/plans"] = (
        200,
        {**plan, "price": price, "why": "auto chose mrf, because"},
    )
    shown = run("plan", "census", "--epsilon", "0.5").stdout
    assert shown.splitlines()[:5] == [
        "mrf on census: auto chose mrf, because",
        "  price                ε = 0.5 at δ = 0.000001 (0.03 μ², no more, no less)",
        "  left                 1.5 of 3 μ²; after this job, ε up to 1.4 would fit",
        "  largest ε that fits  1.5",
        "  limited by           the cap",
    ]
    assert (
        "Given everything that was released before, somebody who knows all rows of every other privacy unit and"
        in shown
    )
    assert (
        "whether one privacy unit is in the data guesses right at most 53 % of the time (50 % before)."
        in shown
    )
    assert service.body()["algorithm"] == "auto"
    assert plan["receipt"] not in shown
    service.answers["POST", "/plans"] = (200, {**plan, "left_afterwards": "0"})
    assert (
        "after this job, nothing would fit"
        in run("plan", "census", "--epsilon", "0.5").stdout
    )


@pytest.mark.parametrize("typed", [
    ["plan", "census", "-e", "0.1"], ["profiles", "quote", "census", "-e", "0.1"],
    ["evaluations", "quote", "md_1", "-e", "0.1"], ["evaluations", "best", "md_1", "md_2", "--quote", "-e", "0.1"],
])  # fmt: skip
def test_the_receipt_of_a_quote_is_printed_on_request(
    run: Run, service: Any, typed: list[str]
) -> None:
    assert "a draw" not in run(*typed).stdout
    path = service.requests[-1].url.path
    service.answers["POST", path] = (
        200,
        service.answers["POST", path][1] | {"receipt": "a draw and its noise"},
    )
    shown = run(*typed, "--receipt").stdout
    assert "a draw and its noise" in shown
    assert "--receipt" not in shown


def test_the_largest_epsilon_that_fits_is_one_command_away(
    run: Run, service: Any
) -> None:
    shown = run("plan", "census", "--largest").stdout
    assert service.body()["epsilon"] == "1.5"
    assert (
        shown.splitlines()[-1] == "next: grovekeeper train census --epsilon 1.5 --wait"
    )
    service.answers["POST", "/plans"] = (
        200,
        service.answers["POST", "/plans"][1] | {"largest_that_fits": "0"},
    )
    assert "no ε fits" in run("plan", "census", "--largest").stderr
    assert (
        "--largest goes neither" in run("plan", "census", "--largest", "-e", "1").stderr
    )
    assert "plan census --largest" in run("train", "census").stderr


def test_a_model_that_is_not_the_one_on_the_card_is_not_kept(
    run: Run, service: Any, tmp_path: Path
) -> None:
    service.answers["GET", "/models/md_1/artifact"] = (200, b"something else")
    result = run("models", "download", "md_1", "new.safetensors")
    assert result.exit_code == 1
    assert not (tmp_path / "new.safetensors").exists()


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    ("error", "code", "fate"),
    [
        (KeyboardInterrupt(), ExitCode.FAILED, "goes on"),
        (
            Unreachable("http://service", "nothing listens there"),
            ExitCode.UNREACHABLE,
            "goes on",
        ),
        (
            ApiProblem(401, "unauthenticated", "no such key", {}),
            ExitCode.NOT_ALLOWED,
            "was accepted",
        ),
        (
            BrokenPipeError(errno.EPIPE, "Broken pipe"),
            ExitCode.FAILED,
            "was accepted",
        ),
    ],
)
def test_a_wait_that_ends_early_names_the_job(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    error: BaseException,
    code: ExitCode,
    fate: str,
) -> None:
    def ended(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr("grovekeeper_client.client.Client.func.follow_job", ended)
    result = run("train", "census", "-a", "mrf", "-e", "1", "--wait", *options)
    assert result.exit_code == code
    assert (
        f"the job {fate}; follow it with: grovekeeper jobs show jb_1 --wait"
        in result.stderr
    )


def _full(text: str, *, file: Any = None, **_options: object) -> None:
    """Prints to stderr alone, as above a full disk."""
    if file is None:
        raise OSError(errno.ENOSPC, "No space left on device")
    file.write(text)


def test_a_problem_that_stdout_does_not_take_is_said_in_words(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grovekeeper_client.cli.output.print", _full, raising=False)
    service.is_down = True
    result = run("datasets", "list", "--json")
    assert result.exit_code == ExitCode.UNREACHABLE
    assert result.stderr.startswith("not done: no answer from ")


@pytest.mark.parametrize("options", [[], ["--json"], ["--wait"], ["--json", "--wait"]])
def test_a_full_disk_below_stdout_does_not_hide_a_job(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setattr("grovekeeper_client.cli.output.print", _full, raising=False)
    result = run("train", "census", "-a", "mrf", "-e", "1", *options)
    assert result.exit_code == ExitCode.FAILED
    assert (
        "accepted; follow it with: grovekeeper jobs show jb_1 --wait" in result.stderr
    )
    assert "the output cannot be written: No space left" in result.stderr
    assert "not done" not in result.stderr


@pytest.mark.parametrize("typed", [["run", "md_1"], ["best", "md_1", "md_2"]])
def test_after_the_wait_an_evaluation_is_printed(
    run: Run, service: Any, typed: list[str]
) -> None:
    done = {
        **service.answers["GET", "/jobs/jb_1"][1],
        "kind": "evaluation",
        "evaluation_id": "ev_1",
        "model_id": None,
    }
    service.answers["GET", "/jobs/jb_1"] = (200, done)
    shown = run("evaluations", *typed, "-e", "0.1", "--wait").stdout
    assert "adds, given all earlier releases: " in shown
    assert "guesses right" not in shown, "the quote said so, and the command below does"
    assert shown.splitlines()[-1].startswith("next: grovekeeper evaluations show ev_")
    assert "released evaluation ev_1" in shown
    assert "75.0 %" in shown
    assert "2 counts" not in shown
    assert "2 counts" in run("evaluations", "show", "ev_1", "--receipt").stdout
    assert "2 counts" in run("profiles", "show", "pf_1", "--receipt").stdout


def test_a_card_warns_of_one_class_and_names_the_cells(run: Run, service: Any) -> None:
    shown = run("models", "show", "md_1").stdout
    assert "warning: The model answers no whatever the row is." in shown
    assert "cells      shard=1\n" in shown
    service.answers["GET", "/models/md_1"][1].update(scope={}, only_answer=None)
    assert "whatever the row is" not in run("models", "show", "md_1").stdout


def test_intervals_are_named_by_what_they_cover(run: Run) -> None:
    """The second interval covers noise and sampling error, each with probability 0.95."""
    shown = run("evaluations", "show", "ev_1").stdout
    assert "95 % interval, evaluated rows" in shown
    assert "90 % interval, other rows like them" in shown


def test_a_queued_job_says_how_many_wait_before_it(run: Run, service: Any) -> None:
    _, job = service.answers["GET", "/jobs/jb_1"]
    for jobs_before, words in (
        (0, "workers take it next"),
        (1, "1 job waits before it"),
        (100, "100 jobs wait before it"),
        (101, "more than 100 jobs wait before it"),
    ):
        queued = job | {"state": "queued", "jobs_before": jobs_before}
        service.answers["GET", "/jobs/jb_1"] = (200, queued)
        assert words in run("jobs", "show", "jb_1").stdout
    service.answers["GET", "/jobs/jb_1"] = (200, job)
    assert "before it" not in run("jobs", "show", "jb_1").stdout
