"""The rows that a job reads: those of its boxes, with unlabelled rows where their
absence would reveal a label.
"""

import json
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.core.dask_cluster import DaskCluster
from app.core.sealed_files import DataKey
from app.datasets import private_rows, row_layout
from app.services.drawing import dask_fleet
from app.services.drawing import perform as service
from app.services.jobs.task import JobTask, PartRows, input_path
from grovekeeper_common import durable_files
from grovekeeper_forests import catalogue
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.releases import contract
from grovekeeper_forests.releases.evaluation.price import plan_tables
from grovekeeper_forests.releases.evaluation.read import Evaluation
from grovekeeper_forests.releases.forest import draw as forest_draw
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.price import PlanRequest
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.profile.read import Profile
from grovekeeper_forests.releases.statistics import price as statistics_price
from grovekeeper_forests.releases.statistics import read as statistics_read
from grovekeeper_forests.releases.statistics.read import Statistics
from tests.privacy.noiseless import Noiseless
from tests.support.stored_part import stored_part
from tests.support.uploads import SCHEMA, stored_table

KEY = DataKey(bytes(32))
LABELLED = PartRows(
    schema={},
    row_files=(Path("own"),),
    partitions=[],
    scope=Scope({"shard": (0,)}),
    data_key=KEY,
)
UNLABELLED = PartRows(
    schema={},
    row_files=(Path("other"),),
    partitions=[],
    scope=Scope({"shard": (1,)}),
    data_key=KEY,
)


