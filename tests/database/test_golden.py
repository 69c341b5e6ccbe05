"""What jobs of every kind, algorithm and account release and record, compared byte by
byte with stored files.

A difference is a change of what leaves: of an answer, an entry, an export or an
artifact. Where that is meant, ``python -m tests.support.golden`` writes the files
again, and the changelog says what readers find changed.
"""

from pathlib import Path

import pytest

from app.core.settings import Settings
from tests.support import golden
from tests.support.databases import MigratedDatabase

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("account", golden.ACCOUNTS)
def test_what_leaves_an_account_has_the_stored_bytes(
    account: str, tmp_path: Path, migrated_database: MigratedDatabase
) -> None:
    with migrated_database("sqlite", tmp_path) as url:
        files = golden.walked(
            account, Settings(home=tmp_path / "home", database_url=url)
        )

    assert files.keys() == {file.name for file in golden.FOLDER.glob(f"{account}.*")}
    for name, content in files.items():
        stored = golden.FOLDER.joinpath(name).read_bytes().splitlines()
        for number, (line, expected) in enumerate(
            zip(content.splitlines(), stored, strict=True), start=1
        ):
            assert line == expected, f"line {number} of {name}"


def test_the_walks_reach_every_algorithm_and_every_kind_of_job() -> None:
    text = "".join(
        file.read_text(encoding="utf-8") for file in golden.FOLDER.glob("*.jsonl")
    )

    for slug in golden.BY_SLUG:
        assert f'"algorithm": "{slug}"' in text
    for output in ("model_id", "profile_id", "evaluation_id"):
        assert f'"{output}": "' in text
