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


@pytest.mark.parametrize("module", ["app.cli.main", "app.api.main", "app.ledger.service", "app.verifier.main"])
def test_starting_does_not_load_the_compiler(module: str) -> None:
    """Numba takes more than half a second and 150 MB; only growing and predicting need it."""
    assert "numba" not in _loaded_by(module)


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    assert not _loaded_by("app.cli.main") & {
        "numpy", "pandas", "pyarrow", "sklearn", "httpx", "sqlalchemy", "fastapi", "alembic",
    }  # fmt: skip


def _loaded_by(module: str) -> set[str]:
    program = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
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
