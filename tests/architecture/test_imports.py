"""Tests the import contracts, and which libraries the entry points load at their start."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def test_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [tool, "--no-cache"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


_LATE = {
    "numba",
    "flint",
    "pyarrow",
    "pandas",
    "sklearn",
    "alembic",
    "httpx",
    "rich",
    "psycopg",
}
"""Libraries that a process of the service loads when it needs them: a model, an upload,
an upgrade, PostgreSQL.
"""

_SERVICE = {
    *_LATE,
    "numpy",
    "safetensors",
    "yaml",
    "sqlalchemy",
    "fastapi",
    "pydantic",
    "jinja2",
}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("app.cli.main", _SERVICE),
        ("app.api.main", _LATE),
        ("app.worker.main", {*_LATE, "fastapi", "jinja2"}),
        ("grovekeeper_verifier.main", _SERVICE),
    ],
)
def test_a_process_starts_without_libraries_that_it_may_not_need(
    module: str, heavy: set[str]
) -> None:
    """Together they take as long as the rest of the start, and more memory than the
    rest of a service at rest.
    """
    loaded = _loaded_by(module)
    assert module in loaded
    assert not {name.partition(".")[0] for name in loaded} & heavy


def _loaded_by(module: str) -> set[str]:
    program = f"import sys, {module}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=True)
        .stdout.split()
    )  # fmt: skip


def test_the_verifier_runs_with_every_other_package_deleted(tmp_path: Path) -> None:
    verifier = tmp_path / "grovekeeper_verifier"
    verifier.mkdir()
    for source in (_ROOT / "packages" / "verifier" / "grovekeeper_verifier").glob(
        "*.py"
    ):
        (verifier / source.name).write_bytes(source.read_bytes())
    verification = subprocess.run(
        [sys.executable, "-m", "grovekeeper_verifier", str(tmp_path / "no-such-export")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert verification.returncode == 2, verification.stderr
    assert "Traceback" not in verification.stderr
