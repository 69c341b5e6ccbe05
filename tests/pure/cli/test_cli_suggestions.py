"""The command line suggests names that resemble what was typed: datasets, algorithms,
parameters, columns.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import Result

from app.wire.ledger import AccountEntryKind
from grovekeeper_client.cli.problems import similar
from grovekeeper_client.errors import Unreachable

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")


def test_a_dataset_is_suggested_from_those_that_the_key_sees(
    run: Run, service: Any
) -> None:
    missing = (
        404,
        {
            "type": "not-found",
            "detail": "no such dataset, or none that this key may see",
        },
    )
    service.answers["GET", "/datasets/cencus"] = service.answers[
        "GET", "/ledger/cencus"
    ] = missing
    service.answers["POST", "/plans"] = missing
    for typed in (
        ["datasets", "show", "cencus"],
        ["ledger", "show", "cencus"],
        ["plan", "cencus", "-e", "1"],
    ):
        result = run(*typed)
        assert result.exit_code == 1
        assert result.stderr == (
            "not done: no such dataset, or none that this key may see; did you mean census?\n"
        )
    service.answers["GET", "/datasets"] = (403, {"type": "role-missing"})
    assert "did you mean" not in run("datasets", "show", "cencus").stderr


def test_a_choice_is_suggested_from_those_that_the_service_accepts(
    run: Run, service: Any
) -> None:
    errors = [
        {
            "at": "/algorithm",
            "problem": "unknown",
            "accepted": ["auto", "rdt-ta", "rpf"],
        },
        {
            "at": "/parameters",
            "problem": "unknown-field",
            "accepted": ["max_depth", "n_estimators"],
        },
        {
            "at": "/scope/region",
            "problem": "unknown-cell",
            "accepted": ["North", "South"],
        },
    ]
    service.answers["POST", "/plans"] = (
        422,
        {"type": "invalid-request", "errors": errors},
    )
    lines = run(
        "plan", "census", "-a", "rdt-at", "-e", "1", "-p", "maxdepth=3", "--scope", "region=Nroth,South"
    ).stderr.splitlines()  # fmt: skip
    assert lines[1].endswith("accepted: auto, rdt-ta, rpf; did you mean rdt-ta?")
    assert lines[2].endswith(
        "accepted: max_depth, n_estimators; did you mean max_depth?"
    )
    assert lines[3].endswith("accepted: North, South; did you mean North?")


def test_an_algorithm_is_suggested(run: Run) -> None:
    assert (
        "there is no algorithm mfr; did you mean mrf?"
        in run("algorithms", "mfr").stderr
    )
    assert (
        "there is no algorithm xyz; see: grovekeeper algorithms"
        in run("algorithms", "xyz").stderr
    )


def test_a_column_of_a_prediction_is_suggested(run: Run, tmp_path: Path) -> None:
    (tmp_path / "typo.csv").write_text("agee,sex,income\n3,Male,low\n")
    result = run("predict", "md_1", str(tmp_path / "typo.csv"))
    assert result.exit_code == 2
    assert (
        "the model does not read the column 'agee' of the rows; did you mean age?"
        in result.stderr
    )


def test_columns_that_the_rows_lack_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("sex\nMale\nFemale\n")
    result = run("predict", "md_1", str(tmp_path / "short.csv"))
    assert (result.exit_code, result.stderr) == (
        2,
        "not done: the rows lack columns that the model needs: age\n",
    )


def test_a_model_is_suggested_by_its_name(run: Run, service: Any) -> None:
    service.answers["GET", "/models/forest"] = (
        404,
        {"type": "not-found", "detail": "no such model"},
    )
    assert (
        run("predict", "forest", "rows.csv").stderr
        == "not done: no such model; did you mean md_1?\n"
    )
    service.answers["GET", "/models/tree"] = (
        404,
        {"type": "not-found", "detail": "no such model"},
    )
    assert run("predict", "tree", "rows.csv").stderr == "not done: no such model\n"


def test_a_command_of_a_group_is_suggested(run: Run) -> None:
    assert "Did you mean 'datasets upload'?" in " ".join(
        run("upload", "census").stderr.split()
    )
    assert "Did you mean 'train'" in " ".join(run("trian", "census").stderr.split())


_NO_KEY = (
    404,
    {"type": "not-found", "detail": "no such key, or none that this key may see"},
)


def _is_no_id(service: Any, name: str) -> None:
    """Lets the service know no key of an id."""
    for method, path in (
        ("PUT", f"/datasets/census/grants/{name}"),
        ("DELETE", f"/datasets/census/grants/{name}"),
        ("POST", f"/keys/{name}/secret"),
        ("DELETE", f"/keys/{name}"),
    ):
        service.answers[method, path] = _NO_KEY


_WITH_A_NAME = [
    ["datasets", "grant", "census", "ann", "analyst"],
    ["datasets", "revoke", "census", "ann"],
    ["keys", "rotate", "ann"],
    ["keys", "revoke", "ann"],
]


@pytest.mark.parametrize("typed", _WITH_A_NAME)
def test_a_key_is_named_by_its_name(run: Run, service: Any, typed: list[str]) -> None:
    _is_no_id(service, "ann")
    (listed,) = service.answers["GET", "/keys"][1]["keys"]
    revoked = {**listed, "id": "key_old", "revoked_at": "2026"}
    service.answers["GET", "/keys"] = (200, {"keys": [revoked, listed], "next": None})
    service.answers["PUT", "/datasets/census/grants/key_2"] = (
        200,
        {"key_id": "key_2", "role": "analyst"},
    )
    service.answers["DELETE", "/datasets/census/grants/key_2"] = (204, None)
    result = run(*typed)
    assert result.exit_code == 0, result.stderr
    assert "key_2" in result.stdout
    twice = [listed, {**listed, "id": "key_9"}]
    service.answers["GET", "/keys"] = (200, {"keys": twice, "next": None})
    result = run(*typed)
    assert result.exit_code == 2
    assert (
        "several keys have this name; name one by its id: key_2, key_9" in result.stderr
    )
    service.answers["GET", "/keys"] = (200, {"keys": [], "next": None})
    result = run(*typed)
    assert result.exit_code == 1
    assert "no such key" in result.stderr
    assert "grovekeeper keys list" in result.stderr


def test_an_owner_names_a_key_with_a_grant_by_its_name(run: Run, service: Any) -> None:
    _is_no_id(service, "ann")
    service.answers["GET", "/keys"] = (
        403,
        {"type": "role-missing", "detail": "needs admin"},
    )
    (grant, *_) = service.answers["GET", "/datasets/census/grants"][1]["grants"]
    granted = {**grant, "key_id": "key_2", "key_name": "ann"}
    service.answers["GET", "/datasets/census/grants"] = (
        200,
        {"grants": [granted], "next": None},
    )
    service.answers["PUT", "/datasets/census/grants/key_2"] = (
        200,
        {"key_id": "key_2", "role": "owner"},
    )
    assert run("datasets", "grant", "census", "ann", "owner").stdout.startswith(
        "ann (key_2) is owner on census"
    )


def test_a_kind_of_entries_that_does_not_exist_is_not_guessed_from_half_of_its_letters() -> (
    None
):
    kinds = get_args(AccountEntryKind)
    assert similar(["spend"], kinds) == []
    assert similar(["chagre", "reserv"], kinds) == ["charge", "reserve"]


def test_the_kinds_of_entries_are_in_the_help(run: Run) -> None:
    shown = " ".join(run("ledger", "entries", "--help").stdout.split())
    assert all(kind in shown for kind in get_args(AccountEntryKind))


def test_the_command_that_opens_a_first_population_is_whole(
    run: Run, service: Any
) -> None:
    service.answers["GET", "/populations"] = (200, {"populations": [], "next": None})
    shown = run("populations", "list").stdout
    command = shown.partition("grovekeeper ")[2].split()
    assert command == ["populations", "create", "NAME", "--epsilon", "1"]
    assert run(*command).exit_code == 0


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "broken.csv",
            "hours,sex\n",
            "the model does not read the column 'hours' of the rows",
        ),
        ("short.csv", "sex\n", "the rows lack columns that the model needs: age"),
        ("labelled.csv", "age,sex,income\n", "labelled.csv has no rows"),
        ("rows.json", "[]", "rows.json has no rows"),
    ],
)
def test_a_file_without_rows_is_no_prediction(
    run: Run, tmp_path: Path, name: str, text: str, why: str
) -> None:
    """An export that broke has a header alone, or that of another file."""
    (tmp_path / name).write_text(text)
    result = run("predict", "md_1", str(tmp_path / name))
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("webhooks", "create"), "'add'"),
        (("keys", "add"), "'create'"),
        (("keys", "delete"), "'revoke'"),
    ],
)
def test_the_word_of_another_program_is_known(
    run: Run, typed: tuple[str, ...], meant: str
) -> None:
    result = run(*typed)
    assert (result.exit_code, f"Did you mean {meant}" in result.stderr) == (2, True)


def test_a_checkpoint_without_its_key_names_the_missing_option(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "export.jsonl"
    file.touch()
    for given, missing in (
        ("--checkpoint", "--public-key"),
        ("--public-key", "--checkpoint"),
    ):
        stderr = run("verify", str(file), given, str(file)).stderr
        assert f"{missing} is missing" in " ".join(stderr.split())


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (",age,sex", "a column without a name: the row names of R"),
        ("Unnamed: 0,age,sex", "a column without a name: the row names of R"),
        ("age,sex,", "columns without a name at the end: spreadsheets"),
        ("AGE,sex", "in other letters, or with blanks around it"),
        ("patient,ill,age,sex", "the columns 'patient', 'ill' of the rows; leave"),
    ],
)
def test_a_column_that_the_model_does_not_read_has_a_cause(
    run: Run, tmp_path: Path, header: str, why: str
) -> None:
    file = tmp_path / "rows.csv"
    cells = ",".join(["1"] * (header.count(",") + 1))
    file.write_text(f"{header}\n{cells}\n")
    assert why in " ".join(run("predict", "md_1", str(file)).stderr.split())


def test_a_list_is_shown_without_names_of_keys_that_do_not_arrive(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise Unreachable("http://service", "the connection broke off")

    monkeypatch.setattr("grovekeeper_client.client.Client.func.grants", broken)
    result = run("ledger", "reservations", "census")
    assert (result.exit_code, result.stderr) == (0, "")


def test_the_keys_of_a_quota_have_names(run: Run, service: Any) -> None:
    _, rules = service.answers["GET", "/datasets/census/rules"]
    quota = {"keys": ["key_1", "key_2"], "cap": "1", "spent": "0.5"}
    service.answers["GET", "/datasets/census/rules"] = (
        200,
        {**rules, "quotas": [quota]},
    )
    grants = [{"key_id": "key_1", "key_name": "ann"}]
    service.answers["GET", "/datasets/census/grants"] = (
        200,
        {"grants": grants, "next": None},
    )
    shown = run("rules", "show", "census").stdout
    assert "ann (key_1), key_2: 0.5" in " ".join(shown.split())
