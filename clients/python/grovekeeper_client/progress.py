"""Shows the progress of a job: a bar in a terminal, or below the cell of a notebook."""

import html
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from grovekeeper_client.errors import RETRIED
from grovekeeper_common.job_words import HOLDS
from grovekeeper_common.json_types import JsonObject

Show: TypeAlias = Callable[[JsonObject], None]
"""Shows the state of a job as ``GET /jobs/{id}`` answers it."""

_AT_WORK = {
    "profile": "counting rows for a profile",
    "evaluation": "counting answers for an evaluation",
    "statistics": "counting rows for statistics",
}
"""What a running job does that grows no trees, by kind."""


@contextmanager
def shown(console: Console | None = None, *, hidden: bool = False) -> Iterator[Show]:
    """A function that shows a job whenever it is called.

    Args:
        console: where the bar goes; ``None``: standard error, or the cell of a
            notebook.
        hidden: show nothing.
    """
    if hidden:
        yield lambda _job: None
    elif console is None and _in_notebook():
        yield _cell()
    else:
        with _terminal(console or Console(stderr=True)) as show:
            yield show


@contextmanager
def _terminal(console: Console) -> Iterator[Show]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
    )
    told = set[str]()
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("queued", total=None, count="")

        def show(job: JsonObject) -> None:
            held_by = job.get("held_by")
            # a bar has no room for the sentence, and a pipe shows no bar before its end
            if held_by in RETRIED and held_by not in told:
                told.add(held_by)
                progress.console.print(f"{job['state']}: {HOLDS[held_by]}")
            total = (
                {"completed": job["trees_done"], "total": job["n_trees"]}
                if job["n_trees"]
                else {}
            )
            progress.update(bar, description=_doing(job), count=_count(job), **total)

        yield show


def _cell() -> Show:
    # imported here, because only notebooks have it
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)

    def show(job: JsonObject) -> None:
        total = f' max="{job["n_trees"]}"' if job["n_trees"] else ""
        bar = f'<progress value="{job["trees_done"]}"{total}></progress>'
        handle.update(HTML(f"{bar} {html.escape(_doing(job))} {_count(job)}"))

    return show


def _doing(job: JsonObject) -> str:
    if job.get("preparing"):
        return "preparing this machine, once"
    if job.get("held_by") is not None:
        return f"{job['state']} ({job['held_by']})"
    if job["state"] == "running" and job["kind"] in _AT_WORK:
        return _AT_WORK[job["kind"]]
    return str(job["state"])


def _count(job: JsonObject) -> str:
    return f"{job['trees_done']}/{job['n_trees']} trees" if job["n_trees"] else ""


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, and not an IPython in a
    terminal.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
