"""Tests the import contracts, and which libraries the entry points load at their start."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def test_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([tool, "--no-cache"], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


_SERVER = {
    "numba", "numpy", "safetensors", "pyarrow", "pandas", "sklearn", "alembic", "httpx", "rich", "psycopg", "yaml",
    "flint",
}  # fmt: skip
"""Libraries that a process of the service loads when it needs them: a model, an upload, a price, an upgrade,
PostgreSQL."""


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("app.cli.main", {*_SERVER, "sqlalchemy", "fastapi", "pydantic", "jinja2"}),
        ("app.api.main", {*_SERVER, "jinja2", "jwt", "itsdangerous"}),
        ("app.worker.main", {*_SERVER, "fastapi", "jinja2", "jwt", "pydantic"}),
        ("app.verifier.main", {*_SERVER, "sqlalchemy", "pydantic"}),
    ],
)
def test_a_process_starts_without_libraries_that_it_may_not_need(module: str, heavy: set[str]) -> None:
    """Together they take as long as the rest of the start, and more memory than the rest of a service at rest."""
    loaded = _loaded_by(module)
    assert module in loaded
    assert not {name.partition(".")[0] for name in loaded} & heavy
    assert "app.forests.catalogue" not in loaded, "the algorithms take more time than numpy"


def _loaded_by(module: str) -> set[str]:
    program = f"import sys, {module}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=True)
        .stdout.split()
    )  # fmt: skip


def test_the_verifier_runs_with_every_other_package_deleted(tmp_path: Path) -> None:
    verifier = tmp_path / "app" / "verifier"
    verifier.mkdir(parents=True)
    (tmp_path / "app" / "__init__.py").write_text("", encoding="utf-8")
    for source in (_ROOT / "app" / "verifier").glob("*.py"):
        (verifier / source.name).write_bytes(source.read_bytes())
    verification = subprocess.run(
        [sys.executable, "-m", "app.verifier", str(tmp_path / "no-such-export")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert verification.returncode == 2, verification.stderr
    assert "Traceback" not in verification.stderr
