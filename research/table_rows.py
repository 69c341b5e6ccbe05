"""Renews the rows of accuracy tables whose runs are committed.

Pages of ``docs/results`` hold prose and tables. Here a table's rows are written from a
file of runs, so that no number of it is copied by hand. A test compares::

    python -m research.table_rows
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from research import tables
from research.runs import Run, load

RESULTS = Path(__file__).parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Source:
    """Rows of a page and their runs.

    Attributes:
        page: file of the page.
        heading: of the section with the table; empty: before the first section.
        runs: file of runs; every dataset and algorithm in it is a row.
    """

    page: str
    heading: str
    runs: str


SOURCES = (
    Source("papers.md", "", "srt.csv"),
    Source("flagships.md", "## Accuracy\n", "flagships.csv"),
)


def renewed(
    page: str,
    source: Source,
    runs: Sequence[Run],
) -> str:
    """The text of a page with the rows of a source written anew.

    Raises:
        ValueError: the page lacks a row.
    """
    start = page.index(source.heading)
    end = page.find("\n## ", start + 1)
    section = page[start : end if end >= 0 else len(page)]
    rows = {_place(row): row for row in tables.accuracy(runs).splitlines()[2:]}
    lines = section.splitlines(keepends=True)
    missing = rows.keys() - {_place(line) for line in lines}
    if missing:
        raise ValueError(f"{source.page} has no row {sorted(missing)}")
    kept = [
        f"{rows[_place(line)]}\n" if _place(line) in rows else line for line in lines
    ]
    return page.replace(section, "".join(kept))


def _place(line: str) -> tuple[str, ...]:
    """Dataset and algorithm of a row."""
    return tuple(cell.strip() for cell in line.split("|")[1:3])


def texts() -> dict[str, str]:
    """The pages by file name, with their rows from the committed runs."""
    pages: dict[str, str] = {}
    for source in SOURCES:
        path = RESULTS / source.page
        page = pages.get(source.page) or path.read_text(encoding="utf-8")
        pages[source.page] = renewed(
            page,
            source,
            load(RESULTS / source.runs, Run),
        )
    return pages


if __name__ == "__main__":
    for name, text in texts().items():
        (RESULTS / name).write_text(text, encoding="utf-8")
