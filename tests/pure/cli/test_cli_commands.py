"""Every client command: its requests, its output for people and for programs, and its
exit code.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from grovekeeper_client.cli.problems import ExitCode

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")

COMMANDS: list[tuple[list[str], list[str]]] = [
    (
        ["datasets", "create", "file.json"],
        [
            "lifetime budget of 3 ε",
            "note: ε is above 10",
            "next: grovekeeper datasets upload census",
        ],
    ),
    (
        ["datasets", "upload", "census", "rows.csv"],
        [
            "stored 40 rows as upload ep_1",
            "note: This body equals",
            "age",
            "dropped: 4 rows without",
            ", 7 rows of units",
            "grovekeeper plan census",
        ],
    ),
    (["datasets", "uploads", "census"], ["ep_1", "40"]),
    (
        ["datasets", "erase-upload", "census", "ep_1", "--yes"],
        ["erased the rows of upload ep_1 from census", "stays."],
    ),
    (
        ["datasets", "list"],
        [
            "census",
            "ds_1",
            "owner",
            "active",
            "fits now",
            "1.25",
            "ends about",
            "2027-01-29",
        ],
    ),
    (
        ["datasets", "show", "census"],
        [
            "30,000 rows",
            "shard (10 hash cells)",
            "0 to 120",
            "Female, Male, or missing",
            "1.5 ε",
            "0.5 ε was charged in the last 12 days.",
        ],
    ),
    (["datasets", "delete", "census", "--yes"], ["erased the rows of census"]),
    (
        ["datasets", "grant", "census", "key_2", "analyst"],
        ["key_2 is analyst on census", "next: grovekeeper datasets show census"],
    ),
    (
        ["datasets", "grants", "census"],
        ["ann (key_2)", "analyst", "ada (key_1)", "2026-11-29 23:00 to 24:00"],
    ),
    (["datasets", "revoke", "census", "key_2"], ["key_2 has no role on census"]),
    (
        ["algorithms"],
        ["mrf", "Multinomial forest", "next: grovekeeper algorithms ALGORITHM"],
    ),
    (
        ["algorithms", "mrf"],
        ["mrf: Multinomial forest", "1 to 9 (by rule)", "a, b (a)"],
    ),
    (
        ["algorithms", "mrf"],
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
        [
            "mrf on census",
            "ε = 0.1 (no more, no less)",
            "1.5 of 3 ε",
            "note: small data",
        ],
    ),
    (
        ["train", "census", "-a", "mrf", "-e", "0.1"],
        ["job jb_1", "next: grovekeeper jobs show jb_1 --wait"],
    ),
    (
        ["train", "census", "-a", "mrf", "-e", "0.1", "--wait"],
        ["trained model md_1 (mrf)", "grovekeeper models show md_1"],
    ),
    (
        [
            "profiles",
            "quote",
            "census",
            "-e",
            "0.1",
            "--delta",
            "1e-6",
            "-p",
            "bins=8",
            "--scope",
            "shard=0,1",
        ],
        [
            "a profile on census",
            "ε = 0.1 (no more, no less)",
            "release census --epsilon 0.1 --delta 1e-6 --parameter bins=8 --scope shard=0,1 --wait",
        ],
    ),
    (
        ["profiles", "release", "census", "-e", "0.1"],
        [
            "accepted as job jb_1",
            "waits for the approval of an owner",
            "next: grovekeeper jobs show jb_1",
        ],
    ),
    (["profiles", "list", "census"], ["pf_1", "0.1 ε"]),
    (
        ["profiles", "show", "pf_1"],
        ["151.2", "17.5, 40", "For any two", "--profile pf_1"],
    ),
    (
        ["evaluations", "quote", "md_1", "-e", "0.1", "-m", "accuracy"],
        [
            "an evaluation on census",
            "ε = 0.1 (no more, no less)",
            "note: rows were trained on",
            "next: grovekeeper evaluations run md_1 --epsilon 0.1 --metric accuracy --wait",
        ],
    ),
    (
        ["evaluations", "run", "md_1", "-e", "0.1", "--scope", "shard=1"],
        ["job jb_1, which reserved 0.1 ε"],
    ),
    (
        ["evaluations", "best", "md_1", "md_2", "-e", "0.1", "--winner-accuracy"],
        ["accepted as job jb_1"],
    ),
    (
        [
            "evaluations",
            "best",
            "md_1",
            "md_2",
            "-e",
            "0.1",
            "--winner-accuracy",
            "--quote",
        ],
        [
            "among 2 models on census",
            "evaluations best md_1 md_2 --epsilon 0.1 --winner-accuracy --wait",
        ],
    ),
    (["evaluations", "list", "md_1"], ["ev_1", "confusion, auroc", "best", "75.0 %"]),
    (
        ["evaluations", "show", "ev_1"],
        ["52.1 % (high; noisy, from the confusion matrix)"],
    ),
    (
        ["evaluations", "show", "ev_1"],
        ["75.0 %", "0.812 (± 0.010)", "11.5", "note: rows were"],
    ),
    (
        ["evaluations", "show", "ev_1"],
        ["evaluated rows        70.0 % to 80.0 %", "rows like them  60.0 % to 90.0 %"],
    ),
    (
        ["jobs", "list"],
        ["jb_1", "succeeded", "yes, for good", "0.1 ε", "submitted by", "key_1"],
    ),
    (["jobs", "show", "jb_1"], ["8 of 8", "next: grovekeeper models show md_1"]),
    (["jobs", "show", "jb_1", "--wait"], ["trained model md_1"]),
    (
        ["jobs", "cancel", "jb_1"],
        ["job jb_1 cancelled: somebody cancelled the job", "; 0.1 ε spent for good"],
    ),
    (
        ["models", "list"],
        [
            "md_1",
            "forest",
            "census@production",
            "shard=1 ",
            "2048",
            "0.1 ε",
            "75.0 % (70.0 % to 80.0 %)",
            "ada",
            "audit",
        ],
    ),
    (["models", "list", "--alias", "production"], ["md_1"]),
    (
        ["jobs", "list", "--state", "failed", "--kind", "train", "--submitter", "ann"],
        ["jb_1"],
    ),
    (["aliases", "list", "census"], ["census@production", "md_1"]),
    (
        ["aliases", "set", "census@production", "md_1"],
        ["census@production is md_1", "predict census@production"],
    ),
    (["aliases", "history", "census@production"], ["(removed)", "ada (key_1)"]),
    (["aliases", "remove", "census@production"], ["removed census@production"]),
    (
        ["models", "show", "md_1"],
        [
            "For any two datasets",
            "pf_1",
            "next: grovekeeper predict md_1",
            "md_1 --receipt",
            "75.0 %",
            "62.5 % low, 37.5 % high",
        ],
    ),
    (["models", "show", "md_1", "--receipt"], ["8 trees, one after another"]),
    (
        ["models", "compare", "md_1", "md_2"],
        ["forest", "md_2", "max_depth", "random", "75.0 %", "7 splits", "none shown"],
    ),
    (["models", "compare", "md_1", "md_2", "--receipt"], ["md_2:", "2 trees"]),
    (["models", "delete", "md_1", "--yes"], ["deleted md_1"]),
    (
        ["models", "download", "md_1", "new.safetensors"],
        ["wrote new.safetensors (8 bytes", "models show md_1"],
    ),
    (
        [
            "models",
            "download",
            "md_1",
            "new.onnx",
            "--format",
            "onnx",
            "--read-out",
            "ta",
        ],
        ["wrote new.onnx (8 bytes"],
    ),
    (["predict", "md_1", "rows.csv"], ["P(high)", "0.750"]),
    (
        ["ledger", "show"],
        [
            "census",
            "ds_1 (erased 2026-11-21)",
            "########====....",
            "charged #, reserved =, left .",
        ],
    ),
    (
        ["ledger", "show", "census"],
        [
            "tightest cell: shard=3",
            "For any two",
            "next: grovekeeper ledger export census",
        ],
    ),
    (
        ["ledger", "cap", "census", "2", "--reason", "less trust"],
        [
            "the cap of census is now 2 ε; 0.5 ε are left",
            "next: grovekeeper ledger show census",
        ],
    ),
    (
        ["ledger", "charge", "census", "--description", "a mean", "--epsilon", "0.5"],
        [
            "Declared: at most ε = 0.5",
            "charged 0.5 ε to census as rs_2",
            "next: grovekeeper ledger show census",
        ],
    ),
    (
        [
            "ledger",
            "charge",
            "census",
            "--description",
            "a mean",
            "--event",
            "file.json",
            "--quote",
        ],
        [
            "would cost 0.5 ε; 0.1 left: it does not fit",
            "guesses right at most 63 %",
            "note: ε is above 10",
        ],
    ),
    (
        ["ledger", "spent", "census", "--by", "key", "--actor", "ada"],
        [
            "ada (key_1)",
            "80.0 %",
            "no purpose stated",
            "charges shown: 2.5 ε; spent of the cap, by everybody: 1.5 ε",
            "spent by the erased dataset of this name: 0.25 ε",
            "do not add up for any one record",
        ],
    ),
    (["ledger", "reservations", "census"], ["rs_2", "0.5 ε", "eva (key_3)", "a mean"]),
    (
        ["ledger", "show", "pop_1"],
        [
            "patients",
            "largest ε that fits: 1.5",
            "For any two worlds",
            "pop_1 patients.jsonl",
        ],
    ),
    (
        ["ledger", "cap", "pop_1", "2", "--reason", "less trust"],
        ["the cap of patients is now 2 ε; 0.5 ε are left"],
    ),
    (["ledger", "entries", "pop_1"], ["open", "load", "ds_1", "jb_1", "cdcdcdcdcdcd"]),
    (["ledger", "entries", "census"], ["open", "ada (key_1)", "abababababab"]),
    (
        ["ledger", "checkpoint", "census"],
        ["grovekeeper/ledger/ds_1", "— grovekeeper c2ln"],
    ),
    (
        ["ledger", "checkpoint", "census", "new.checkpoint"],
        [
            "next: grovekeeper ledger export census EXPORT.jsonl",
            "grovekeeper ledger signer SIGNER.pem",
            "grovekeeper verify EXPORT.jsonl --checkpoint new.checkpoint --public-key SIGNER.pem",
        ],
    ),
    (["ledger", "proof", "census", "--from-size", "1"], ['"kind": "consistency"']),
    (
        ["ledger", "proof", "census", "new.json", "--sequence", "1", "--size", "1"],
        [
            "wrote new.json",
            "next: grovekeeper verify new.json --checkpoint CHECKPOINT --public-key SIGNER.pem",
        ],
    ),
    (
        ["ledger", "proof", "census", "new.json", "--from-size", "1"],
        [
            "grovekeeper verify new.json --checkpoint EARLIER --checkpoint LATER --public-key SIGNER.pem"
        ],
    ),
    (["ledger", "signer"], ["-----BEGIN"]),
    (
        ["rules", "show", "census"],
        [
            "largest job",
            "0.5 ε",
            "amy (key_a), key_b: 1.5 ε of 2 spent",
            "nothing is admitted or started",
            "key_b proposes looser rules",
            "no limit",
            "next: grovekeeper rules confirm census",
        ],
    ),
    (
        ["rules", "set", "census", "--largest-job", "0.4", "--without", "quotas"],
        ["rules of census"],
    ),
    (["rules", "confirm", "census", "--yes"], ["rules of census"]),
    (
        ["attention"],
        [
            "decide about jb_1, mrf",
            "0.1 ε on census",
            "decide about rules of census",
            "jb_1, mrf, is not started",
            "no room",
            "jb_1, mrf, failed",
            "etl ends",
            "1.5 ε",
            "1.25",
        ],
    ),
    (
        ["approvals", "list"],
        [
            "jb_1",
            "0.1 ε on census",
            "ben (key_b)",
            "approvals approve jb_1 --reason REASON",
        ],
    ),
    (
        ["approvals", "approve", "jb_1", "--reason", "agreed"],
        ["approved job jb_1", "it is now queued"],
    ),
    (["approvals", "reject", "jb_1", "--reason", "too much"], ["rejected job jb_1"]),
    (["audit", "list"], ["key-revoked", "key_a", "key: key_b"]),
    (["audit", "list", "--dataset", "census"], ["key-revoked", "amy (key_a)"]),
    (["audit", "checkpoint"], ["grovekeeper/ledger/ds_1"]),
    (
        ["audit", "export", "new.jsonl"],
        ["wrote new.jsonl", "next: grovekeeper verify new.jsonl"],
    ),
    (
        ["ledger", "signer", "new.pem"],
        ["wrote new.pem", "next: grovekeeper ledger checkpoint"],
    ),
    (
        ["ledger", "export", "census", "new.jsonl"],
        ["wrote new.jsonl (3 bytes)", "next: grovekeeper verify new.jsonl"],
    ),
    (["ledger", "export", "census", "new.csv"], ["wrote new.csv (3 bytes)"]),
    (
        ["datasets", "erase-unit", "census", "ann", "--yes"],
        [
            "erased 3 rows from census at 2026-11-28T14:29:00Z (act 131); what was spent stays",
            "note: stored units that differ from this one by",
        ],
    ),
    (
        ["datasets", "overlaps", "census"],
        ["ep_0", "?", "survey", "next: grovekeeper populations join census"],
    ),
    (
        ["populations", "create", "patients", "--epsilon", "3"],
        [
            "opened patients (pp_1) with a lifetime budget of 3 ε",
            "one person of the population guesses right at most 96 %",
            "next: grovekeeper populations join DATASET patients",
        ],
    ),
    (["populations", "list"], ["patients", "1.5"]),
    (
        ["populations", "show", "patients"],
        [
            "none: a person",
            "census",
            "erased",
            "For any two worlds",
            "ledger export pp_1",
            "--member MEMBER.jsonl",
        ],
    ),
    (
        ["populations", "join", "census", "patients", "--yes"],
        ["census belongs to patients"],
    ),
    (
        [
            "populations",
            "erase-unit",
            "patients",
            "ann",
            "--reference",
            "request 118",
            "--yes",
        ],
        [
            "census",
            "3",
            "131",
            "survey",
            "132",
            "and were not erased: 2; if such a unit is",
            "spent stays spent",
        ],
    ),
    (
        ["keys", "create", "ann"],
        ["key_2." + "t" * 43, "next: grovekeeper datasets grant DATASET key_2 analyst"],
    ),
    (["keys", "list"], ["ann", "auditor", "2027", "2026-11-30 23:00 to 24:00"]),
    (["keys", "rotate", "key_2"], ["key_2." + "t" * 43, "shown once"]),
    (["keys", "revoke", "key_2"], ["key_2 opens nothing"]),
    (
        ["webhooks", "rotate", "census", "wh_1", "--overlap", "60"],
        ["whsec_" + "t" * 44, "shown once", "the earlier secret signs until 2027, too"],
    ),
    (
        ["webhooks", "test", "census", "wh_1"],
        ["1 event waits for wh_1", "next: grovekeeper webhooks deliveries census wh_1"],
    ),
    (
        ["webhooks", "deliveries", "census", "wh_1"],
        ["webhook.test   2028    2029           3          no-answer", "204"],
    ),
]


@pytest.mark.parametrize(
    ("name", "asked"), [("new.csv", "csv"), ("new.CSV", "csv"), ("new.txt", None)]
)
def test_the_ending_of_an_export_is_its_format(
    service: Any, run: Run, name: str, asked: str | None
) -> None:
    assert run("ledger", "export", "census", name).exit_code == 0
    assert service.requests[-1].url.params.get("format") == asked


@pytest.mark.parametrize(("typed", "shown"), COMMANDS)
def test_text_output_names_the_next_step(
    run: Run, typed: list[str], shown: list[str]
) -> None:
    result = run(*typed)
    assert (result.exit_code, result.exception) == (0, None), result.output
    for text in shown:
        assert text in result.stdout


@pytest.mark.parametrize("typed", [typed for typed, _ in COMMANDS])
def test_json_is_one_value_and_nothing_else_on_stdout(
    run: Run, typed: list[str]
) -> None:
    result = run(*typed, "--json")
    assert result.exit_code == 0
    assert isinstance(json.loads(result.stdout), dict)
    assert result.stderr == ""


@pytest.mark.parametrize("typed", [typed for typed, _ in COMMANDS])
def test_every_command_ends_with_5_when_nothing_answers(
    run: Run, service: Any, typed: list[str]
) -> None:
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
def test_exit_codes_are_those_of_the_contract(
    run: Run, service: Any, status: int, problem: str, code: int
) -> None:
    service.answers["POST", "/train"] = (status, {"type": problem})
    typed = ["train", "census", "-a", "mrf", "-e", "1"]
    result = run(*typed)
    assert (result.exit_code, result.stdout) == (code, "")
    said = "a sentence"
    if status == 401:
        said = "the key in GROVEKEEPER_API_KEY is unknown, revoked or expired"
    assert said in result.stderr
    result = run(*typed, "--json")
    assert (result.exit_code, result.stderr) == (code, "")
    assert json.loads(result.stdout)["type"] == problem


def test_a_refusal_says_what_would_fit(run: Run, service: Any) -> None:
    service.answers["POST", "/train"] = (
        409,
        {"type": "budget-exceeded", "largest_that_fits": "0.7"},
    )
    result = run("train", "census", "-a", "mrf", "-e", "5")
    assert result.stderr.splitlines() == [
        "refused: a sentence",
        "  largest ε that fits: 0.7",
    ]


def test_a_problem_of_a_table_names_the_option_or_the_place_in_the_file(
    run: Run, service: Any, tmp_path: Path
) -> None:
    places = {
        "/error": "error", "/error_share": "error", "/tables/0/where/1/in": "where in",
        "/tables/0/bins/age": "bins age", "/tables/0/column": "column", "/tables/0/by/0": "by",
        "/tables": "/tables",
    }  # fmt: skip
    errors = [{"at": at, "problem": "too-small"} for at in places]
    path = ("POST", "/datasets/census/statistics/quote")
    service.answers[path] = (422, {"type": "invalid-request", "errors": errors})
    typed = run("mean", "census", "age", "--error", "0", "--quote").stderr
    assert typed.splitlines()[1:] == [
        f"  {name}: too small" for name in places.values()
    ]
    tables = tmp_path / "tables.json"
    tables.write_text('{"tables": [{"statistic": "mean", "column": "age"}]}')
    sent = run("statistics", "release", "census", str(tables), "--quote").stderr
    in_file = ["error", "error", *list(places)[2:-1], "tables"]
    assert sent.splitlines()[1:] == [f"  {at}: too small" for at in in_file]


@pytest.mark.parametrize(
    ("path", "at", "typed", "name"),
    [
        ("/datasets/census/webhooks", "/url", "webhooks add census ftp://x", "address"),
        ("/datasets/census/webhooks", "/threshold", "webhooks add census x --below 2", "below"),
        ("/ledger/census/cap", "/cap", "ledger cap census 0,5 --reason x", "epsilon"),
        ("/ledger/census/cap", "/cap", "ledger cap census --rho 0,5 --reason x", "rho"),
        ("/populations", "/budget/epsilon", "populations create x --epsilon 0,5", "epsilon"),
    ],
)  # fmt: skip
def test_a_problem_names_the_option_that_states_the_field(
    run: Run, service: Any, path: str, at: str, typed: str, name: str
) -> None:
    errors = [{"at": at, "problem": "too-small"}]
    service.answers["POST", path] = (422, {"type": "invalid-request", "errors": errors})
    said = run(*typed.split()).stderr.splitlines()[1:]
    assert said == [f"  {name}: too small"]


def test_problems_of_fields_and_columns_are_listed(run: Run, service: Any) -> None:
    trees = {"at": "/parameters/n_estimators", "problem": "too-large", "limit": 63}
    chosen = {"at": "/algorithm", "problem": "unknown", "accepted": ["auto", "mrf"]}
    column = {
        "at": "/parameters",
        "problem": "unknown-field",
        "accepted": [f"p{i}" for i in range(22)],
    }
    rows = {"at": "/rows/3/age", "problem": "missing", "column": "age", "count": 90}
    none = {"at": "/parameters", "problem": "unknown-field"}
    unknown = {
        "at": "",
        "problem": "unknown-field",
        "field": "scopes",
        "accepted": ["scope", "epsilon"],
    }
    errors = [
        {"at": "/epsilon", "problem": "not-positive"},
        trees,
        chosen,
        column,
        rows,
        none,
        unknown,
    ]
    service.answers["POST", "/plans"] = (
        422,
        {"type": "invalid-request", "errors": errors},
    )
    assert run("plan", "census", "-a", "mrf", "-e", "0").stderr.splitlines()[1:] == [
        "  epsilon: not positive",
        "  parameter n_estimators: too large; at most 63 here",
        "  algorithm: unknown; accepted: auto, mrf",
        "  parameter: the algorithm has no such parameter; accepted: "
        + ", ".join(f"p{i}" for i in range(20))
        + " and 2 more",
        "  column age: an empty cell in a column that allows none, in 90 rows",
        "  parameter: the algorithm takes no parameter",
        "  the request: no such field scopes; accepted: scope, epsilon",
    ]
    columns = [
        {"name": name, "problem": problem, "count": count}
        for name, problem, count in (
            ("", "unknown-column", 2),
            ("age", "empty", 7),
            ("sex", "missing-column", 1),
        )
    ]
    service.answers["POST", "/datasets/census/rows"] = (
        422,
        {"type": "rows-invalid", "columns": columns},
    )
    result = run("datasets", "upload", "census", "rows.csv")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-3:] == [
        "  the file: unknown column, 2 times",
        "  age: empty, 7 times",
        "  sex: missing column",
    ]


def test_columns_that_are_not_declared_are_named_from_the_file_and_rows_are_told(
    run: Run, service: Any, tmp_path: Path
) -> None:
    columns = [
        {"name": "", "problem": "unknown-column", "count": 2, "positions": [2, 4]},
        {
            "name": "age",
            "problem": "not-a-number",
            "count": 7,
            "row": 12,
            "suspected": "a mark such as NA",
        },
    ]
    service.answers["POST", "/datasets/census/rows"] = (
        422,
        {"type": "rows-invalid", "columns": columns},
    )
    for name, opened in (("a.csv", open), ("a.csv.gz", gzip.open)):
        with opened(tmp_path / name, "wt", encoding="utf-8") as file:
            file.write('\ufeffage,"zip, code",income,sx\n1,2,3,4\n')
        assert run(
            "datasets", "upload", "census", str(tmp_path / name)
        ).stderr.splitlines()[-2:] == [
            "  zip, code, sx: unknown column, 2 times",
            "  age: not a number, 7 times, first in row 12; a mark such as NA",
        ]
    (tmp_path / "r.csv").write_text('"","age"\n"1",2\n')
    unnamed = [{"name": "", "problem": "unknown-column", "count": 1, "positions": [1]}]
    unnamed += [{"name": "", "problem": "separator", "count": 1, "line": 1}]
    service.answers["POST", "/datasets/census/rows"] = (
        422,
        {"type": "rows-invalid", "columns": unnamed},
    )
    assert run(
        "datasets", "upload", "census", str(tmp_path / "r.csv")
    ).stderr.splitlines()[-2:] == [
        "  number 1 of the header: unknown column",
        "  the file: separator, line 1",
    ]
    service.answers["POST", "/datasets/census/rows"] = (
        422,
        {"type": "rows-invalid", "columns": columns},
    )
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    shown = run("datasets", "upload", "census", str(tmp_path / "a.parquet")).stderr
    assert "number 2 of the header, number 4 of the header: unknown column" in shown


def test_an_internal_error_names_the_request(run: Run, service: Any) -> None:
    service.answers["GET", "/datasets"] = (500, {"type": "internal"})
    result = run("datasets", "list")
    assert result.exit_code == 1
    assert "request id: rq_1" in result.stderr


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
        [
            "ledger",
            "show",
            "census",
            "--scope",
            '{"shard": [0]}',
            "--scope",
            "region=EU",
        ],
        ["ledger", "charge", "census", "--description", "x"],
        [
            "ledger",
            "charge",
            "census",
            "--description",
            "x",
            "--rho",
            "1",
            "--event",
            "file.json",
        ],
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
        ["aliases", "set", "production", "md_1"],
        ["predict", "md_1", "absent.csv"],
        ["datasets", "list", "--url", "ftp://grove.test"],
        ["datasets", "list", "--key-file", "absent.key"],
        ["datasets", "list", "--key-file", "file.json"],
        ["no-such-command"],
        ["algorithms", "no-such-forest"],
        ["verify"],
        ["verify", "absent.jsonl"],
    ],
)
def test_invalid_usage_exits_with_2_and_changes_nothing(
    run: Run, service: Any, typed: list[str], tmp_path: Path
) -> None:
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    result = run(*typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert [request.method for request in service.requests] in ([], ["GET"])
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_key_comes_from_the_option_then_the_environment_then_the_home(
    run: Run, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "admin.key").write_text("key_home." + "h" * 43 + "\n")
    (tmp_path / "mine.key").write_text(
        "\ufeffkey_file." + "f" * 43 + "\n", encoding="utf-8"
    )

    def sent(*options: str) -> str:
        assert run("datasets", "list", *options).exit_code == 0
        return (
            str(service.requests[-1].headers["Authorization"])
            .removeprefix("Bearer ")
            .split(".")[0]
        )

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
    requested = [
        f"{request.url.host}:{request.url.port}" for request in service.requests
    ]
    assert requested == ["127.0.0.1:8731", "env.test:None", "option.test:1"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_address_with_a_password_is_refused_and_not_shown(
    run: Run, service: Any, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    address = "http://u:SECRETPW@grove.test:1"
    by_option = run("datasets", "list", "--url", address, *options)
    monkeypatch.setenv("GROVEKEEPER_URL", address)
    for result in (by_option, run("datasets", "list", *options)):
        assert result.exit_code == ExitCode.WRONG_USE
        assert "no user name and no password" in result.output
        assert "SECRETPW" not in result.output
    assert service.requests == []


SECRET = "s" * 43
MADE_KEY, CHOSEN_KEY = f"key_abcdefghij234567.{SECRET}", f"boss.{SECRET}"


@pytest.mark.parametrize("key", [MADE_KEY, MADE_KEY[:-9], f"{MADE_KEY}\n", CHOSEN_KEY])
@pytest.mark.parametrize(
    "typed",
    [
        "keys rotate KEY",
        "keys revoke KEY",
        "datasets grant census KEY analyst",
        "datasets revoke census KEY",
    ],
)
def test_a_whole_key_in_place_of_its_id_is_not_sent_and_not_shown(
    run: Run, service: Any, typed: str, key: str
) -> None:
    for options in ((), ("--json",)):
        result = run(
            *(key if word == "KEY" else word for word in typed.split()), *options
        )
        assert result.exit_code == ExitCode.WRONG_USE
        assert "the part before its dot" in result.output
        assert "sss" not in result.output
    assert service.requests == []


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_key_in_place_of_its_file_is_not_shown(
    run: Run, service: Any, options: tuple[str, ...]
) -> None:
    result = run("datasets", "list", "--key-file", MADE_KEY, *options)
    assert result.exit_code == ExitCode.WRONG_USE
    assert "the file that --key-file names cannot be read" in result.output
    assert SECRET not in result.output
    assert service.requests == []


@pytest.mark.parametrize(
    "typed",
    [
        ["datasets", "show", MADE_KEY],
        ["webhooks", "rotate", "census", f"whsec_{SECRET}="],
        ["jobs", "show", MADE_KEY],
    ],
)
def test_no_secret_is_sent_in_a_path(run: Run, service: Any, typed: list[str]) -> None:
    result = run(*typed)
    assert (result.exit_code, result.stdout) == (ExitCode.WRONG_USE, "")
    assert "sss" not in result.output
    assert service.requests == []


def test_texts_of_the_service_are_never_read_as_markup(run: Run, service: Any) -> None:
    model = {
        **service.answers["GET", "/models/md_1"][1],
        "name": "[red]forest[/red] [/x]",
    }
    of_job = ("price", "n_leaves", "purpose", "submitted_by", "submitted_by_name")
    unknown = dict.fromkeys((*of_job, "accuracy", "error"))
    service.answers["GET", "/models"] = (
        200,
        {"models": [model | unknown], "next": None},
    )
    assert "[red]forest[/red] [/x]" in run("models", "list").stdout
    assert "none shown" in run("models", "list").stdout


def test_one_model_is_no_comparison(run: Run, service: Any) -> None:
    refused = run("models", "compare", "md_1")
    assert refused.exit_code == 2
    assert service.requests == []
    shown = run("models", "compare", "md_1", "md_2").stdout
    assert "looks at hours" not in shown, "no model looks at it"


def test_a_tree_of_a_model_is_drawn_in_place_of_its_card(
    run: Run, service: Any
) -> None:
    shown = run("models", "show", "md_1", "--tree", "0").stdout
    assert shown.splitlines()[0].startswith("tree 0 of 8 (each end says")
    assert shown.splitlines()[-3:] == [
        "age ≤ 40?",
        "├─ yes: low 75.0 %",
        "└─ no: high 50.0 %, over 4 leaves",
    ]
    assert [request.url.path for request in service.requests] == [
        "/models/md_1/trees/0"
    ]
    assert run("models", "show", "md_1", "--tree", "-1").exit_code == 2


def test_a_model_without_counts_counts_its_splits(run: Run, service: Any) -> None:
    use = service.answers["GET", "/models/md_1/importances"][1]
    features = [{**feature, "importance": None} for feature in use["features"]]
    service.answers["GET", "/models/md_1/importances"] = (
        200,
        {**use, "features": features},
    )
    shown = run("models", "show", "md_1").stdout
    assert "its splits alone are counted" in shown
    assert "hours" not in shown, "no split looks at it"
    assert shown.index("age") < shown.index("sex")


def test_a_price_in_another_unit_names_its_epsilon(run: Run, service: Any) -> None:
    (listed,) = service.answers["GET", "/models"][1]["models"]
    in_rho = {"unit": "rho", "amount": "0.004", "epsilon": "0.5"}
    unheard = {**listed["accuracy"], "estimate": None}
    model = {**listed, "price": in_rho, "accuracy": unheard}
    service.answers["GET", "/models"] = (200, {"models": [model], "next": None})
    shown = run("models", "list").stdout
    assert "0.004 ρ (ε = 0.5)" in shown
    assert "the noise outweighs the counts" in shown


def test_an_accuracy_on_training_rows_says_so(run: Run, service: Any) -> None:
    typed = (
        ("models", "list"),
        ("models", "compare", "md_1", "md_2"),
        ("evaluations", "show", "ev_1"),
        ("evaluations", "list", "md_1"),
    )
    words = "on rows used in training"
    for command in typed:
        assert words not in run(*command).stdout, command
    answers = list(service.answers.items())
    for place, answer in answers:
        service.answers[place] = _on_training_rows(answer)
    for command in typed:
        assert words in " ".join(run(*command).stdout.split()), command


def _on_training_rows(part: Any) -> Any:
    """A part of an answer, whose accuracies were measured on training rows."""
    if isinstance(part, dict):
        shown = {name: _on_training_rows(inner) for name, inner in part.items()}
        return shown | (
            {"on_training_rows": True} if "on_training_rows" in part else {}
        )
    if isinstance(part, (list, tuple)):
        return type(part)(map(_on_training_rows, part))
    return part


def test_datasets_are_filtered_by_the_service(run: Run, service: Any) -> None:
    run("datasets", "list", "--population", "people", "--role", "analyst")
    sent = dict(service.requests[-1].url.params)
    assert (sent["population"], sent["role"]) == ("people", "analyst")
    assert "name" not in sent


@pytest.mark.parametrize("is_option", [True, False])
def test_a_refused_key_is_named_by_its_file(
    run: Run,
    service: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_option: bool,
) -> None:
    key = tmp_path / "bad.key"
    key.write_text(f"{MADE_KEY}\n")
    service.answers["GET", "/datasets/census"] = (401, {"type": "unauthenticated"})
    option = ["--key-file", str(key)]
    if not is_option:
        option = []
        monkeypatch.delenv("GROVEKEEPER_API_KEY")
        monkeypatch.setenv("GROVEKEEPER_API_KEY_FILE", str(key))
    result = run("datasets", "show", "census", *option)
    assert f"the key in {key} is unknown" in result.stderr
