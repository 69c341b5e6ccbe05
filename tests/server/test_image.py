"""The image is built and started: it migrates a database, trains and predicts, as an
operator or a cluster runs it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.databases import EmptyDatabase

_ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.timeout(7200)  # downloads a system and compiles, also on a busy machine
@pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed")
def test_the_image_trains_and_predicts(
    empty_database: EmptyDatabase, tmp_path: Path
) -> None:
    with empty_database("postgresql", tmp_path) as url:
        command = [
            sys.executable,
            str(_ROOT / "deploy/check_image.py"),
            "--debian",
            "--database-url",
            url,
        ]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
    print(checked.stdout)
    assert checked.returncode == 0, checked.stderr
    assert "the second job took" in checked.stdout
    for stranger in ("12345:0", "12345:12345"):
        assert f"the first job as {stranger} took" in checked.stdout, (
            "an account without an entry and without a home"
        )
