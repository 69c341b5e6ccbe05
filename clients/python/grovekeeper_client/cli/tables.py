"""Prints tables and progress bars for people, with rich."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from grovekeeper_client import progress

_WIDTH_OF_A_PIPE = 200


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str, indent: int
) -> None:
    """Prints a table on standard output, or the sentence ``empty`` if there are no
    rows.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    if table.row_count == 0:
        print(" " * indent + empty)
    else:
        console(error=False).print(Padding(table, (0, 0, 0, indent), expand=False))


@contextmanager
def progress_of_bytes(*, hidden: bool) -> Iterator[Progress]:
    """A progress bar of bytes on stderr that redraws only on a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
    )
    with Progress(*columns, console=console(error=True), disable=hidden) as bar:
        yield bar


@contextmanager
def progress_of_rows(name: str) -> Iterator[Callable[[int, float], None]]:
    """A bar on stderr for the rows of a file, in a terminal alone. The function takes
    the number of rows that are done, and the share of the file.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
    )
    error = console(error=True)
    with Progress(*columns, console=error, disable=not error.is_terminal) as bar:
        task = bar.add_task(name, total=1.0, rows=0)
        yield lambda rows, share: bar.update(task, completed=share, rows=rows)


def progress_of_job(*, hidden: bool) -> AbstractContextManager[progress.Show]:
    """A progress bar of a job on stderr, unless it is hidden."""
    return progress.shown(console(error=True), hidden=hidden)


def console(*, error: bool) -> Console:
    """Standard output or standard error, as wide as the terminal."""
    is_terminal = (sys.stderr if error else sys.stdout).isatty()
    return Console(
        stderr=error,
        markup=False,
        highlight=False,
        width=None if is_terminal else _WIDTH_OF_A_PIPE,
    )
