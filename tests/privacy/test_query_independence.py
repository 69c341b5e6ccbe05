"""T8: a model answers from its artifact alone and always alike, so queries are not a second release."""

import hashlib
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from app.forests import artifacts, catalogue, predict
from app.forests.data.rows import SanitisedColumns, SanitisedRows
from app.forests.grow import grow
from app.forests.noise.randomness import SystemRandomness
from app.forests.planning import plan
from tests.support.plans import request_for
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 1, "missing": True},
    {"name": "colour", "type": "categorical", "categories": ["a", "b", "c"]},
    classes=["x", "y", "z"],
)
N_QUESTIONS = 250_000
"""The queries are repeated four times: a million predictions of each model."""

ROOT = Path(__file__).parents[2]

STRANGER = """
import hashlib, sys
class NoData:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] in (["app", "datasets"], ["app", "ledger"], ["app", "services"], ["app", "db"]):
            raise AssertionError(name)
        if name.split(".")[0] in ("sqlalchemy", "sqlite3", "psycopg", "httpx"):
            raise AssertionError(name)
sys.meta_path.insert(0, NoData())
import numpy as np
from app.forests import artifacts, predict
from app.forests.data.rows import SanitisedColumns
artifact = artifacts.loads(sys.stdin.buffer.read())
generator = np.random.default_rng(5)
columns = (generator.random({n}), generator.integers(0, 4, {n}).astype(np.int32))
asked = SanitisedColumns(columns, {n})
for _ in range(4):
    found = predict.probabilities(artifact.forest, artifact.schema, asked, read_out=None)
    print(hashlib.sha256(found.tobytes()).hexdigest())
"""


def questions() -> SanitisedColumns:
    generator = np.random.default_rng(5)
    columns = (generator.random(N_QUESTIONS), generator.integers(0, 4, N_QUESTIONS).astype(np.int32))
    return SanitisedColumns(columns, N_QUESTIONS)


def artifact_of(slug: str) -> bytes:
    mechanism = catalogue.algorithm(slug)
    accountant = mechanism.accountants[0]
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    shape = {"n_estimators": 6, "max_depth": 4}
    settled = plan(request_for(slug, shape, Fraction(2), 500, accountant=accountant, delta=delta), SCHEMA)
    generator = np.random.default_rng(1)
    columns = (generator.random(500), generator.integers(0, 4, 500).astype(np.int32))
    rows = SanitisedRows(
        SanitisedColumns(columns, 500),
        np.digitize(columns[0], [0.3, 0.6]).astype(np.int32),
        generator.integers(0, 256, (500, 16), dtype=np.uint8),
    )
    others = None if settled.unlabelled is None else rows
    forest = grow(settled, SCHEMA, rows, SystemRandomness(), on_tree_done=lambda: None, unlabelled=others)
    return artifacts.dumps(forest, {"schema": SCHEMA.to_json()})


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_a_process_without_data_gives_the_same_million_answers(slug: str, tmp_path: Path) -> None:
    """Another process has the artifact alone, and may import no module that reads rows or a database."""
    data = artifact_of(slug)
    loaded = artifacts.loads(data)
    ours = predict.probabilities(loaded.forest, loaded.schema, questions(), read_out=None)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GROVEKEEPER") and name != "PYTHONPATH"
    }
    answer = subprocess.run(
        [sys.executable, "-c", STRANGER.replace("{n}", str(N_QUESTIONS))],
        input=data,
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    reported = answer.stdout.decode().split()

    assert reported == [hashlib.sha256(ours.tobytes()).hexdigest()] * 4
    assert len(np.unique(ours, axis=0)) > 5


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_an_answer_does_not_depend_on_the_questions_before_it(slug: str) -> None:
    loaded = artifacts.loads(artifact_of(slug))
    requested = questions()
    some = SanitisedColumns(tuple(column[:200] for column in requested.columns), 200)
    first = predict.probabilities(loaded.forest, loaded.schema, some, read_out=None)
    predict.probabilities(loaded.forest, loaded.schema, requested, read_out=None)

    one_by_one = [
        predict.probabilities(
            loaded.forest,
            loaded.schema,
            SanitisedColumns(tuple(column[row : row + 1] for column in some.columns), 1),
            read_out=None,
        )[0]
        for row in reversed(range(200))
    ]
    assert np.array_equal(np.array(one_by_one[::-1]), first)
    assert np.array_equal(predict.probabilities(loaded.forest, loaded.schema, some, read_out=None), first)
