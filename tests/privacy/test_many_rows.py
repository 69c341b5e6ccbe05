"""Every one of four million rows is counted once: no job stops, cuts or repeats at a
number of rows.

A row less in scope would otherwise let another row in, so that two rows change
together.
"""

import json
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.core.sealed_files import SealedFile
from app.datasets import private_rows, row_layout
from app.datasets.private_rows import Selection
from app.services.drawing import perform as drawing
from app.services.drawing.perform import perform
from app.services.jobs.task import JobTask, PartRows, input_path
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.coded_rows import CodeRequest, LocalRows, parts_of
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import TARGET_STEPS, Label, Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from grovekeeper_forests.releases.choice.price import plan_best
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation.error_price import (
    error_scale,
    plan_errors,
)
from grovekeeper_forests.releases.evaluation.price import EvaluationPlan, plan_tables
from grovekeeper_forests.releases.evaluation.read import Evaluation
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.profile.read import Profile
from grovekeeper_forests.releases.statistics import price as statistics_price
from grovekeeper_forests.releases.statistics.read import Statistics
from grovekeeper_forests.trees.tree_histograms import Assignment, LocalHistograms
from tests.privacy.noiseless import Noiseless
from tests.support.plans import request_for
from tests.support.schemas import schema_of
from tests.support.uploads import DATA_KEY, path_of

N_ROWS, GROUP_ROWS = 2**22, 2**17
"""The row groups are those of an upload of one column."""

SCHEMA = schema_of(
    {"name": "x", "type": "integer", "lower": 0, "upper": N_ROWS - 1},
    classes=["a", "b"],
)
PARTITIONS = Partitions((HashPartition("shard", 4),))
FACTS = public_facts(Terms(Fraction(9)), N_ROWS, SCHEMA, Adjacency.ADD_REMOVE_ONE)


