"""The command line suggests names that resemble what was typed: datasets, algorithms, parameters, columns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("files")


def test_a_dataset_is_suggested_from_those_that_the_key_sees(run: Run, service: Any) -> None:
    missing = (404, {"type": "not-found", "detail": "no such dataset, or none that this key may see"})
    service.answers["GET", "/datasets/cencus"] = service.answers["GET", "/ledger/cencus"] = missing
    service.answers["POST", "/plans"] = missing
    for typed in (["datasets", "show", "cencus"], ["ledger", "show", "cencus"], ["plan", "cencus", "-e", "1"]):
        result = run(*typed)
        assert result.exit_code == 1
        assert result.stderr == ("not done: no such dataset, or none that this key may see; did you mean census?\n")
    service.answers["GET", "/datasets"] = (403, {"type": "role-missing"})
    assert "did you mean" not in run("datasets", "show", "cencus").stderr


def test_a_choice_is_suggested_from_those_that_the_service_accepts(run: Run, service: Any) -> None:
    errors = [
        {"at": "/algorithm", "problem": "unknown", "accepted": ["auto", "rdt-ta", "rpf"]},
        {"at": "/parameters", "problem": "unknown-field", "accepted": ["max_depth", "n_estimators"]},
        {"at": "/scope/region", "problem": "unknown-cell", "accepted": ["North", "South"]},
    ]
    service.answers["POST", "/plans"] = (422, {"type": "invalid-request", "errors": errors})
    lines = run(
        "plan", "census", "-a", "rdt-at", "-e", "1", "-p", "maxdepth=3", "--scope", "region=Nroth,South"
    ).stderr.splitlines()  # fmt: skip
    assert lines[1].endswith("accepted: auto, rdt-ta, rpf; did you mean rdt-ta?")
    assert lines[2].endswith("accepted: max_depth, n_estimators; did you mean max_depth?")
    assert lines[3].endswith("accepted: North, South; did you mean North?")


def test_an_algorithm_is_suggested(run: Run) -> None:
    assert "there is no algorithm mfr; did you mean mrf?" in run("algorithms", "mfr").stderr
    assert "there is no algorithm xyz; see: grovekeeper algorithms" in run("algorithms", "xyz").stderr


def test_a_column_of_a_prediction_is_suggested(run: Run, tmp_path: Path) -> None:
    (tmp_path / "typo.csv").write_text("agee,sex,income\n3,Male,low\n")
    result = run("predict", "md_1", str(tmp_path / "typo.csv"))
    assert result.exit_code == 2
    assert "the rows have a column 'agee', which the model does not read; did you mean age?" in result.stderr


def test_columns_that_the_rows_lack_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("sex\nMale\nFemale\n")
    result = run("predict", "md_1", str(tmp_path / "short.csv"))
    assert (result.exit_code, result.stderr) == (2, "not done: the rows lack columns that the model needs: age\n")


def test_a_model_is_suggested_by_its_name(run: Run, service: Any) -> None:
    service.answers["GET", "/models/forest"] = (404, {"type": "not-found", "detail": "no such model"})
    assert run("predict", "forest", "rows.csv").stderr == "not done: no such model; did you mean md_1?\n"
    service.answers["GET", "/models/tree"] = (404, {"type": "not-found", "detail": "no such model"})
    assert run("predict", "tree", "rows.csv").stderr == "not done: no such model\n"


def test_a_command_of_a_group_is_suggested(run: Run) -> None:
    assert "Did you mean 'datasets upload'?" in " ".join(run("upload", "census").stderr.split())
    assert "Did you mean 'train'?" in " ".join(run("trian", "census").stderr.split())
