"""What quotes expect of forests that predict a number."""

import json

from grovekeeper_forests.expected_r2 import MEASUREMENTS, explained
from research import regression


def test_the_file_is_that_of_the_committed_runs() -> None:
    assert MEASUREMENTS.read_text(encoding="utf-8") == regression.measured(), (
        "run research.regression"
    )


def test_the_page_is_that_of_the_committed_runs() -> None:
    rows = regression.rows_of(regression.RUNS) + regression.rows_of(regression.PEERS)
    assert regression.PAGE.read_text(encoding="utf-8") == regression.page(rows)


def test_similar_tables_are_those_of_similar_rows_times_epsilon() -> None:
    found = explained("nbrt@gdp", rows=3_000, epsilon=1)
    assert found is not None
    assert found.n_tables >= 3
    assert 0 < found.low <= found.middle <= found.high <= 1
    assert found.middle < found.forest
    at_same_product = explained("nbrt@gdp", rows=6_000, epsilon=0.5)
    assert at_same_product == found
    assert explained("nbrt@gdp", rows=10, epsilon=0.01) is None
    assert explained("nbrt@gdp", rows=10**9, epsilon=10) is None
    assert explained("rpf@zcdp", rows=3_000, epsilon=1) is None


def test_every_table_was_measured_at_every_epsilon() -> None:
    tables = json.loads(MEASUREMENTS.read_text(encoding="utf-8"))
    assert len(tables) == 21
    for table in tables.values():
        assert list(table["nbrt@gdp"]) == list(regression.EPSILONS)
