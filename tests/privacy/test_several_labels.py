"""Several labels of one row change together on an account that protects labels: what
statistics by two of them lose, exactly, and what a job on one of them reads.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests.data.coded_rows import RowParts
from grovekeeper_forests.data.sanitiser import ColumnBlock
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, DiscreteLaplace
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.statistics import draw, price
from grovekeeper_forests.releases.statistics.price import StatisticsPlan
from grovekeeper_forests.releases.statistics.sums import StoredRows
from tests.privacy.enumeration import EnumeratingRandomness, loss, output_law
from tests.privacy.noiseless import Noiseless

ILL = Label("ill", ("no", "yes"))
STAY = Label("los_days", ("below 3", "3 or more"), (3.0,))
AGE = Feature("age", "integer", lower=0.0, upper=4.0)
SCHEMA = Schema((AGE,), ILL, (), (STAY,))
CODES = (-1, 0, 1)
BOTH = list(itertools.product(CODES, CODES))
TABLES = {
    "crosstab": {"statistic": "crosstab", "columns": ["ill", "los_days"]},
    "by and where": {
        "statistic": "count",
        "by": ["los_days"],
        "where": [{"column": "ill", "in": ["yes"]}],
    },
    "sum": {"statistic": "sum", "column": "age", "by": ["ill", "los_days"]},
}
ACCOUNTS = {
    "pure": Terms(Fraction(1)),
    "zcdp": Terms(Fraction(1), zcdp.NAME, Fraction(1, 10**6)),
    "gdp": Terms(Fraction(1), gdp.NAME, Fraction(1, 10**6)),
}


def _planned(table: str, account: str) -> StatisticsPlan:
    terms = replace(ACCOUNTS[account], adjacency=Adjacency.LABEL)
    facts = public_facts(terms, None, SCHEMA, Adjacency.LABEL)
    return price.plan([TABLES[table]], facts)


def _rows(*labels: tuple[int, int]) -> RowParts:
    def blocks() -> Iterator[ColumnBlock]:
        ill, stay = (np.array(codes, np.int32) for codes in zip(*labels, strict=True))
        ages = np.full(len(labels), 4.0)
        columns = {"age": ages, "ill": ill, "los_days": stay}
        yield ColumnBlock(columns, len(labels))

    return RowParts([StoredRows(SCHEMA, blocks)])  # type: ignore[arg-type]


def _exact(plan: StatisticsPlan, rows: RowParts) -> np.ndarray:
    released = draw.release(plan, rows, Noiseless())
    return np.concatenate([measure for table in released.measured for measure in table])


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("table", TABLES)
def test_all_labels_of_a_row_move_two_cells_and_no_more(
    account: str, table: str
) -> None:
    plan = _planned(table, account)
    (part,) = plan.event.parts
    reached = False
    for before, after in itertools.permutations(BOTH, 2):
        change = _exact(plan, _rows(before)) - _exact(plan, _rows(after))
        assert np.count_nonzero(change) <= 2
        if isinstance(part.event, DiscreteLaplace):
            stated = part.event.l1_sensitivity
            moved = int(np.abs(change).sum())
        else:
            stated = part.event.l2_sensitivity_squared
            moved = sum(int(step) ** 2 for step in change)
        assert moved <= stated
        reached |= moved == stated
    assert reached


def test_no_label_that_is_a_number_is_added_up_where_labels_are_protected() -> None:
    """A changed number moves one cell by twice what a row adds, and a table that reads
    a label of classes, too, is priced by its moves.
    """
    cost = Label("cost", bounds=(0.0, 9.0))
    schema = Schema((AGE,), ILL, (), (STAY, cost))
    terms = replace(ACCOUNTS["zcdp"], adjacency=Adjacency.LABEL)
    facts = public_facts(terms, None, schema, Adjacency.LABEL)
    table = {"statistic": "sum", "column": "cost", "by": ["ill"]}
    with pytest.raises(ParameterInvalid, match="not-on-label-accounts"):
        price.plan([table], facts)


@pytest.mark.parametrize("table", ["crosstab", "by and where"])
def test_statistics_by_two_labels_lose_their_price_and_no_more(table: str) -> None:
    plan = _planned(table, "pure")
    claim = float(pure.loss(plan.event, adjacency=Adjacency.LABEL))
    assert 0.99 < claim <= 1

    def law(*labels: tuple[int, int]) -> dict[object, float]:
        rows = _rows(*labels)

        def run(randomness: EnumeratingRandomness) -> object:
            released = draw.release(plan, rows, randomness)  # type: ignore[arg-type]
            return tuple(m.tobytes() for t in released.measured for m in t)

        return output_law(run, window=(-1, 1))  # type: ignore[arg-type]

    pairs = [((0, 0), (1, 1)), ((0, 1), (1, 0)), ((-1, 0), (1, 1)), ((1, 0), (1, 1))]
    worst = max(loss(law(before), law(after)) for before, after in pairs)
    assert 0.6 * claim < worst <= claim + 1e-9
