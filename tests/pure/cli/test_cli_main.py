"""The command as a whole: a light start, a complete list of commands, and correct
output in any locale.
"""

import inspect
import io
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import main
from app.cli.main import app
from grovekeeper_client.cli import main as of_client
from grovekeeper_client.cli.problems import ExitCode

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
    probe += "; CliRunner().invoke(app, ['--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    ours = ("app", "grovekeeper_")
    assert {name for name in done.stdout.split() if name.startswith(ours)} == {
        "app",
        "app.cli",
        "app.cli.main",
        "grovekeeper_client",
        "grovekeeper_client.cli",
        "grovekeeper_client.cli.main",
    }


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("grovekeeper da", ["dask", "datasets"]),
        ("grovekeeper datasets upl", ["upload", "uploads"]),
        ("grovekeeper train --alg", ["--algorithm"]),
    ],
)
def test_a_shell_completes_commands_and_options(
    words: str, completions: list[str]
) -> None:
    completed = subprocess.run(
        [Path(sys.executable).with_name("grovekeeper")],
        env=os.environ
        | {
            "_GROVEKEEPER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        check=True,
        text=True,
    )
    assert completed.stdout.split() == completions


def test_completing_a_command_imports_none() -> None:
    program = (
        "import sys; from app.cli.main import app, _PANELS; import typer\n"
        "group = typer.main.get_command(app)\n"
        "context = group.make_context('grovekeeper', ['--help'], resilient_parsing=True)\n"
        "names = [it.value for it in group.shell_complete(context, '')]\n"
        "assert 'train' in names, names\n"
        "assert 'app.cli.installation' not in sys.modules\n"
        "assert 'grovekeeper_client.cli.training' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_help_text_is_typer_s_although_it_leaves_modules_of_rich_out() -> None:
    def shown(first: str) -> list[str]:
        program = f"import sys; {first}; from app.cli.main import app; app(['--help'], standalone_mode=False); "
        program += "print(*sorted(sys.modules.keys() & {'rich.markdown', 'rich.traceback'})); import rich.markdown; "
        program += "print(rich.markdown.Markdown.__name__)"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    usual, light = shown("import typer.rich_utils"), shown("pass")
    assert usual[-2:] == ["rich.markdown rich.traceback", "Markdown"]
    assert light[-2:] == ["", "Markdown"]
    assert usual[:-2] == light[:-2]
    assert len(light) > 40


def test_the_help_text_says_what_the_commands_say() -> None:
    for panels in (main._PANELS, of_client.PANELS):
        commands = of_client.Commands(panels)
        for names in panels.values():
            for name, (_, text) in names.items():
                first, _, _ = inspect.cleandoc(commands[name].help).partition("\n\n")
                assert text == first.replace("\n", " ")


def test_the_operator_has_the_commands_of_the_client_and_those_that_read_the_database() -> (
    None
):
    operator, client = (
        of_client.Commands(main._PANELS),
        of_client.Commands(of_client.PANELS),
    )
    assert list(operator)[-len(client) :] == list(client)
    keys = list(client["keys"].commands)
    assert list(operator["keys"].commands) == [*keys, "create-admin"]


def test_a_command_imports_no_other_command() -> None:
    probe = (
        "import sys; from typer.testing import CliRunner; from app.cli.main import app"
    )
    probe += "; CliRunner().invoke(app, ['serve', '--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "app.cli.installation" in loaded
    assert loaded.isdisjoint(
        {
            "app.cli.demo",
            "grovekeeper_client.cli.datasets",
            "grovekeeper_client.cli.ledger",
            "grovekeeper_client.cli.training",
        }
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


def test_a_database_that_does_not_answer_is_no_traceback(tmp_path: Path) -> None:
    environ = os.environ | {
        "GROVEKEEPER_HOME": str(tmp_path),
        "GROVEKEEPER_DATABASE_URL": "postgresql://u:p@127.0.0.1:1/db",
    }
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "db", "status"],
        capture_output=True,
        check=False,
        env=environ,
        text=True,
    )
    logged, said = done.stderr.splitlines()
    assert said.startswith(f"not done: {json.loads(logged)['message']}: ")
    assert said.endswith("Connection refused"), "the operator reads the cause"
    assert done.returncode == ExitCode.FAILED


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


def test_a_closed_stream_is_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = ("stdin", "stdout", "stderr")
    for name in streams:
        monkeypatch.setattr(sys, name, None)
    read = []
    monkeypatch.setattr(main, "app", lambda: read.append(sys.stdin.read()))
    main.main()
    print("nowhere")
    print("nowhere", file=sys.stderr)
    assert read == [""]
    for name in streams:
        getattr(sys, name).close()


def test_the_version_is_that_of_the_distribution() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (
        0,
        f"grovekeeper {version('grovekeeper')}\n",
    )


def test_invalid_settings_are_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_key_file = ExitCode.WRONG_USE
    for name, value, typed, exit_code in (
        ("GROVEKEEPER_PORT", "eighty", ["db", "status"], ExitCode.FAILED),
        ("GROVEKEEPER_API_KEY_FILE", "no/such.key", ["jobs", "list"], as_key_file),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            result = CliRunner().invoke(app, typed)
        assert result.exit_code == exit_code
        assert result.stderr.startswith("not done: ")
        assert name in result.stderr


def test_a_command_of_the_client_reads_no_setting_of_the_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GROVEKEEPER_PORT", "eighty")
    monkeypatch.setenv("GROVEKEEPER_HOME", str(tmp_path))
    monkeypatch.delenv("GROVEKEEPER_API_KEY", raising=False)
    result = CliRunner().invoke(app, ["jobs", "list"])
    assert result.exit_code == ExitCode.NOT_ALLOWED
    assert result.stderr.startswith("not done: no key")