class _Rows:
    """The rows, which are made by their first test: every process imports this module."""

    @cached_property
    def x(self) -> np.ndarray:
        return np.arange(N_ROWS)

    @cached_property
    def y(self) -> np.ndarray:
        return ((self.x > N_ROWS // 3) ^ (self.x % 5 == 0)).astype(np.int32)

    @cached_property
    def cell(self) -> np.ndarray:
        return (self.x % 4).astype(np.int32)


ROWS = _Rows()


def ids_of(rows: np.ndarray) -> np.ndarray:
    return (
        np.stack([rows, rows ^ 0x5A5A5A], axis=1)
        .astype("<i8")
        .view(np.uint8)
        .reshape(-1, 16)
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> SealedFile:
    """Rows that are all different, by their value and their id."""
    return _written(SCHEMA, tmp_path_factory.mktemp("rows"))


def _written(schema: Schema, folder: Path) -> SealedFile:
    form = row_layout.arrow_schema(schema, PARTITIONS)
    file = SealedFile.at(folder / "rows" / "ds_a" / "ep_a.parquet", DATA_KEY)
    with (
        file.new(existing="refuse") as written,
        row_layout.writer(written, form) as writer,
    ):
        for start in range(0, N_ROWS, GROUP_ROWS):
            rows = ROWS.x[start : start + GROUP_ROWS]
            row_ids = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(16), len(rows), [None, pa.py_buffer(ids_of(rows).tobytes())]
            )
            columns = {
                "f0": rows.astype(float),
                "label": ROWS.y[rows],
                "row_id": row_ids,
                "cell": ROWS.cell[rows],
            }
            writer.write_table(
                pa.table(
                    [pa.array(columns[field.name], field.type) for field in form],
                    schema=form,
                )
            )
    return file


def selection(*cells: int) -> Selection:
    return Selection(SCHEMA, PARTITIONS, Scope({"shard": cells} if cells else {}))


def in_parts(rows: LocalRows) -> list[list[int]]:
    """The counts of the classes, as growth counts the rows in parts; codes are used up."""
    parts = parts_of(rows, Encoding.of(SCHEMA, 2), LocalHistograms, Assignment())
    return parts.map("of_tree", 0).total("leaf_histogram").tolist()


def test_every_row_is_read_once_as_values_and_as_codes(file: SealedFile) -> None:
    values = private_rows.read([file], selection())
    np.testing.assert_array_equal(values.features.columns[0], ROWS.x)
    np.testing.assert_array_equal(values.y, ROWS.y)
    np.testing.assert_array_equal(values.row_ids, ids_of(ROWS.x))
    assert in_parts(values) == [np.bincount(ROWS.y).tolist()]
    del values

    grid = quantile_bins.public_grid(SCHEMA, Grid.COARSE)
    expected = np.bincount(
        grid.tables.wide_codes(0, ROWS.x.astype(float)), minlength=int(grid.n_codes[0])
    )
    # from values, and then from the codes that the first job has stored
    for with_ids in (True, False):
        coded = private_rows.read(
            [file], selection(), codes=CodeRequest(grid, with_ids=with_ids)
        )
        np.testing.assert_array_equal(coded.code_counts(0), expected)
        np.testing.assert_array_equal(coded.y, ROWS.y)
        if with_ids:
            np.testing.assert_array_equal(coded.ids, ids_of(ROWS.x))
    assert in_parts(coded) == [np.bincount(ROWS.y).tolist()]

    shards = private_rows.shards(file, selection(), n_rows=2**20)
    assert len(shards) == 4
    read = [
        private_rows.read_shard(shard, selection(), codes=CodeRequest(grid))
        for shard in shards
    ]
    np.testing.assert_array_equal(np.concatenate([shard.y for shard in read]), ROWS.y)
    np.testing.assert_array_equal(sum(shard.code_counts(0) for shard in read), expected)


def test_every_row_of_a_cell_is_read_once(file: SealedFile) -> None:
    rows, grid = ROWS.x[ROWS.cell == 1], quantile_bins.public_grid(SCHEMA, Grid.COARSE)
    np.testing.assert_array_equal(
        private_rows.read([file], selection(1)).features.columns[0], rows
    )
    coded = private_rows.read([file], selection(1), codes=CodeRequest(grid))
    assert coded.code_counts(0).sum() == len(rows)
    np.testing.assert_array_equal(coded.y, ROWS.y[rows])


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs release exact counts."""
    monkeypatch.setattr(drawing, "SystemRandomness", Noiseless)


def performed(
    kind: str,
    work: dict[str, Any],
    file: SealedFile,
    folder: Path,
    n_trees: int = 0,
    schema: Schema = SCHEMA,
) -> bytes:
    part = PartRows(
        schema.to_json(), (path_of(file),), PARTITIONS.to_json(), WHOLE, DATA_KEY
    )
    task = JobTask(kind, "jb_1", folder, work, n_trees, (part,), {})
    perform(task, on_tree_done=lambda: None)
    return task.output_path.read_bytes()


@pytest.mark.usefixtures("exact")
def test_a_profile_counts_every_row_once(file: SealedFile, tmp_path: Path) -> None:
    plan = profile_price.plan({"size_share": "0.1"}, FACTS)
    released = Profile.from_json(
        json.loads(performed("profile", {"plan": plan.to_json()}, file, tmp_path)),
        SCHEMA,
    )
    assert released.counts_in_rows == np.bincount(ROWS.y).tolist()
    assert released.size_in_rows == N_ROWS


@pytest.mark.usefixtures("exact")
def test_each_table_of_an_evaluation_counts_every_row_once(
    file: SealedFile, tmp_path: Path
) -> None:
    split = forest_price.plan(
        request_for("mrf", {"n_estimators": 1, "max_depth": 1}, Fraction(9), N_ROWS),
        SCHEMA,
    )
    model = performed("train", {"plan": split.to_json()}, file, tmp_path, n_trees=1)
    forest = released_forest.loads(model).forest
    assert forest.arrays["counts"].sum() == N_ROWS
    input_path(tmp_path, "m").parent.mkdir()
    input_path(tmp_path, "m").write_bytes(model)

    shares = Predictor(forest, SCHEMA).probabilities(
        SanitisedColumns((ROWS.x.astype(float),), N_ROWS)
    )
    answers, bins = shares.argmax(axis=1), np.minimum((shares[:, 1] * 8).astype(int), 7)
    n_right = int((answers == ROWS.y).sum())
    assert 0.6 * N_ROWS < n_right < N_ROWS
    expected = {
        "accuracy": [n_right, N_ROWS - n_right],
        "confusion": np.bincount(ROWS.y * 2 + answers, minlength=4).tolist(),
        "auroc": np.bincount(ROWS.y * 8 + bins, minlength=16).tolist(),
    }

    def evaluated(plan: EvaluationPlan, n_models: int) -> dict[str, list[int]]:
        work = {"plan": plan.to_json(), "models": [{"digest": "m"}] * n_models}
        released = Evaluation.from_json(
            json.loads(performed("evaluation", work, file, tmp_path))
        )
        return {name: table.tolist() for name, table in released.tables.items()}

    for tables in (["accuracy"], ["confusion", "auroc"]):
        plan = plan_tables(tables, FACTS, score_bins=8)
        assert evaluated(plan, 1) == {table: expected[table] for table in tables}
    best = plan_best(2, FACTS, winner_accuracy=True)
    assert evaluated(best, 2) == {"accuracy": expected["accuracy"]}


@pytest.mark.usefixtures("exact")
def test_each_sum_of_errors_and_a_profile_of_a_number_count_every_row_once(
    tmp_path: Path,
) -> None:
    """Each code of a class is that of a number, too: 0 or 1."""
    label = Label("kind", bounds=(0.0, float(TARGET_STEPS)), is_whole=True)
    schema = Schema(SCHEMA.features, label)
    facts = public_facts(Terms(Fraction(9)), N_ROWS, schema, Adjacency.ADD_REMOVE_ONE)
    file = _written(schema, tmp_path)
    run = partial(performed, file=file, folder=tmp_path, schema=schema)
    request = request_for("rpf", {"max_depth": 0}, Fraction(9), N_ROWS)
    split = forest_price.plan(request, schema)
    model = run("train", {"plan": split.to_json()}, n_trees=split.n_trees)
    predictor = Predictor(released_forest.loads(model).forest, schema)
    [predicted] = predictor.numbers(SanitisedColumns((np.zeros(1),), 1))
    input_path(tmp_path, "m").parent.mkdir()
    input_path(tmp_path, "m").write_bytes(model)

    scale = error_scale(label, 2.0, 0.0)
    planned = plan_errors(["mae", "r2"], facts, scale, score_bins=2)
    work = {"plan": planned.to_json(), "models": [{"digest": "m"}]}
    evaluation = Evaluation.from_json(json.loads(run("evaluation", work)))
    errors = np.clip(predicted - np.array([0.0, 1.0]), -2, 2) / 2
    n_rows = np.bincount(ROWS.y)
    expected = {
        "rows": N_ROWS,
        "absolute": n_rows @ np.abs(errors),
        "squared": n_rows @ errors**2,
        "centred": n_rows[1] / 2,
        "spread": n_rows[1] / 4,
    }
    for name, value in expected.items():
        assert evaluation.in_rows(name).item() == pytest.approx(value, rel=1e-6)

    plan = profile_price.plan({"size_share": "0.1"}, facts)
    stored = json.loads(run("profile", {"plan": plan.to_json()}))
    profile = Profile.from_json(stored, schema)
    assert profile.numbers is not None
    counted, _ = profile.numbers.numbers(0)
    assert (profile.size_in_rows, counted.item()) == (N_ROWS, N_ROWS)


@pytest.mark.usefixtures("exact")
def test_each_table_of_statistics_counts_every_row_once(
    file: SealedFile, tmp_path: Path
) -> None:
    edge = N_ROWS // 3
    tables: list[dict[str, Any]] = [
        {"statistic": "crosstab", "columns": ["kind", "x"], "bins": {"x": [edge]}},
        {"statistic": "sum", "column": "x", "by": ["kind"]},
        {"statistic": "count", "where": [{"column": "x", "from": 7}]},
    ]
    plan = statistics_price.plan(tables, FACTS)
    stored = performed("statistics", {"plan": plan.to_json()}, file, tmp_path)
    released = Statistics.from_json(json.loads(stored), SCHEMA)
    counts, sums, filtered = (
        [cell.value for cell in released.estimates(index)] for index in range(3)
    )
    # the last cells are those of rows without a known label
    assert counts == [*np.bincount(ROWS.y * 2 + (edge <= ROWS.x), minlength=6)]
    assert sums == [*(int(ROWS.x[kind == ROWS.y].sum()) for kind in (0, 1)), 0]
    assert filtered == [N_ROWS - 7]
