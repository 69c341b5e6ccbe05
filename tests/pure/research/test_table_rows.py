"""Rows of tables that are written from committed runs."""

from dataclasses import replace

import pytest

from research import table_rows
from research.runs import Run, load
from research.table_rows import RESULTS, SOURCES


def test_the_committed_rows_are_those_of_the_committed_runs() -> None:
    for name, text in table_rows.texts().items():
        assert (RESULTS / name).read_text(encoding="utf-8") == text, (
            "run: python -m research.table_rows"
        )


@pytest.mark.parametrize("source", SOURCES)
def test_a_changed_run_changes_its_rows_alone(source: table_rows.Source) -> None:
    page = (RESULTS / source.page).read_text(encoding="utf-8")
    runs = load(RESULTS / source.runs, Run)
    place = runs[0].dataset, runs[0].algorithm
    changed = [
        replace(run, accuracy=0.5) if (run.dataset, run.algorithm) == place else run
        for run in runs
    ]
    before, after = page.splitlines(), table_rows.renewed(page, source, changed)
    differing = [
        new for old, new in zip(before, after.splitlines(), strict=True) if old != new
    ]
    (row,) = differing
    assert row.startswith(f"| {place[0]} | `{place[1]}` | 50.0 ± 0.0")


def test_a_page_that_lacks_a_row_is_an_error() -> None:
    source = SOURCES[0]
    runs = load(RESULTS / source.runs, Run)
    with pytest.raises(ValueError, match="has no row"):
        table_rows.renewed("| banknote | `mrf` | 1 |\n", source, runs)
