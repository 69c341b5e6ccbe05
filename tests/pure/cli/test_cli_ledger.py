"""The commands for balances, caps and charges for external mechanisms: printed output
and requests.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import Result

from app.core import limits
from grovekeeper_client.cli.ledger import MAX_PART_BYTES
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_common.limit_words import LimitedBy, limit_in_words

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")


def test_a_balance_shows_the_delta_that_is_set_aside(run: Run, service: Any) -> None:
    delta = {"set_aside": "0.0000002", "charged": "0.0000001", "remaining": "0.0000001"}
    balance = service.answers["GET", "/ledger/census"][1] | {"delta_set_aside": delta}
    service.answers["GET", "/ledger/census"] = (200, balance)
    output = run("ledger", "show", "census").stdout
    assert "δ set aside: 0.0000001 of 0.0000002 charged, 0.0000001 left" in output


def test_a_balance_says_who_verified_it_and_up_to_where(run: Run) -> None:
    output = run("ledger", "show", "census").stdout
    for line in (
        "NOT VERIFIED, as eva states, 2026-11-20 09:00 UTC",
        "VERIFIED up to entry 2, by the service itself, 2026-11-21 08:00 UTC; 3 entries since",
    ):
        assert line in output.splitlines()


def test_the_owners_part_of_a_record_has_the_bytes_of_a_request() -> None:
    assert MAX_PART_BYTES == limits.MAX_JSON_BODY_BYTES


def test_a_record_of_a_deployment_is_completed_by_its_owner(
    run: Run, service: Any, tmp_path: Path
) -> None:
    missing = {
        "required": ["/deployment/basic/name", "/deployment/basic/description"],
        "optional": [],
    }
    record = {
        "tier": 2,
        "deployment": {"basic": {"data_product_type": "Machine learning model"}},
    }
    service.answers["GET", "/ledger/census/deployment"] = (
        200,
        {"record": record, "missing": missing},
    )
    (tmp_path / "owner.yaml").write_text("deployment: {basic: {name: Income}}")
    result = run(
        "ledger", "deployment", "census", "record.yaml", "--owner", "owner.yaml"
    )
    assert "missing: /deployment/basic/description" in result.stderr
    basic = yaml.safe_load((tmp_path / "record.yaml").read_text())["deployment"][
        "basic"
    ]
    assert basic == {"data_product_type": "Machine learning model", "name": "Income"}
    (tmp_path / "owner.yaml").write_text("tier: 3")
    refused = run("ledger", "deployment", "census", "--owner", "owner.yaml")
    assert refused.exit_code == ExitCode.WRONG_USE
    assert "/tier is not for the owner to fill in" in refused.stderr
    (tmp_path / "owner.yaml").write_text(
        "deployment: {basic: {name: Income}}" + " " * limits.MAX_JSON_BODY_BYTES
    )
    too_long = run("ledger", "deployment", "census", "--owner", "owner.yaml")
    assert too_long.exit_code == ExitCode.WRONG_USE
    assert f"of at most {limits.MAX_JSON_BODY_BYTES} bytes" in too_long.stderr


def test_an_external_charge_goes_out_as_it_was_typed(
    run: Run, service: Any, tmp_path: Path
) -> None:
    stated = [
        "--epsilon",
        "0.50",
        "--delta",
        "1e-7",
        "--per",
        "unit",
        "--scope",
        '{"shard": [1]}',
    ]
    run(
        "ledger",
        "charge",
        "census",
        "--description",
        "a mean",
        *stated,
        "--idempotency-key",
        "k",
    )
    declared = {"adjacency": "add_remove", "epsilon": "0.50", "delta": "1e-7"}
    assert service.body() == {
        "description": "a mean", "per": "unit", "scope": {"shard": [1]}, "declared": declared,
    }  # fmt: skip
    assert service.requests[-1].headers["Idempotency-Key"] == "k"
    (tmp_path / "event.json").write_text('{"type": "sequential/1", "parts": []}')
    run(
        "ledger", "charge", "census", "--description", "a mean", "--event", "event.json"
    )
    event = {"type": "sequential/1", "parts": []}
    assert service.body() == {
        "description": "a mean",
        "per": "row",
        "scope": {},
        "event": event,
    }


def test_a_refused_statement_without_epsilon_names_no_largest_epsilon_of_a_job(
    run: Run, service: Any
) -> None:
    refusal = {"type": "budget-exceeded", "largest_that_fits": "0.7"}
    service.answers["POST", "/ledger/census/reservations"] = (409, refusal)
    charge = ["ledger", "charge", "census", "--description", "x"]
    for stated in (["--rho", "1"], ["--mu", "1"], ["--event", "file.json"]):
        result = run(*charge, *stated)
        assert (result.exit_code, result.stderr) == (
            ExitCode.REFUSED,
            "refused: a sentence\n",
        )
        assert (
            json.loads(run(*charge, *stated, "--json").stdout)["largest_that_fits"]
            == "0.7"
        )
    assert "largest ε that fits: 0.7" in run(*charge, "--epsilon", "1").stderr


def test_the_cells_of_a_balance_are_shown_as_far_as_they_can_be_read(
    run: Run, service: Any
) -> None:
    amounts = {"charged": "1", "reserved": "0", "remaining": "2"}
    partitions = [
        {
            "name": "region",
            "kind": "column",
            "cells": [{"cell": cell, **amounts} for cell in ("EU", "OTHER")],
        },
        {
            "name": "shard",
            "kind": "hash",
            "cells": [{"cell": cell, **amounts} for cell in range(100)],
        },
        {"name": "batch", "kind": "epoch", "cells": []},
    ]
    balance = {
        **service.answers["GET", "/ledger/census"][1],
        "partitions": partitions,
        "exact": False,
    }
    service.answers["GET", "/ledger/census"] = (200, balance)
    shown = run("ledger", "show", "census").stdout
    assert "OTHER" in shown
    assert "shard: 100 cells; see --json" in shown
    assert "no uploads yet" in shown
    assert "upper bound" in shown
    assert "largest ε that fits: 0.5" in shown


@pytest.mark.parametrize("limited_by", get_args(LimitedBy))
def test_balances_name_the_limit_that_leaves_less_to_one_job(
    run: Run, service: Any, limited_by: LimitedBy
) -> None:
    """The service names it. Amounts that differ, or are equal, say nothing about the
    cause.
    """
    for path in ("/ledger/census", "/ledger", "/datasets", "/datasets/census"):
        text = json.dumps(service.answers["GET", path][1]).replace(
            '"available": "1.5"', '"available": "0.2"'
        )
        text = text.replace('"limited_by": "cap"', f'"limited_by": "{limited_by}"')
        service.answers["GET", path] = (200, json.loads(text))
    typed = [
        ["ledger", "show"],
        ["ledger", "show", "census"],
        ["datasets", "list"],
        ["datasets", "show", "census"],
    ]
    shown = [" ".join(run(*words).stdout.split()) for words in typed]
    if limited_by == "cap":
        assert not any("for one job" in text or "limited by" in text for text in shown)
        return
    limit = f"limited by {limit_in_words(limited_by)}"
    assert all(
        f"1.5 (for one job: 0.2, {limited_by.replace('_', ' ')})" in text
        for text in shown[:3]
    )
    assert f"for one job 0.2 ε, {limit}" in shown[3]
    assert f"largest ε that fits: 0.5, {limit}" in shown[1]
    assert ("population" in shown[0]) == (limited_by == "population")


def test_a_key_that_may_not_list_balances_is_told_to_name_a_dataset(
    run: Run, service: Any
) -> None:
    service.answers["GET", "/ledger"] = (403, {"type": "role-missing"})
    result = run("ledger", "show")
    assert result.exit_code == ExitCode.NOT_ALLOWED
    assert "name its dataset: grovekeeper ledger show DATASET" in result.stderr
    assert json.loads(run("ledger", "show", "--json").stdout)["type"] == "role-missing"


def test_a_cap_is_sent_as_typed_and_once_per_key(run: Run, service: Any) -> None:
    output = run(
        "ledger",
        "cap",
        "census",
        "1e-3",
        "--reason",
        "less trust",
        "--idempotency-key",
        "k1",
    )
    sent = service.requests[-1]
    changed, warning, *_ = output.stdout.splitlines()
    assert changed == "the cap of census is now 2 ε; 0.5 ε are left"
    assert warning == "note: ε is above 10: little is promised."
    assert output.stdout.splitlines()[-1] == "next: grovekeeper ledger show census"
    assert (service.body(), sent.headers["Idempotency-Key"]) == (
        {"cap": "1e-3", "reason": "less trust"},
        "k1",
    )
    assert (
        json.loads(
            run("ledger", "cap", "census", "2", "--reason", "x", "--json").stdout
        )["cap"]
        == "2"
    )
    assert run("ledger", "cap", "census", "2").exit_code == 2, (
        "a cap is not changed without a reason"
    )


def test_an_empty_idempotency_key_is_not_replaced(run: Run, service: Any) -> None:
    """A variable that is not set would else spend with every run of a script."""
    refused = run(
        "ledger",
        "charge",
        "census",
        "--description",
        "x",
        "--epsilon",
        "1",
        "--idempotency-key",
        "",
    )
    assert (refused.exit_code, service.requests) == (2, [])
    assert "--idempotency-key is empty" in refused.stderr


def test_entries_are_searched_by_kind_job_actor_and_cells(
    run: Run, service: Any
) -> None:
    run(
        "ledger",
        "entries",
        "census",
        "--kind",
        "charge",
        "--actor",
        "key_1",
        "--scope",
        "shard=1",
    )
    sent = dict(service.requests[-1].url.params)
    assert (sent["kind"], sent["actor"], json.loads(sent["scope"])) == (
        "charge",
        "key_1",
        {"shard": [1]},
    )
    assert "job" not in sent


def test_a_name_of_several_keys_is_refused_with_their_ids(
    run: Run, service: Any
) -> None:
    error = {"at": "/actor", "problem": "ambiguous", "accepted": ["key_1", "key_2"]}
    problem = {
        "type": "invalid-request",
        "title": "x",
        "status": 422,
        "detail": "x",
        "errors": [error],
    }
    service.answers["GET", "/ledger/census/entries"] = (422, problem)
    refused = run("ledger", "entries", "census", "--actor", "Ann")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "actor: ambiguous" in refused.stderr
    assert "key_1, key_2" in refused.stderr


def test_an_external_charge_is_not_shown_as_a_job(run: Run, service: Any) -> None:
    _, answer = service.answers["GET", "/ledger/census/entries"]
    entry = answer["entries"][0] | {"kind": "charge", "job_id": "rs_2"}
    service.answers["GET", "/ledger/census/entries"] = (
        200,
        answer | {"entries": [entry]},
    )
    assert "external rs_2" in run("ledger", "entries", "census").stdout


@pytest.mark.parametrize(
    ("majority", "shown"),
    [
        (None, "not released (a confusion matrix"),
        (
            {"label": "low", "share": 0.5, "source": "pf_1"},
            "50.0 % (low; noisy, from profile pf_1)",
        ),
    ],
)
def test_the_majority_beside_an_accuracy_names_its_source(
    run: Run, service: Any, majority: dict[str, Any] | None, shown: str
) -> None:
    evaluation = service.answers["GET", "/evaluations/ev_1"][1]
    service.answers["GET", "/evaluations/ev_1"] = (
        200,
        evaluation | {"majority": majority},
    )
    assert shown in run("evaluations", "show", "ev_1").stdout


def test_a_change_of_the_cap_says_its_reason(run: Run, service: Any) -> None:
    _, answer = service.answers["GET", "/ledger/census/entries"]
    entry = answer["entries"][0] | {"kind": "cap", "details": {"reason": "less trust"}}
    service.answers["GET", "/ledger/census/entries"] = (
        200,
        answer | {"entries": [entry]},
    )
    assert "reason: less trust" in " ".join(
        run("ledger", "entries", "census").stdout.split()
    )


def test_entries_say_what_a_job_ran_for_whom_and_why(run: Run, service: Any) -> None:
    _, answer = service.answers["GET", "/ledger/census/entries"]
    job = {
        "kind": "train",
        "algorithm": "rpf",
        "what": "rpf",
        "name": "first",
        "models": ["md_1"],
        "submitted_by": "key_1",
    }
    stated = {
        "kind": "charge",
        "job_id": "jb_1",
        "actor": "worker",
        "details": {"purpose": "a pilot"},
    }
    entries = [answer["entries"][0] | stated]
    service.answers["GET", "/ledger/census/entries"] = (
        200,
        answer | {"entries": entries, "jobs": {"jb_1": job}},
    )
    shown = "".join(run("ledger", "entries", "census").stdout.split())
    for words in ("jb_1", "rpf", "first", "md_1", "pilot", "worker", "ada", "(key_1)"):
        assert words in shown, words
    assert json.loads(run("ledger", "entries", "census", "--json").stdout)["jobs"] == {
        "jb_1": job
    }


def test_only_charges_beyond_what_is_spent_are_explained(
    run: Run, service: Any
) -> None:
    place = "GET", "/ledger/census/spent"
    _, answer = service.answers[place]
    note = "the charges add up to more than is spent"
    assert note in run("ledger", "spent", "census").stdout
    service.answers[place] = 200, answer | {"charged": "1.50", "carried": "0"}
    assert note not in run("ledger", "spent", "census").stdout


def test_a_dataset_without_cells_is_not_said_to_be_without_charges(
    run: Run, service: Any
) -> None:
    place = "GET", "/ledger/census/spent"
    service.answers[place] = 200, service.answers[place][1] | {"groups": []}
    printed = run("ledger", "spent", "census", "--by", "cell").stdout
    assert "no cells are declared" in printed
    assert "nothing charged" not in printed


def test_attention_names_the_budgets_that_are_used_up(run: Run, service: Any) -> None:
    place = "GET", "/attention"
    listed = service.answers[place][1]
    assert "fits any more" not in run("attention").stdout
    budgets = [
        budget | {"largest_that_fits": "0", "limited_by": limited_by}
        for budget in listed["budgets"]
        for limited_by in ("cap", "frozen")
    ]
    service.answers[place] = 200, listed | {"budgets": budgets}
    printed = run("attention").stdout
    assert printed.count("no job on all of census fits any more") == 1
    assert "limited by the cap" in printed


def test_attention_names_the_ledgers_to_verify(run: Run, service: Any) -> None:
    place = "GET", "/attention"
    ledger = {"account": "ds_1", "account_name": "census", "entries": 13}
    found = service.answers[place][1] | {"ledgers": [ledger | {"verification": None}]}
    service.answers[place] = 200, found
    assert "verify the ledger of census" in run("attention").stdout


def test_an_actor_that_nobody_is_is_named_in_words(run: Run, service: Any) -> None:
    errors = [{"at": "/actor", "problem": "without-entries"}]
    service.answers["GET", "/ledger/census/spent"] = (
        422,
        {"type": "invalid-request", "detail": "x", "errors": errors},
    )
    refused = run("ledger", "spent", "census", "--actor", "nokey")
    assert "no key of this id or name has an entry" in refused.stderr


ERRORS = {
    "accuracy": None,
    "confusion": None,
    "auroc": None,
    "majority": None,
    "largest_error": 20.0,
    "mae": {"estimate": 2.4242, "interval": {"low": 2.31, "high": 2.55}, "on_training_rows": True},
    "rmse": {"estimate": None, "interval": {"low": 0.0, "high": 20.0}, "on_training_rows": True},
    "r2": {"estimate": 0.512, "interval": {"low": None, "high": 0.6181}, "on_training_rows": True},
}  # fmt: skip


def test_errors_of_numbers_are_shown_with_their_intervals(
    run: Run, service: Any
) -> None:
    evaluation = service.answers["GET", "/evaluations/ev_1"][1] | ERRORS
    service.answers["GET", "/evaluations/ev_1"] = (200, evaluation)
    shown = run("evaluations", "show", "ev_1").stdout
    for words in (
        "errors clamped at        20",
        "mean absolute error      2.42 (2.31 to 2.55) on rows used in training",
        "root mean squared error  not told (0 to 20)",
        "R²                       0.51 (at most 0.62)",
    ):
        assert words in shown
    assert "largest class" not in shown
    listed = {"evaluations": [evaluation], "next": None}
    service.answers["GET", "/models/md_1/evaluations"] = (200, listed)
    assert "MAE 2.42" in run("evaluations", "list", "md_1").stdout
    root = {**evaluation, "mae": None, "rmse": ERRORS["mae"]}
    area = {**root, "rmse": None, "auroc": {"estimate": 0.75, "noise_sd": 0.01}}
    for other, words in ((root, "RMSE 2.42"), (area, "AUROC 0.750")):
        listed = {"evaluations": [other], "next": None}
        service.answers["GET", "/models/md_1/evaluations"] = (200, listed)
        assert words in run("evaluations", "list", "md_1").stdout


def test_a_quote_of_an_error_says_how_far_noise_moves_it(
    run: Run, service: Any
) -> None:
    address = "POST", "/models/md_1/evaluations/quote"
    quote = service.answers[address][1] | {"mae_half_width": 0.1234}
    service.answers[address] = (200, quote)
    asked = ("md_1", "-e", "0.1", "-m", "mae", "--largest-error", "20")
    shown = run("evaluations", "quote", *asked).stdout
    assert "Noise moves the mean absolute error by at most ± 0.13 at 95 %," in shown
    assert "--metric mae --wait" in shown.replace("--largest-error 20.0 ", "")
    assert service.body() == {
        "epsilon": "0.1",
        "largest_error": 20.0,
        "metrics": ["mae"],
        "scope": {},
    }


def test_entries_are_listed_by_purpose(run: Run, service: Any) -> None:
    assert run("ledger", "entries", "census", "--purpose", "a pilot").exit_code == 0
    assert service.requests[-1].url.params["purpose"] == "a pilot"
