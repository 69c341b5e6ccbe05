"""The command as a whole: a light start, a complete list of commands, and correct
output in any locale.
"""

import inspect
import io
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from app.cli import main
from app.cli.main import app
from app.cli.problems import ExitCode

HEAVY = (
    "numba", "numpy", "pyarrow", "fastapi", "sqlalchemy", "alembic", "pydantic", "httpx", "uvicorn", "safetensors",
    "yaml", "email",
)  # fmt: skip


def test_starting_imports_nothing_heavy() -> None:
    probe = "import sys, app.cli.main; print(*sorted(m for m in sys.modules if '.' not in m))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert set(HEAVY).isdisjoint(done.stdout.split())


def test_the_help_text_imports_no_command() -> None:
    probe = (
        "import sys; from typer.testing import CliRunner; from app.cli.main import app"
    )
    probe += "; CliRunner().invoke(app, ['--help']); print(*(m for m in sys.modules if 'app' in m.split('.')))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {"app", "app.cli", "app.cli.main"}


def test_the_help_text_says_what_the_commands_say() -> None:
    for names in main._PANELS.values():
        for name, (_, text) in names.items():
            first, _, _ = inspect.cleandoc(main._command(name).help).partition("\n\n")
            assert text == first.replace("\n", " ")


def test_a_command_imports_no_other_command() -> None:
    probe = (
        "import sys; from typer.testing import CliRunner; from app.cli.main import app"
    )
    probe += "; CliRunner().invoke(app, ['serve', '--help']); print(*sorted(m for m in sys.modules if 'app.cli' in m))"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "app.cli.installation" in loaded
    assert loaded.isdisjoint(
        {"app.cli.datasets", "app.cli.ledger", "app.cli.demo", "app.cli.training"}
    )


@pytest.mark.parametrize(
    "name",
    ["serve", "demo", "api", "worker", "db", "openapi", "datasets", "algorithms", "plan", "train", "jobs", "models",
     "predict", "ledger", "verify", "keys", "audit"],
)  # fmt: skip
def test_every_command_has_help_and_takes_json(name: str) -> None:
    runner = CliRunner()
    assert f" {name} " in runner.invoke(app, ["--help"], env={"COLUMNS": "120"}).stdout
    shown = runner.invoke(app, [name, "--help"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0
    assert "--json" in shown.stdout or "COMMAND" in shown.stdout


def test_a_terminal_without_greek_letters_is_no_failure() -> None:
    environ = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "plan", "--help"],
        capture_output=True,
        check=False,
        env=environ,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("is_terminal", "written"), [(True, b"?\n"), (False, "\u017b\n".encode())]
)
def test_a_file_gets_every_sign_whatever_the_terminal_shows(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, written: bytes
) -> None:
    file = io.BytesIO()
    stream = io.TextIOWrapper(file, encoding="ascii")
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(main, "app", lambda: print("\u017b"))
    main.main()
    stream.flush()
    assert file.getvalue() == written


def test_the_version_is_that_of_the_distribution() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (
        0,
        f"grovekeeper {version('grovekeeper')}\n",
    )


def test_invalid_settings_are_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("GROVEKEEPER_PORT", "eighty"),
        ("GROVEKEEPER_API_KEY_FILE", "no/such.key"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            result = CliRunner().invoke(app, ["datasets", "list"])
        assert result.exit_code == ExitCode.WRONG_USE, "as for a file of --key-file"
        assert result.stderr.startswith("not done: ")
        assert name in result.stderr