def reads(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, *parts: PartRows
) -> list[dict[str, Any]]:
    """The calls of the row reader, one for each part, and the metadata of the artifact."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        private_rows,
        "read",
        lambda files, selection, **codes: seen.append(
            {"files": files, **codes, **selection}
        ),
    )
    monkeypatch.setattr(
        service,
        "Selection",
        lambda _schema, _cut, scope, **asked: {"scope": scope, **asked},
    )
    plan = SimpleNamespace(algorithm=algorithm, unlabelled=parts[1:] or None)
    monkeypatch.setattr(forest_draw, "read_plan", lambda _plan: plan)
    schema = SimpleNamespace(to_json=dict)
    schema.with_label = lambda _label: schema
    monkeypatch.setattr(Schema, "from_json", lambda _schema: schema)
    monkeypatch.setattr(forest_draw, "code_request", lambda _plan, _schema: "codes")
    monkeypatch.setattr(forest_draw, "grow", lambda *_rows, **_more: None)
    monkeypatch.setattr(
        forest_draw, "dumps", lambda _forest, metadata: json.dumps(metadata).encode()
    )
    monkeypatch.setattr(
        forest_draw, "only_answer_in_words", lambda _forest, _schema, rows: f"of {rows}"
    )
    monkeypatch.setattr(
        durable_files,
        "write",
        lambda _path, artifact: seen.append(json.loads(artifact)),
    )
    task = JobTask(
        kind="train", job_id="jb_1", folder=Path("folder"), work={"plan": {}}, n_trees=1, parts=parts,
        metadata={"name": "a", "expected_rows": 7},
    )  # fmt: skip
    service.perform(task, on_tree_done=lambda: None)
    return seen


@pytest.mark.parametrize("algorithm", sorted(catalogue.BY_SLUG))
def test_rows_without_a_label_are_read_exactly_where_labels_are_protected(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """If membership and features are public, a row that left with its label would move
    every median.
    """
    own, _ = reads(monkeypatch, algorithm, LABELLED)

    assert own["keep_unlabelled"] is (
        catalogue.algorithm(algorithm).adjacency is Adjacency.LABEL
    )
    assert own["keep_unlabelled"] is (algorithm in ("sspe-2", "pte"))


def test_of_two_datasets_each_is_read_by_its_own_box(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other, written = reads(monkeypatch, "sspe-1", LABELLED, UNLABELLED)

    assert written == {
        "name": "a",
        "expected_rows": 7,
        "only_answer": "of 7",
        "schema": {},
    }
    assert own["codes"] == other["codes"] == "codes", "and not the values of every row"
    assert (own["files"][0].file.name, own["scope"], own["keep_unlabelled"]) == (
        "own",
        {"shard": (0,)},
        False,
    )
    assert (other["files"][0].file.name, other["scope"], other["keep_unlabelled"]) == (
        "other",
        {"shard": (1,)},
        True,
    )


@pytest.mark.parametrize("cells", [(0,), (1, 3), (0, 1, 2, 3)])
def test_profiles_evaluations_and_statistics_count_the_rows_of_their_scope(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells: tuple[int, ...]
) -> None:
    monkeypatch.setattr(service, "SystemRandomness", Noiseless)
    part = replace(stored_part(tmp_path), scope={"shard": cells})
    [file] = part.files
    table = stored_table(file)
    rows = list(
        zip(
            table.column("cell").to_pylist(),
            table.column("label").to_pylist(),
            strict=True,
        )
    )
    expected = [
        sum(cell in cells and label == number for cell, label in rows)
        for number in range(2)
    ]
    assert 0 < sum(expected) < len(rows)

    def performed(kind: str, work: dict[str, Any], n_trees: int = 0) -> bytes:
        task = JobTask(kind, "jb_1", tmp_path, work, n_trees, (part,), {})
        service.perform(task, on_tree_done=lambda: None)
        return task.output_path.read_bytes()

    facts = contract.public_facts(
        Terms(Fraction(9)), 600, SCHEMA, Adjacency.ADD_REMOVE_ONE
    )
    profiled = performed("profile", {"plan": profile_price.plan({}, facts).to_json()})
    assert Profile.from_json(json.loads(profiled), SCHEMA).counts_in_rows == expected

    planned = forest_price.plan(
        PlanRequest(
            "mrf", {"n_estimators": 1, "max_depth": 1}, Terms(Fraction(9)), 600
        ),
        SCHEMA,
    )
    input_path(tmp_path, "m").parent.mkdir()
    input_path(tmp_path, "m").write_bytes(
        performed("train", {"plan": planned.to_json()}, n_trees=1)
    )
    tables = plan_tables(["confusion"], facts, score_bins=2)
    evaluated = performed(
        "evaluation", {"plan": tables.to_json(), "models": [{"digest": "m"}]}
    )
    [confusion] = Evaluation.from_json(json.loads(evaluated)).tables.values()
    assert confusion.reshape(2, 2).sum(axis=1).tolist() == expected

    count = statistics_price.plan([{"statistic": "count"}], facts)
    counted = performed("statistics", {"plan": count.to_json()})
    statistics = Statistics.from_json(json.loads(counted), SCHEMA)
    total = statistics_read.total(statistics, 0)
    assert total is not None
    assert total.value == sum(cell in cells for cell, _ in rows)


class AskedReader:
    """Answers with what it is asked for."""

    def rows(self, *asked: Any, **named: Any) -> Any:
        return "codes", *asked, named

    def columns(self, *asked: Any, **named: Any) -> Any:
        return "columns", *asked, named


def test_each_part_of_a_job_is_read_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its files, its label, and rows without it where they are asked for."""
    ill, kept = Label("ill", ("no", "yes")), {"keep_unlabelled": True}
    declared = replace(SCHEMA, further_labels=(ill,)).to_json()
    first = replace(LABELLED, schema=declared, scope=Scope({}), label="income")
    second = replace(first, row_files=(Path("other"),), label="ill")
    parts, reader = (first, second), AskedReader()
    task = JobTask("train", "jb_1", tmp_path, {}, 0, parts, {})
    job = service.ChargedJob(task, {}, {}, Noiseless(), int, reader)
    monkeypatch.setattr(private_rows, "read", lambda *asked: asked)

    for part, rows in enumerate(parts):
        label = [SCHEMA.label, ill][part]
        assert job.schema(part).labels == (label,)
        files, selection = job.values(part, **kept)
        assert files == rows.files
        assert selection.schema.labels == (label,)
        assert selection.columns == []
        assert selection.label_column == row_layout.label_column(part)
        codes = job.codes("asked", part, **kept)
        columns = job.columns("asked", part, **kept)
        assert codes == ("codes", rows, "asked", kept)
        assert columns == ("columns", rows, "asked", kept)


def test_a_cluster_is_asked_for_the_rows_of_the_job_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = DaskCluster("tcp://127.0.0.1:8786", None, None, None, 60)
    seen, reader = list[Any](), AskedReader()

    def connected(*asked: Any) -> Any:
        seen.append(asked)
        return nullcontext(reader)

    monkeypatch.setattr(dask_fleet.Connection, "to", connected)
    draw = {"train": lambda job: seen.append(job.reader) or b"drawn"}
    monkeypatch.setattr(service, "DRAW", draw)
    task = JobTask("train", "jb_1", tmp_path, {}, 0, (LABELLED,), {}, cluster)
    service.perform(task, on_tree_done=int)
    assert seen == [(cluster, "jb_1"), reader]
    assert task.output_path.read_bytes() == b"drawn"
