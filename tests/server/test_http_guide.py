"""The commands of ``docs/api.md`` work as written, in order, in one shell."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from app.core import limits, processes
from grovekeeper_forests import limits as forest_limits
from tests.support import curl
from tests.support.databases import on_one_server
from tests.support.server import Server

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "api.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _programs(folder: Path, *, with_own_curl: bool) -> Path:
    """A folder with the programs that the guide runs, to be put before the others."""
    programs = {"grovekeeper": "-m app.cli"} | (
        {} if with_own_curl else {"curl": f"-IS {curl.__file__}"}
    )
    folder.mkdir()
    for name, arguments in programs.items():
        (folder / name).write_text(
            f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n'
        )
        (folder / name).chmod(0o755)
    return folder


@on_one_server
def test_the_guide_works_as_written(server: Server, tmp_path: Path) -> None:
    """On SQLite by the machine's own ``curl`` if it has one, else by the options of it
    that the guide uses.
    """
    commands = [text for language, text in FENCE.findall(GUIDE) if language == "sh"]
    with_own_curl = (
        server.database.dialect == "sqlite" and shutil.which("curl") is not None
    )
    programs = _programs(tmp_path / "bin", with_own_curl=with_own_curl)
    variables = {
        "URL": server.url,
        "KEY": server.admin.key,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "NO_PROXY": "*",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
        cwd=tmp_path,
        env=processes.module_environment(os.environ | variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-2_000:], done.stderr)
    assert '"public_size":30000' in done.stdout
    (shown,) = [
        json.loads(text)
        for language, text in FENCE.findall(GUIDE)
        if language == "json"
    ]
    refusal = re.search(r'\{"type": "budget-exceeded".*?\}(?=\{|$)', done.stdout)
    assert refusal is not None
    assert json.loads(refusal.group()).items() >= shown.items(), (
        "the answer that the guide shows is the real one"
    )
    assert (tmp_path / "model.safetensors").stat().st_size > 0
    assert (tmp_path / "census.jsonl").read_text().count("\n") == 4


def test_the_documented_limits_equal_those_of_the_code() -> None:
    rules = (DOCS / "api-rules.md").read_text(encoding="utf-8")
    mebi, gibi = 1024**2, 1024**3
    reported = (
        f"{forest_limits.MAX_FEATURES:,} features, {forest_limits.MAX_CATEGORIES} categories, "
        f"{forest_limits.MAX_CLASSES:,} classes; "
        f"{limits.MAX_DECLARATION_BODY_BYTES // mebi} MiB and {limits.MAX_DECLARATION_BODY_NODES:,} values and "
        f"names per declaration; {forest_limits.MAX_PREDICTION_ROWS:,} rows, "
        f"{forest_limits.MAX_PREDICTION_CELLS:,} rows times features of the model, and as many rows times its classes, "
        f"{limits.MAX_PREDICTION_BODY_BYTES // mebi} MiB "
        f"and {limits.MAX_PREDICTION_BODY_NODES:,} values and names (fewer for narrow models) per prediction, in Arrow "
        f"{limits.MAX_PREDICTION_MESSAGES:,} messages, {limits.MAX_PREDICTION_LEVELS} levels of columns and "
        f"{limits.MAX_PREDICTION_ARRAYS:,} record batches times columns, which together refer to "
        f"{limits.MAX_PREDICTION_BODY_BYTES // mebi} MiB, as names and metadata do; "
        f"{limits.MAX_JSON_BODY_BYTES // 1024} "
        f"KiB and {limits.MAX_JSON_BODY_NODES:,} values and names per other JSON body, {limits.MAX_JSON_DEPTH} levels "
        f"of nesting, {limits.MAX_JSON_MEMBERS} members per object; "
        f"{limits.MAX_UPLOAD_BODY_BYTES // gibi} GiB per upload, {limits.MAX_UPLOAD_CSV_BYTES // gibi} GiB unpacked "
        f"and at most {limits.MAX_GZIP_RATIO} times the packed size ({limits.FREE_UNPACKED_BYTES // mebi} MiB are "
        f"always free); {limits.MAX_DATASET_BYTES // gibi} GiB of stored files per dataset. An upload of Parquet or "
        f"Arrow becomes at most {limits.MAX_COLUMNAR_RATIO:,} times its size of CSV, has at most "
        f"{limits.MAX_ROW_GROUPS:,} row groups or record batches and "
        f"{limits.MAX_PARQUET_METADATA_BYTES // mebi} MiB of Parquet metadata, and is "
        f"decoded in {limits.DECODER_MEMORY_BYTES // gibi} GiB of memory:"
    )
    assert reported in " ".join(rules.split())
