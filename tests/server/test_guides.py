"""The commands of the guides work on a real service, in the order of each guide."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from app.core import processes
from app.services.datasets.declaration_rules import read_partitions
from app.wire.datasets import DatasetIn
from grovekeeper_client.settings import ADMIN_KEY_FILE
from grovekeeper_forests.data.schema import Schema
from tests.support.databases import MigratedDatabase
from tests.support.server import running_server

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Shell:
    """A user's terminal: it copies values from one command into the next."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def run_guide(self, name: str) -> int:
        """Runs every command of a guide and returns the number of commands."""
        commands = [
            line.strip()
            for language, text in FENCE.findall(
                (GUIDES / name).read_text(encoding="utf-8")
            )
            if language == "sh"
            for line in text.splitlines()
            if line.strip().startswith("grovekeeper ")
        ]
        for command in commands:
            self._run(shlex.split(command)[1:])
        return len(commands)

    def _run(self, words: list[str]) -> None:
        words = [self._known.get(word, word) for word in words]
        options = () if "--json" in words or words[0] == "verify" else ("--json",)
        done = CliRunner().invoke(grovekeeper, [*words, *options])
        assert done.exit_code == 0, (words, done.stdout, done.stderr, done.exception)
        self._learn(words, done.stdout)

    def _learn(self, words: list[str], printed: str) -> None:
        """Stores the values that a person would copy from one command into the next."""
        if words[:2] == ["keys", "create"]:
            self._known["KEY_ID"] = json.loads(printed)["id"]
        if words[:2] == ["webhooks", "add"]:
            self._known["WEBHOOK_ID"] = json.loads(printed)["id"]
        if words[:2] == ["populations", "create"]:
            self._known["POPULATION_ID"] = json.loads(printed)["id"]
        if words[:2] == ["evaluations", "run"]:
            self._known["EVALUATION"] = json.loads(printed)["evaluation_id"]
        if words[:2] == ["profiles", "release"]:
            self._known["PROFILE"] = json.loads(printed)["profile_id"]
        if words[0] == "train":
            answer = json.loads(printed)
            self._known["JOB"] = answer.get("job_id") or answer["id"]
            self._known["MODEL"] = answer.get("model_id") or self._known["MODEL"]
        if words[:2] == ["jobs", "show"]:
            self._known["OTHER-MODEL"] = json.loads(printed)["model_id"]


@pytest.fixture
def shell(
    migrated_database: MigratedDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GROVEKEEPER_")
    }
    environ = processes.module_environment(clean | {"GROVEKEEPER_HOME": str(home)})
    with (
        migrated_database("sqlite", home) as url,
        running_server(url, home, n_workers=1) as server,
    ):
        (home / ADMIN_KEY_FILE).write_text(server.admin.key)
        monkeypatch.chdir(tmp_path)
        for name, value in (environ | {"GROVEKEEPER_URL": server.url}).items():
            monkeypatch.setenv(name, value)
        yield Shell()


def _rows(n_rows: int) -> str:
    random = np.random.default_rng(7)
    lines = ["age,hours,sector,income"]
    for age, hours, sector in zip(
        random.integers(18, 90, n_rows),
        random.uniform(0, 60, n_rows),
        random.integers(0, 4, n_rows),
        strict=True,
    ):
        name = ("private", "public", "self-employed", "")[sector]
        lines.append(f"{age},{hours:.1f},{name},{'high' if hours > 35 else 'low'}")
    return "\n".join(lines) + "\n"


def test_the_guides_work_as_written(shell: Shell, tmp_path: Path) -> None:
    owner = (GUIDES / "owner.md").read_text(encoding="utf-8")
    declaration, dictionary, *fragments = [
        text for language, text in FENCE.findall(owner) if language == "json"
    ]
    for fragment in fragments:
        legal = DatasetIn.model_validate(
            json.loads(declaration) | json.loads("{" + fragment + "}")
        )
        schema = Schema.from_json(legal.schema_.model_dump(exclude_none=True))
        read_partitions(legal.partitions, schema, unit_column=legal.privacy_unit.column)
    (tmp_path / "census.json").write_text(declaration)
    (tmp_path / "dictionary.json").write_text(dictionary)
    (tmp_path / "census.csv").write_text(_rows(2_000))
    (tmp_path / "new-rows.csv").write_text(_rows(5))
    header, *lines = _rows(5).splitlines()
    numbered = [f"{line},{number}" for number, line in enumerate(lines)]
    patients = "\n".join([f"{header},patient_id", *numbered])
    (tmp_path / "new-patients.csv").write_text(patients)

    erasing = "grovekeeper datasets delete census --yes"
    assert erasing in owner, (
        "the owner's guide ends by erasing, so the others run before its last command"
    )
    (tmp_path / "owner.md").write_text(owner.replace(erasing, ""))
    assert shell.run_guide(str(tmp_path / "owner.md")) >= 7
    # the guide omits it; the auditor sees it
    shell._run(shlex.split("populations join census patients --yes"))
    assert shell.run_guide("../choosing.md") == 2
    assert shell.run_guide("analyst.md") >= 10
    outside = (GUIDES / "outside.md").read_text(encoding="utf-8")
    (mechanism,) = [
        text for language, text in FENCE.findall(outside) if language == "json"
    ]
    (tmp_path / "mean.json").write_text(mechanism)
    assert shell.run_guide("outside.md") >= 6
    assert shell.run_guide("auditor.md") >= 16
    shell._run(shlex.split(erasing)[1:])


def test_the_ten_minutes_of_the_readme_work_as_written(
    shell: Shell, tmp_path: Path
) -> None:
    """Every file that the commands name is in the repository, or written by a command
    before.
    """
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    section = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .partition("## Ten minutes")[2]
        .partition("\n## ")[0]
    )
    commands, *shown = FENCE.findall(section)
    DatasetIn.model_validate(json.loads(shown[0][1]))
    typed = [
        words
        for line in commands[1].splitlines()
        if line.startswith("grovekeeper ")
        for words in line.partition(" #")[0].split(" && ")
    ]
    assert len(typed) >= 8
    for words in typed:
        shell._run(shlex.split(words)[1:])
    draft = json.loads((tmp_path / "draft.json").read_text())
    complete = json.loads(
        (ROOT / "docs" / "examples" / "census" / "declaration.json").read_text()
    )
    names = [
        [feature["name"] for feature in each["schema"]["features"]]
        for each in (draft, complete)
    ]
    assert names[0] == names[1], "the declaration completes the draft"
