"""The drill of the operator's guide works as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.core import processes

_GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operator-backup.md"
_DRILL = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_the_drill_of_the_operators_guide_works_as_written(tmp_path: Path) -> None:
    [drill] = _DRILL.findall(_GUIDE.read_text(encoding="utf-8"))
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GROVEKEEPER_")
    }
    done = subprocess.run(
        [
            "bash",
            "-euc",
            f'grovekeeper() {{ "{sys.executable}" -m app.cli "$@"; }}\n{drill}',
        ],
        env=processes.module_environment(clean),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "restored the backup of" in done.stdout
    assert (tmp_path / "second" / "grovekeeper.sqlite3").exists()
