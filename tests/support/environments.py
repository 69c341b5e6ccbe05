"""Makes environments for programs that need other versions of libraries than the
service, from locks of their own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

_LOCKS = Path(__file__).parents[2] / "requirements"
_VERSION = (
    "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
)


def environment(lock: str, folder: Path) -> Path:
    """Installs what ``requirements/<lock>.lock`` names into a new environment, and
    returns its Python.
    """
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = (
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--require-hashes",
        "--requirement",
    )
    subprocess.run([python, "-m", "pip", *install, _LOCKS / f"{lock}.lock"], check=True)
    return python


def version_in(python: Path, package: str) -> str:
    """The name and the version of a package in an environment."""
    done = subprocess.run(
        [python, "-c", _VERSION, package], capture_output=True, check=True, text=True
    )
    return f"{package} {done.stdout.strip()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the versions that tests recorded as a property of this name."""
    reports = terminalreporter.stats.get("passed", []) + terminalreporter.stats.get(
        "failed", []
    )
    properties = (
        it for report in reports for it in getattr(report, "user_properties", ())
    )
    versions = sorted({str(value) for name, value in properties if name == "version"})
    if versions:
        terminalreporter.section("versions of other programs")
        terminalreporter.write_line(", ".join(versions))
