"""Installs Grovekeeper into ``.venv`` from its hashed lock and runs a command; needs
only Python.

::

    python3 run.py demo [options]     grovekeeper demo
    python3 run.py test [options]     the tests; options go to pytest (-n0: in one process, for a debugger;
                                      -m long: those that are left out otherwise)
    python3 run.py lint               formatting, lint, types, import contracts
    python3 run.py check              lint, then test, as CI does
    python3 run.py lock               renews the hashed lock files (needs uv)
    python3 run.py prove              checks the proofs of the ledger (needs Coq); --write renews what tests
                                      take from them
    python3 run.py release [folder]   the files of a release, twice the same at one commit
    python3 run.py <command> …        grovekeeper <command> …
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - older versions print this sentence, not a traceback
    sys.exit(
        "Grovekeeper needs Python 3.11 or newer; this is {}.{}.".format(
            *sys.version_info[:2]
        )
    )

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
PROGRAMS = (
    "client",
    "dp-accounting",
    "duckdb",
    "generator",
    "inference",
    "kserve",
    "mlflow",
    "mlserver",
    "objectstore",
    "oidc-provider-mock",
    "opacus",
    "opendp",
    "polars",
    "standardwebhooks",
)
"""Programs that long tests install, each from a lock of its own."""
LOCKS = ROOT / "requirements"

# including the servers, workers and children that the tests start
TEST_PROCESS_BYTES = 2**31
MAX_TEST_PROCESSES = 8  # each process starts a PostgreSQL server

OF_THIS_SCRIPT = ("test", "lint", "check", "lock", "prove", "release")
"""Commands whose help is that of this script."""

LINT = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
)


def main(arguments: list[str]) -> None:
    """Run one command and never return."""
    command, *rest = arguments or ["--help"]
    asks_for_help = not {"--help", "-h"}.isdisjoint([command, *rest])
    program = BIN / "grovekeeper"
    if asks_for_help and (command in OF_THIS_SCRIPT or not program.exists()):
        # before an installation, which takes minutes, and before any act
        print(__doc__)
        sys.exit(0)
    if command == "lock":
        _renew_locks()
        sys.exit(0)
    if command == "prove":
        _replace_process([sys.executable, str(ROOT / "proofs" / "prove.py"), *rest])
    if command == "release":
        _install("release")
        _replace_process([str(PYTHON), str(ROOT / "deploy" / "release.py"), *rest])
    if command not in ("test", "lint", "check"):
        if not asks_for_help:
            _install("runtime")
        _replace_process([str(program), command, *rest])
    _install("test")
    if command in ("lint", "check"):
        _lint()
    if command == "lint":
        sys.exit(0)
    _replace_process([str(PYTHON), "-m", "pytest", *_on_every_processor(), *rest])


def _on_every_processor() -> list[str]:
    """Options of pytest before the caller's options, which take precedence.

    The tests of a file stay together, because they share fixtures. Files run in their
    order: the quick ones come last, so that no process waits for another at the end.
    """
    return [
        f"--numprocesses={_n_test_processes()}",
        "--dist=loadfile",
        "--no-loadscope-reorder",
    ]


def _n_test_processes() -> int:
    """One more than processors, because many tests wait for a lease or a socket; fewer
    if memory is short.
    """
    n_processors = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    memory_bytes = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if hasattr(os, "sysconf")
        else 0
    )
    return max(
        1, min(n_processors + 1, memory_bytes // TEST_PROCESS_BYTES, MAX_TEST_PROCESSES)
    )


def _install(lock: str) -> None:
    """Install exactly a lock and this project into the environment, unless that was
    done.
    """
    with _one_at_a_time():
        fingerprint = _fingerprint(lock)
        stamp = VENV / f"{lock}.stamp"
        if (
            stamp.is_file()
            and stamp.read_text(encoding="utf-8") == fingerprint
            and PYTHON.exists()
        ):
            return
        print(
            f"Installing Grovekeeper into {VENV}: once, and it takes a minute or two …",
            file=sys.stderr,
            flush=True,
        )
        _make_environment()
        _pip("install", "--require-hashes", "--requirement", str(LOCKS / "build.lock"))
        _pip(
            "install", "--require-hashes", "--requirement", str(LOCKS / f"{lock}.lock")
        )
        # Without build isolation, because the build backend comes from a hashed lock,
        # too.
        _pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        stamp.write_text(fingerprint, encoding="utf-8")
        if lock == "test":  # the test lock contains the runtime lock
            (VENV / "runtime.stamp").write_text(
                _fingerprint("runtime"), encoding="utf-8"
            )
            _compile_tests()


def _compile_tests() -> None:
    """Compile loops, product and tests once; otherwise, each test process compiles all
    of them at the same time.
    """
    subprocess.run(
        [str(BIN / "grovekeeper"), "prepare"], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    subprocess.run(
        [str(PYTHON), "-m", "pytest", "--collect-only", "-qq"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )


def _fingerprint(lock: str) -> str:
    """Digest of what the environment depends on: interpreter, folder, locks and
    ``pyproject.toml``.
    """
    # a folder whose name is not text in this locale has bytes all the same
    facts = f"{sys.version}\n{sys.base_prefix}\n{ROOT}"
    digest = hashlib.sha256(os.fsencode(facts))
    for path in (LOCKS / "build.lock", LOCKS / f"{lock}.lock", ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _make_environment() -> None:
    try:
        import ensurepip  # noqa: F401 - imported here, because Debian's venv may lack it
        import venv
    except ImportError:
        sys.exit(
            "Grovekeeper needs Python's venv module; on Debian or Ubuntu: sudo apt install python3-venv"
        )
    for stamp in VENV.glob("*.stamp"):
        stamp.unlink()
    # making an environment over another fails if its interpreter is a link
    if not _is_usable():
        venv.EnvBuilder(with_pip=True, clear=True).create(VENV)


def _is_usable() -> bool:
    """Whether ``.venv`` runs this Python and has pip; otherwise, the environment is
    made anew.
    """
    if not PYTHON.exists():
        return False
    version = subprocess.run(
        [str(PYTHON), "-c", "import pip, sys; print(sys.version)"],
        capture_output=True,
        text=True,
    )
    return version.returncode == 0 and version.stdout.strip() == sys.version.strip()


def _pip(*arguments: str) -> None:
    command = [
        str(PYTHON),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        *arguments,
    ]
    if subprocess.run(command, stdout=sys.stderr.fileno()).returncode != 0:
        sys.exit(
            "The installation failed; pip says why above. Is the package registry reachable?"
        )


def _lint() -> None:
    failed = [
        " ".join(tool)
        for tool in LINT
        if subprocess.run([str(BIN / tool[0]), *tool[1:]], cwd=ROOT).returncode
    ]
    if failed:
        sys.exit(f"Failed: {'; '.join(failed)}")


def _renew_locks() -> None:
    """Resolve all dependencies again, for Python 3.11 and later on every platform,
    without addresses of a registry.
    """
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("Renewing the locks needs uv on the PATH.")
    options = "--universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url"
    common = [
        uv,
        "pip",
        "compile",
        *options.split(),
        "--quiet",
        "--upgrade",
        "--output-file",
    ]
    test = str(LOCKS / "test.lock")
    for lock, arguments in (
        ("test", ("--extra", "test", "pyproject.toml")),
        (
            "runtime",
            (
                "--extra",
                "objectstore",
                "--extra",
                "dask",
                "--constraint",
                test,
                "pyproject.toml",
            ),
        ),
        ("build", ("--constraint", test, str(LOCKS / "build.in"))),
        ("release", ("--constraint", test, str(LOCKS / "release.in"))),
        *((program, (str(LOCKS / f"{program}.in"),)) for program in PROGRAMS),
    ):
        subprocess.run(
            [*common, str(LOCKS / f"{lock}.lock"), *arguments], cwd=ROOT, check=True
        )


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Lock the checkout, so that two commands do not install at the same time."""
    try:
        import fcntl  # imported here, because Windows lacks it
    except ImportError:  # Windows without WSL
        yield
        return
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace_process(command: list[str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    if command[1:3] == ["-m", "pytest"]:
        os.chdir(ROOT)
    if os.name == "nt":
        sys.exit(subprocess.run(command).returncode)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
