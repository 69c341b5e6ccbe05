"""``run.py``: clear sentences where it cannot work, one installation where it can."""

import ast
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import loaded

_SCRIPT = Path(__file__).parents[2] / "run.py"
_ENVIRON = {"PATH": os.defpath}
"""Of the machine, nothing: variables for Python would change what the script writes."""


def _run_with(preparation: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a copy of the script for ``demo`` in a Python that ``preparation`` has
    changed.
    """
    shutil.copyfile(_SCRIPT, folder / "run.py")
    shutil.copytree(_SCRIPT.parent / "requirements", folder / "requirements")
    shutil.copyfile(_SCRIPT.parent / "pyproject.toml", folder / "pyproject.toml")
    start = (
        "sys.argv = ['run.py', 'demo']\nrunpy.run_path('run.py', run_name='__main__')"
    )
    program = f"import runpy, sys\n{preparation}\n{start}"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=_ENVIRON,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_old_python_gets_a_message(tmp_path: Path) -> None:
    ran = _run_with("sys.version_info = (3, 10, 4, 'final', 0)", tmp_path)
    assert (ran.returncode, ran.stderr) == (
        1,
        "Grovekeeper needs Python 3.11 or newer; this is 3.10.\n",
    )
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_missing_venv_module_is_reported_in_one_sentence(
    tmp_path: Path, module: str
) -> None:
    ran = _run_with(f"sys.modules[{module!r}] = None", tmp_path)
    assert ran.returncode == 1
    assert "sudo apt install python3-venv" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_script_compiles_on_pythons_that_are_too_old() -> None:
    """Otherwise they answer with a syntax error instead of the sentence."""
    ast.parse(_SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 7))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script in a folder of its own, with an installer that only takes notes."""
    module = loaded(_SCRIPT)
    shutil.copytree(_SCRIPT.parent / "requirements", tmp_path / "requirements")
    shutil.copyfile(_SCRIPT.parent / "pyproject.toml", tmp_path / "pyproject.toml")
    for name, value in {
        "ROOT": tmp_path,
        "VENV": tmp_path / ".venv",
        "PYTHON": tmp_path / ".venv" / "python",
        "LOCKS": tmp_path / "requirements",
        "_compile_tests": lambda: None,
        "installed": [],
    }.items():
        monkeypatch.setattr(module, name, value, raising=False)

    def make_environment() -> None:
        module.VENV.mkdir(exist_ok=True)
        module.PYTHON.touch()

    monkeypatch.setattr(module, "_make_environment", make_environment)
    monkeypatch.setattr(
        module, "_pip", lambda *arguments: module.installed.append(arguments)
    )
    return module


def test_everything_that_is_downloaded_is_hashed(script: ModuleType) -> None:
    script._install("runtime")
    names = [Path(arguments[-1]).name for arguments in script.installed]
    assert names == ["build.lock", "runtime.lock", script.ROOT.name]
    assert all("--require-hashes" in arguments for arguments in script.installed[:2])
    assert {"--no-deps", "--no-build-isolation"} <= set(script.installed[2])


def test_it_installs_once(script: ModuleType) -> None:
    script._install("runtime")
    script._install("runtime")
    assert len(script.installed) == 3


def test_the_test_environment_serves_the_product_too(script: ModuleType) -> None:
    script._install("test")
    script._install("runtime")
    assert len(script.installed) == 3


@pytest.mark.parametrize(
    "changed",
    ["pyproject.toml", "requirements/runtime.lock", "requirements/build.lock"],
)
def test_a_changed_declaration_installs_again(script: ModuleType, changed: str) -> None:
    script._install("runtime")
    with (script.ROOT / changed).open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")
    script._install("runtime")
    assert len(script.installed) == 6


def test_an_installation_that_broke_off_is_done_again(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: str) -> None:
        sys.exit("no network")

    works = script._pip
    monkeypatch.setattr(script, "_pip", fail)
    with pytest.raises(SystemExit):
        script._install("runtime")
    monkeypatch.setattr(script, "_pip", works)
    script._install("runtime")
    assert len(script.installed) == 3


def test_an_environment_whose_python_is_a_link_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making an environment over such a one would copy the interpreter onto itself."""
    module = loaded(_SCRIPT)
    folder = tmp_path / ".venv"
    venv.EnvBuilder(symlinks=True).create(folder)
    pip = next(folder.glob("lib/python*/site-packages")) / "pip.py"
    pip.touch()
    (folder / "runtime.stamp").touch()
    monkeypatch.setattr(module, "VENV", folder)
    monkeypatch.setattr(module, "PYTHON", folder / "bin" / "python")
    module._make_environment()
    assert pip.exists(), "what is installed stays"
    assert not (folder / "runtime.stamp").exists(), (
        "until the installation is done again, nothing says that it is"
    )


@pytest.mark.parametrize(
    ("processors", "memory_gib", "expected"),
    [(1, 16, 2), (2, 16, 3), (2, 4, 2), (64, 512, 8), (4, 1, 1), (4, 0, 1)],
    ids=[
        "one processor",
        "two",
        "short of memory",
        "a large machine",
        "a tiny one",
        "memory unknown",
    ],
)
def test_tests_run_on_every_processor_that_memory_allows(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    processors: int,
    memory_gib: int,
    expected: int,
) -> None:
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": memory_gib * 2**18}
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _pid: set(range(processors)), raising=False
    )
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert script._n_test_processes() == expected


def test_the_caller_s_options_stand_last_and_win(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(script, "_replace_process", started.append)
    script.main(["test", "-n0", "tests/pure"])
    (command,) = started
    assert command[1:3] == ["-m", "pytest"]
    assert command[-2:] == ["-n0", "tests/pure"]
    assert any(option.startswith("--numprocesses=") for option in command[3:-2])


@pytest.mark.parametrize("word", ["--help", "-h"])
@pytest.mark.parametrize("command", ["test", "lock", "release", "prove", "demo", None])
def test_help_installs_nothing_and_does_nothing(
    tmp_path: Path, command: str | None, word: str
) -> None:
    shutil.copyfile(_SCRIPT, tmp_path / "run.py")
    ran = subprocess.run(
        [sys.executable, "run.py", *filter(None, [command]), word],
        cwd=tmp_path,
        env=_ENVIRON,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "python3 run.py demo [options]" in ran.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "run.py"]


def test_help_of_an_installed_command_is_its_own(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "_replace_process", sys.exit)
    monkeypatch.setattr(script, "BIN", script.VENV)
    script.VENV.mkdir()
    (script.VENV / "grovekeeper").touch()
    with pytest.raises(SystemExit) as replaced:
        script.main(["demo", "--help"])
    assert replaced.value.code == [
        str(script.VENV / "grovekeeper"),
        "demo",
        "--help",
    ]
    assert script.installed == []


def _prove(
    root: Path, programs: Path, *options: str
) -> "subprocess.CompletedProcess[str]":
    """Runs ``run.py prove`` of a checkout where only some programs are found."""
    return subprocess.run(
        [sys.executable, str(root / "run.py"), "prove", *options],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_coq_the_proofs_are_not_said_to_be_checked(tmp_path: Path) -> None:
    ran = _prove(_SCRIPT.parent, tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "sudo apt install --no-install-recommends coq" in ran.stderr


@pytest.mark.parametrize(
    "line",
    [
        "Axiom lucky : False.",
        "Parameter lucky : False.",
        "Conjecture lucky : False.",
        "Proof. Admitted.",
        "Proof. intros; admit. Defined.",
        "Unset Guard Checking.",
        'Extract Constant apply => "Some".',
    ],
)
def test_proofs_that_assume_something_are_refused(tmp_path: Path, line: str) -> None:
    shutil.copyfile(_SCRIPT, tmp_path / "run.py")
    shutil.copytree(_SCRIPT.parent / "proofs", tmp_path / "proofs")
    (tmp_path / "proofs" / "Lucky.v").write_text(f"(** Luck. *)\n{line}\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("coqc", "coqdep"):
        (programs / name).touch(mode=0o755)
    ran = _prove(tmp_path, programs)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Lucky.v:2: ")


@pytest.mark.parametrize("name", ["Örtlich".encode(), b"r\xe4po"])
def test_a_folder_whose_name_the_locale_cannot_read_is_no_obstacle(
    name: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    for part in ("run.py", "pyproject.toml"):
        shutil.copyfile(_SCRIPT.parent / part, folder / part)
    shutil.copytree(_SCRIPT.parent / "requirements", folder / "requirements")
    ran = subprocess.run(
        [sys.executable, "-c", "import run; print(run._fingerprint('runtime'))"],
        cwd=folder,
        env={**_ENVIRON, "LC_ALL": "C", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.strip()) == 64
