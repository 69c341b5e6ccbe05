"""The command line of the client is installed without the service and its libraries."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.databases import on_one_idle_server
from tests.support.export_writers import Writer
from tests.support.server import Server
from tests.support.wheels import environment_of

_ROOT = Path(__file__).parents[2]
_CLIENT = _ROOT / "clients" / "python"
_LEFT_BEHIND = (
    "app",
    "fastapi",
    "grovekeeper_forests",
    "msgspec",
    "numba",
    "numpy",
    "pyarrow",
    "sqlalchemy",
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that has ``grovekeeper-client[cli]`` alone."""
    folder = tmp_path_factory.mktemp("dist")
    build = ("hatchling", "build", "--target", "wheel", "--directory", str(folder))
    for source in (_CLIENT, _ROOT / "packages" / "verifier"):
        command = [sys.executable, "-m", *build]
        subprocess.run(command, cwd=source, capture_output=True, check=True)
    environment = tmp_path_factory.mktemp("environment")
    wheels = list(folder.glob("*.whl"))
    return environment_of("grovekeeper-client[cli]", wheels, environment)


def _run(
    programs: Path, *typed: str | Path, **environ: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [programs / "grovekeeper", *typed],
        cwd="/",
        env={"PATH": os.defpath, "HOME": "/nonexistent", "COLUMNS": "200", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_brings_no_library_of_the_service(programs: Path) -> None:
    program = f"""
import importlib
import importlib.util
import pkgutil

import grovekeeper_client.cli
import grovekeeper_common

for package in (grovekeeper_client.cli, grovekeeper_common):
    for module in pkgutil.iter_modules(package.__path__):
        if module.name == "prediction_tables":  # of the extra `arrow`
            continue
        importlib.import_module(f"{{package.__name__}}.{{module.name}}")
print(*(name for name in {_LEFT_BEHIND} if importlib.util.find_spec(name)))
"""
    found = subprocess.run(
        [programs / "python", "-c", program],
        cwd="/",
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("\n", "")


def test_the_help_text_and_the_version_are_those_of_the_client(programs: Path) -> None:
    shown = _run(programs, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "│ train " in shown.stdout
    assert "│ serve " not in shown.stdout
    assert "create-admin" not in _run(programs, "keys", "--help").stdout
    project = tomllib.loads((_CLIENT / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    assert _run(programs, "--version").stdout == f"grovekeeper {version}\n"


@on_one_idle_server
def test_commands_ask_a_running_service(idle_server: Server, programs: Path) -> None:
    server, environ = idle_server, {"NO_PROXY": "127.0.0.1"}
    environ["GROVEKEEPER_API_KEY"] = server.admin.key
    name = server.declared()["name"]
    listed = _run(
        programs, "datasets", "list", "--json", "--url", server.url, **environ
    )
    assert (listed.returncode, listed.stderr) == (0, "")
    names = [item["name"] for item in json.loads(listed.stdout)["datasets"]]
    assert name in names
    shown = _run(programs, "ledger", "show", name, "--url", server.url, **environ)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert name in shown.stdout
    record = _run(
        programs, "ledger", "deployment", name, "--url", server.url, **environ
    )
    assert "\ntier: " in record.stdout


def test_an_export_is_verified_and_a_draft_is_made_without_a_service(
    programs: Path, tmp_path: Path
) -> None:
    export = tmp_path / "export.jsonl"
    export.write_bytes(b"".join(Writer(shards=2).job("a", "1").lines()))
    verified = _run(programs, "verify", export)
    assert verified.stdout.startswith("CONSISTENT"), verified.stderr
    dictionary = tmp_path / "dictionary.json"
    dictionary.write_text('{"fields": [{"name": "age", "type": "integer"}]}')
    draft = json.loads(_run(programs, "datasets", "init", dictionary).stdout)
    assert draft["schema"]["features"][0]["name"] == "age"


def test_without_the_extra_the_command_says_what_to_install(programs: Path) -> None:
    program = "import sys; sys.modules['typer'] = None"
    program += "; from grovekeeper_client.cli.start import main; main()"
    started = subprocess.run(
        [programs / "python", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 1
    assert 'pip install "grovekeeper-client[cli]"' in started.stderr
