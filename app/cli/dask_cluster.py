"""Implements ``grovekeeper dask``, which runs the processes of a Dask cluster."""

import json
import os
import sys
from typing import Annotated, Any

import typer

from app.cli.command import command
from app.core.errors import InstallationError
from app.core.processes import provider_environment, scrubbed_environment
from app.core.settings import Settings

app = typer.Typer(
    help="Run the processes of a Dask cluster, which count the rows of large datasets.", no_args_is_help=True
)


@app.command("scheduler")
@command
def scheduler() -> None:
    """Run the scheduler at GROVEKEEPER_DASK_SCHEDULER until a signal stops it."""
    settings = _settings()
    _run("scheduler", settings, environ=scrubbed_environment())


@app.command("worker")
@command
def worker(
    memory_limit: Annotated[
        str, typer.Option(help="Memory of the worker: 48GiB, or a share of the machine's.")
    ] = "0.8",
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: chosen by the network.", show_default=False)
    ] = None,
) -> None:
    """Run one worker, which counts with all processors of the machine, until a signal stops it."""
    settings = _settings()
    environ = scrubbed_environment()
    if settings.store is not None:
        from app.core.object_store import ObjectStore  # an extra

        ObjectStore(settings.store, settings.home)  # refused here, not in a process that is started again and again
        environ |= provider_environment()
    _run("worker", settings, environ=environ, host=host, memory_limit=memory_limit, store=settings.store)


def _settings() -> Settings:
    settings = Settings.from_environment(os.environ)
    if settings.dask_cluster is None:
        raise InstallationError("GROVEKEEPER_DASK_SCHEDULER is not set")
    return settings


def _run(kind: str, settings: Settings, *, environ: dict[str, str], **options: Any) -> None:
    """Replaces this process by one of the cluster, which has no address of a database and no key of the service."""
    assert settings.dask_cluster is not None
    program = [sys.executable, "-m", "app.worker.dask_process", kind]
    arguments = json.dumps({"cluster": settings.dask_cluster.to_json(), **options})
    os.execve(sys.executable, [*program, arguments], environ)  # noqa: S606  (constant arguments)
