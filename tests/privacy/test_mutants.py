"""The command that makes careless changes notices what survives; run whole, it finds no survivor without a reason."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.privacy import mutations
from tests.privacy.mutations import ROOT, modules, mutants_of

TEST = "tests/privacy/test_paid_draws.py::test_a_forest_draws_everything_that_its_event_pays_for[rdt-ta-pure]"
NOISE = "app.forests.bins.releases"
ELSEWHERE = "app.forests.algorithms.nbrt.grow"
"""A module that growth of ``rdt-ta`` does not enter."""


def run(folder: Path, module: str, *, listed: list[str], part: str = "", is_complete: bool = False) -> tuple[int, str]:
    """Runs the first mutants of a module, with a part of their keys, against ``TEST`` alone and other reasons."""
    (folder / "reasons.json").write_text(json.dumps([{"reason": "harmless", "mutants": listed}]))
    program = f"""
import pathlib, sys
from tests.privacy import mutants, mutations
folder = pathlib.Path({str(folder)!r})
mutants.WITHOUT_EFFECT = folder / "reasons.json"
mutants.PROGRESS, mutants.TRACES = folder / "mutants.jsonl", folder / "traces"
chosen = [mutant for mutant in mutants.mutants_of({module!r}) if {part!r} in mutant.key][:4]
sys.exit(mutants.run(chosen, [{TEST!r}], is_complete={is_complete}))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_doubled_scale_is_made_and_noticed(tmp_path: Path) -> None:
    keys = [mutant.key for mutant in mutants_of(NOISE)]
    assert any("| exact + randomness.discrete_laplace(" in key and key.endswith("| exact") for key in keys), "no noise"
    status, output = run(tmp_path, NOISE, listed=[], part="inverse_scale=2 * event.inverse_scale")
    assert status == 0, output
    assert "1 mutants: 1 noticed, 0 listed" in output


def test_a_survivor_without_a_reason_fails_and_so_does_a_reason_without_a_mutant(tmp_path: Path) -> None:
    keys = [mutant.key for mutant in mutants_of(ELSEWHERE)][:4]
    status, output = run(tmp_path, ELSEWHERE, listed=keys[1:])
    assert (status, [line for line in output.splitlines() if line.startswith("SURVIVED")]) == (
        1,
        [f"SURVIVED {keys[0]}"],
    )
    assert run(tmp_path, ELSEWHERE, listed=keys)[0] == 0
    status, output = run(tmp_path, ELSEWHERE, listed=[*keys, "app.gone:name | 1 | 2"], is_complete=True)
    assert status == 1
    assert "NOT MADE ANY MORE app.gone:name | 1 | 2" in output


def test_each_mechanism_and_charge_has_mutants() -> None:
    """Found from the code: whoever draws or prices is there without being listed."""
    made = {module: mutants_of(module) for module in modules()}
    for name in ("algorithms.nbrt.grow", "algorithms.rpf.grow", "evaluation", "trees.tree_growth"):
        assert made[f"app.forests.{name}"]
    assert made["app.services.execution.charge"]
    assert made["app.ledger.admission"]
    files = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.glob("app/**/*.py")]
    for name in (*mutations.WHOLE, *mutations.LEFT_OUT):
        assert any(module.startswith(name) for module in files), f"{name} has moved"
    keys = [mutant.key for mutants in made.values() for mutant in mutants]
    assert len(keys) == len(set(keys))


@pytest.mark.long
@pytest.mark.timeout(12 * 3600)
def test_no_careless_change_survives_without_a_reason() -> None:
    subprocess.run([sys.executable, "-m", "tests.privacy.mutants"], cwd=ROOT, check=True)
