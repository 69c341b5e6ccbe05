"""T8: a model answers from its artifact alone and always alike, so queries are not a
second release.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import plan
from tests.privacy.stranger import digest, questions
from tests.support.line_process import line_process
from tests.support.plans import request_for
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 1, "missing": True},
    {"name": "colour", "type": "categorical", "categories": ["a", "b", "c"]},
    classes=["x", "y", "z"],
)


def artifact_of(slug: str) -> bytes:
    mechanism = catalogue.algorithm(slug)
    accountant = mechanism.accountants[0]
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    shape = {"n_estimators": 6, "max_depth": 4}
    settled = plan(
        request_for(slug, shape, Fraction(2), 500, accountant=accountant, delta=delta),
        SCHEMA,
    )
    generator = np.random.default_rng(1)
    columns = (generator.random(500), generator.integers(0, 4, 500).astype(np.int32))
    rows = SanitisedRows(
        SanitisedColumns(columns, 500),
        np.digitize(columns[0], [0.3, 0.6]).astype(np.int32),
        generator.integers(0, 256, (500, 16), dtype=np.uint8),
    )
    others = None if settled.unlabelled is None else rows
    forest = grow(
        settled,
        SCHEMA,
        rows,
        SystemRandomness(),
        on_tree_done=lambda: None,
        unlabelled=others,
    )
    return released_forest.dumps(forest, {"schema": SCHEMA.to_json()})


@pytest.fixture(scope="module")
def stranger(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[object], str]]:
    with line_process(
        "tests.privacy.stranger", errors=tmp_path_factory.mktemp("stranger") / "errors"
    ) as call:
        yield call


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_a_process_without_data_gives_the_same_million_answers(
    slug: str, stranger: Callable[[object], str]
) -> None:
    """Another process has the artifact alone, and may import no module that reads rows
    or a database.
    """
    data = artifact_of(slug)
    assert stranger(data.hex()).split() == [digest(released_forest.loads(data))] * 4


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_the_questions_reach_several_leaves(slug: str) -> None:
    loaded = released_forest.loads(artifact_of(slug))
    assert (
        len(
            np.unique(
                loaded.predictor.probabilities(questions()),
                axis=0,
            )
        )
        > 5
    )


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_an_answer_does_not_depend_on_the_questions_before_it(slug: str) -> None:
    loaded = released_forest.loads(artifact_of(slug))
    requested = questions()
    some = SanitisedColumns(tuple(column[:200] for column in requested.columns), 200)
    first = loaded.predictor.probabilities(some)
    loaded.predictor.probabilities(requested)

    one_by_one = [
        loaded.predictor.probabilities(
            SanitisedColumns(tuple(column[row : row + 1] for column in some.columns), 1)
        )[0]
        for row in reversed(range(200))
    ]
    assert np.array_equal(np.array(one_by_one[::-1]), first)
    assert np.array_equal(
        loaded.predictor.probabilities(some),
        first,
    )
