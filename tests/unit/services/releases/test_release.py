"""The rows that a job reads: those of its boxes, with unlabelled rows where their absence would reveal a label."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.core.sealed_files import DataKey
from app.datasets import private_rows
from app.forests import catalogue
from app.forests.data.schema import Schema
from app.privacy.events import Adjacency
from app.services.jobs.task import JobTask, PartRows
from app.services.releases import release as service

KEY = DataKey(bytes(32))
LABELLED = PartRows(schema={}, row_files=(Path("own"),), partitions=[], scope={"shard": (0,)}, data_key=KEY)
UNLABELLED = PartRows(schema={}, row_files=(Path("other"),), partitions=[], scope={"shard": (1,)}, data_key=KEY)


def reads(monkeypatch: pytest.MonkeyPatch, algorithm: str, *parts: PartRows) -> list[dict[str, Any]]:
    """The calls of the row reader, one for each part."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        private_rows, "read", lambda files, selection, **_codes: seen.append({"files": files, **selection})
    )
    monkeypatch.setattr(service, "Selection", lambda _schema, _cut, scope, **asked: {"scope": scope, **asked})
    monkeypatch.setattr(catalogue, "read_plan", lambda _plan: SimpleNamespace(algorithm=algorithm))
    monkeypatch.setattr(Schema, "from_json", lambda _schema: SimpleNamespace(to_json=dict))
    monkeypatch.setattr(service, "code_request", lambda _plan, _schema: None)
    monkeypatch.setattr(service, "grow", lambda *_rows, **_more: None)
    monkeypatch.setattr(service.released_forest, "dumps", lambda _forest, _metadata: b"")
    monkeypatch.setattr(service.released_forest, "only_answer_in_words", lambda _forest, _schema, _expected_rows: None)
    monkeypatch.setattr(JobTask, "write_output", lambda _task, _artifact: None)
    task = JobTask(
        kind="train", job_id="jb_1", folder=Path("folder"), work={"plan": {}}, n_trees=1, parts=parts, metadata={},
    )  # fmt: skip
    service.grow_forest(task, on_tree_done=lambda: None)
    return seen


@pytest.mark.parametrize("algorithm", sorted(catalogue.BY_SLUG))
def test_rows_without_a_label_are_read_exactly_where_labels_are_protected(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """If membership and features are public, a row that left with its label would move every exact median."""
    (own,) = reads(monkeypatch, algorithm, LABELLED)

    assert own["keep_unlabelled"] is (catalogue.algorithm(algorithm).adjacency is Adjacency.LABEL)
    assert own["keep_unlabelled"] is (algorithm in ("sspe-2", "pte"))


def test_of_two_datasets_each_is_read_by_its_own_box(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = reads(monkeypatch, "sspe-1", LABELLED, UNLABELLED)

    assert (own["files"][0].file.name, own["scope"], own["keep_unlabelled"]) == ("own", {"shard": (0,)}, False)
    assert (other["files"][0].file.name, other["scope"], other["keep_unlabelled"]) == ("other", {"shard": (1,)}, True)
