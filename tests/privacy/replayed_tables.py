"""Replays neighbours of real tables through every algorithm, and prints what they cost.

::

    python -m tests.privacy.replayed_tables

A job is recorded on a table. It runs again on a neighbour, while every draw answers
what it answered before (:mod:`tests.privacy.recorder`). The page is
``docs/results/replayed-neighbours.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from grovekeeper_forests import catalogue
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest import price
from grovekeeper_forests.releases.forest.draw import grow
from research import bundled, datasets
from tests.privacy.recorder import Draw, Recorder, check
from tests.support.plans import request_for

_DEMO = Path(__file__).parents[2] / "app" / "cli" / "demo_data"
MAX_ROWS = 2_000
"""Of a larger table, the first rows are taken."""
N_NEIGHBOURS = 8
EPSILON = Fraction(1)
DELTA = Fraction(1, 10**6)


@dataclass(frozen=True)
class Table:
    """A real table; the second half of its rows is the second dataset, where an
    algorithm reads two.
    """

    name: str
    schema: Schema
    rows: SanitisedRows


def tables() -> Iterator[Table]:
    """The tables that the repository and its test dependencies bring along."""
    for source in (
        datasets.read(_DEMO, "adult"),
        bundled.read("wdbc"),
        bundled.read("wine"),
    ):
        chosen = np.arange(len(source.y))
        if source.name != "adult":  # sorted by class
            np.random.default_rng(0).shuffle(chosen)
        chosen = chosen[:MAX_ROWS]
        ids = np.random.default_rng(1).integers(0, 256, (len(chosen), 16), np.uint8)
        rows = SanitisedRows(source.features(chosen), source.y[chosen], ids)
        yield Table(source.name, source.schema, rows)


def taken(rows: SanitisedRows, kept: np.ndarray) -> SanitisedRows:
    """The rows at some places."""
    columns = tuple(column[kept] for column in rows.features.columns)
    return SanitisedRows(
        SanitisedColumns(columns, len(kept)), rows.y[kept], rows.row_ids[kept]
    )


def neighbour(
    rows: SanitisedRows, row: int, plan: Plan, schema: Schema
) -> SanitisedRows:
    """Without one row, or with another label of it."""
    if plan.terms.adjacency is not Adjacency.LABEL:
        return taken(rows, np.delete(np.arange(len(rows.y)), row))
    labels = rows.y.copy()
    labels[row] = (labels[row] + 1) % len(schema.label.classes)
    return SanitisedRows(rows.features, labels, rows.row_ids)


def drawn(
    plan: Plan,
    schema: Schema,
    rows: SanitisedRows,
    second: SanitisedRows,
    replayed: list[Draw] | None = None,
) -> list[Draw]:
    """The draws of a job, and what leaves it as a last one."""
    recorder, progress = Recorder(replayed), list[int]()
    forest = grow(
        plan,
        schema,
        rows,
        recorder,  # type: ignore[arg-type]
        on_tree_done=lambda: progress.append(len(recorder.draws)),
        unlabelled=None if plan.unlabelled is None else second,
    )
    arrays = {
        name: (array.dtype, array.shape, array.tobytes())
        for name, array in forest.arrays.items()
    }
    return [*recorder.draws, Draw("what leaves", (progress, arrays), None, None)]


def replayed(table: Table, slug: str, accountant: str) -> tuple[int, int, float]:
    """Replays neighbours of one table.

    Returns:
        The number of draws, the number of pairs, and the largest share of the charge
        that the moves of a pair cost.
    """
    n_rows, schema = len(table.rows.y), table.schema
    reads_two = catalogue.algorithm(slug).slug == "sspe-1"
    halves = np.arange(n_rows // 2), np.arange(n_rows // 2, n_rows)
    rows = taken(table.rows, halves[0]) if reads_two else table.rows
    second = taken(table.rows, halves[1])
    delta = None if accountant == "pure" else DELTA
    size = len(rows.y)
    request = request_for(slug, {}, EPSILON, size, accountant=accountant, delta=delta)
    plan = price.plan(request, schema)
    whole = drawn(plan, schema, rows, second)
    shares = []
    for row in np.linspace(0, len(rows.y) - 1, N_NEIGHBOURS, dtype=int).tolist():
        other = drawn(plan, schema, neighbour(rows, row, plan, schema), second, whole)
        shares.append(check(plan.event, whole, other, accountant=accountant))
        if plan.unlabelled is not None:
            row_of_second = row * len(second.y) // len(rows.y)
            left = np.delete(np.arange(len(second.y)), row_of_second)
            other = drawn(plan, schema, rows, taken(second, left), whole)
            event = plan.unlabelled.event
            shares.append(check(event, whole, other, accountant=accountant))
    return len(whole) - 1, len(shares), max(shares)


def lines() -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield "| table | algorithm | account | draws | pairs | largest share of the charge |\n"
    yield "|---|---|---|---|---|---|\n"
    for table in tables():
        for slug in catalogue.BY_SLUG:
            for accountant in catalogue.algorithm(slug).accountants:
                n_draws, n_pairs, share = replayed(table, slug, accountant)
                cells = (
                    table.name,
                    f"`{slug}`",
                    f"`{accountant}`",
                    f"{n_draws:,}",
                    n_pairs,
                    f"{share:.3f}",
                )
                yield f"| {' | '.join(map(str, cells))} |\n"


def main() -> None:
    """Prints the table."""
    for line in lines():
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
