"""The commands of ``docs/api.md`` work as written, in order, in one shell."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import own_process
from app.core import limits
from tests.support.server import Server

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "api.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide's commands are curl's, which nobody has to have")
def test_the_guide_works_as_written(server: Server, tmp_path: Path) -> None:
    commands = [text for language, text in FENCE.findall(GUIDE) if language == "sh"]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "grovekeeper").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m app.cli "$@"\n')
    (tmp_path / "bin" / "grovekeeper").chmod(0o755)
    variables = {
        "URL": server.url,
        "KEY": server.admin.key,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "NO_PROXY": "*",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
        cwd=tmp_path,
        env=own_process.environment(os.environ | variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-2_000:], done.stderr)
    assert '"public_size":30000' in done.stdout
    (shown,) = [json.loads(text) for language, text in FENCE.findall(GUIDE) if language == "json"]
    refusal = re.search(r'\{"type": "budget-exceeded".*?\}(?=\{|$)', done.stdout)
    assert refusal is not None
    assert json.loads(refusal.group()).items() >= shown.items(), "the answer that the guide shows is the real one"
    assert (tmp_path / "model.safetensors").stat().st_size > 0
    assert (tmp_path / "census.jsonl").read_text().count("\n") == 4


def test_the_limits_that_are_told_are_those_of_the_code() -> None:
    rules = (DOCS / "api-rules.md").read_text(encoding="utf-8")
    mebi, gibi = 1024**2, 1024**3
    told = (
        f"{limits.MAX_FEATURES:,} features, {limits.MAX_CATEGORIES} categories, {limits.MAX_CLASSES:,} classes; "
        f"{limits.MAX_JSON_BODY_BYTES // mebi} MiB and {limits.MAX_JSON_DEPTH} levels of nesting per JSON body; "
        f"{limits.MAX_PREDICTION_ROWS:,} rows or {limits.MAX_PREDICTION_BODY_BYTES // mebi} MiB per prediction; "
        f"{limits.MAX_UPLOAD_BODY_BYTES // gibi} GiB per upload, {limits.MAX_UPLOAD_CSV_BYTES // gibi} GiB unpacked."
    )
    assert told in " ".join(rules.split())
