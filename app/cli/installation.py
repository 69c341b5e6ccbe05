"""Implements the commands that start processes (``serve``, ``api``, ``worker``,
``dask``), and ``prepare`` and ``db``.

Each command imports the server's modules in its function, which spares other commands
0.5 to 2 s of CPU.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.command import Group, command
from app.core import processes
from app.core.errors import InstallationError
from app.core.files import newest_backup
from app.core.logging import JsonFormatter
from app.core.memory import without_collection
from app.core.settings import PREFIX, SETTINGS, Settings, unknown_variables
from app.db import revisions
from app.db.database import Database, parse_url
from grovekeeper_client.cli import problems
from grovekeeper_client.cli.command import Plain, WrongUse, argument, option

db = Group("Upgrade the database of the installation, and change its keys.")

_ADDRESSES = ("database_url", "migration_url")
_PASSWORDS = {"password", "sslpassword"}
"""Options in the address of a PostgreSQL database that are secret."""

MigrationUrl = Annotated[
    str | None,
    typer.Option(
        help="Address for the role that owns the tables, without a password; default GROVEKEEPER_MIGRATION_URL."
    ),
]


def _refuse_password(name: str, address: str) -> None:
    """Refuses a password in a flag: every account of the machine can read the command
    lines of running processes.
    """
    parsed = parse_url(address)
    if parsed.password or not _PASSWORDS.isdisjoint(parsed.query):
        flag = f"--{name.replace('_', '-')}"
        variable = f"{PREFIX}{name.upper()}"
        raise WrongUse(
            f"{flag} takes no password, because other accounts of this machine can read it there: set {variable} to "
            f"the whole address, or {variable}_FILE to the name of a file with it"
        )


def _warn_of_unknown_variables() -> None:
    """Names variables that set nothing: a misspelt one would leave a default in force,
    such as no public times.
    """
    known = [setting.name.upper() for setting in SETTINGS]
    for name in unknown_variables(os.environ):
        likely = problems.similar([name.removeprefix(PREFIX)], known)
        meant = problems.question(f"{PREFIX}{each}" for each in likely)
        print(
            f"note: {name} is no setting and sets nothing{meant or '; see docs/settings.md'}",
            file=sys.stderr,
        )


@dataclass(frozen=True)
class HomeOptions(Plain):
    """Options that locate the installation."""

    home: Path | None = option("Folder of the installation; default GROVEKEEPER_HOME.")
    database_url: str | None = option(
        "Address of the database, without a password; default GROVEKEEPER_DATABASE_URL, or SQLite in the home."
    )
    log_level: str | None = option("DEBUG, INFO, WARNING or ERROR.")

    def settings(self, **flags: object) -> Settings:
        """The settings of the environment, overridden by these options and ``flags``.

        Raises:
            WrongUse: an address of a database has a password.
        """
        for name, address in (flags | {"database_url": self.database_url}).items():
            if name in _ADDRESSES and address is not None:
                _refuse_password(name, str(address))
        home = None if self.home is None else self.home.expanduser().absolute()
        level = None if self.log_level is None else self.log_level.upper()
        _warn_of_unknown_variables()
        if logging.lastResort is not None:
            # of commands that write no log; a traceback quotes statements
            logging.lastResort.setFormatter(JsonFormatter())
        return Settings.from_environment(
            os.environ,
            home=home,
            database_url=self.database_url,
            log_level=level,
            **flags,
        )

    @contextmanager
    def database(self) -> Iterator[Database]:
        """The database of the installation, closed on exit; raises as
        :func:`app.cli.prepare.opened` does.
        """
        from app.cli.prepare import opened

        with opened(self.settings()) as database:
            yield database


@dataclass(frozen=True)
class WorkOptions:
    """Options of workers."""

    lease_ttl_s: int | None = option(
        "Seconds without a heartbeat until a worker loses its job."
    )
    poll_interval_s: float | None = option("Seconds between polls of an empty queue.")
    release_interval_s: int | None = option(
        "Seconds between the public times of jobs; 0 for none."
    )


@dataclass(frozen=True)
class ListenOptions(HomeOptions):
    """Options of the API's address."""

    host: str | None = option("Address to listen on.")
    port: int | None = option("Port to listen on; 0 picks one.")

    def settings(self, **flags: object) -> Settings:
        return super().settings(host=self.host, port=self.port, **flags)


@command
def serve(
    call: ListenOptions,
    work: WorkOptions,
    workers: int | None = option("Number of worker processes."),
) -> None:
    """Run the API and its workers on the embedded database, on one machine."""
    with without_collection():
        from app.cli.serve import serve as run

    def announce(url: str) -> None:
        if call.as_json:
            line = json.dumps({"ready": url})
        else:
            line = f"Grovekeeper is ready at {url}"
        print(line, flush=True)

    run(call.settings(workers=workers, **vars(work)), announce=announce)


@command
def api(call: ListenOptions) -> None:
    """Run the API alone; workers run as other processes."""
    with without_collection():
        from app.cli.serve import serve_api

    processes.require_usable_umask()
    settings = call.settings()
    serve_api(
        settings,
        announce=lambda url: _say_ready(
            call, settings, f"The API answers at {url}", ready=url
        ),
    )


@command
def worker(call: HomeOptions, work: WorkOptions) -> None:
    """Run one worker until a signal stops it."""
    code = processes.code_digest()
    with without_collection():
        from app.worker.main import run

    processes.require_usable_umask()
    settings = call.settings(**vars(work))
    raise typer.Exit(
        run(
            settings,
            code=code,
            announce=lambda: _say_ready(
                call, settings, "The worker is ready", ready=True
            ),
        )
    )


def _say_ready(
    call: Plain, settings: Settings, sentence: str, *, ready: str | bool
) -> None:
    """Prints one line, when the database is at the newest revision that this version
    knows.
    """
    facts = {
        "version": version("grovekeeper"),
        "revision": revisions.head_revision(),
        "home": str(settings.home),
        "store": settings.store,
    }
    shown = ", ".join(
        f"{name} {value}" for name, value in facts.items() if value is not None
    )
    print(
        json.dumps({"ready": ready, **facts})
        if call.as_json
        else f"{sentence} ({shown})",
        flush=True,
    )


@command
def prepare(call: Plain) -> None:
    """Compile the program for this machine's processor, once, so that the first jobs
    and predictions do not wait.
    """
    from grovekeeper_forests import code_cache

    code_cache.choose()
    call.output.say(
        "compiling; on a machine that has the code already, this takes a second"
    )
    child = processes.module_command("app.worker.child", "prepare")
    if (
        subprocess.run(
            child, env=processes.module_environment(os.environ), check=False
        ).returncode
        != 0
    ):
        raise InstallationError("the program could not be compiled")
    call.output.answer({"folder": code_cache.folder()})
    call.output.say(
        f"this machine is prepared; the compiled code is in {code_cache.folder()}"
    )


@db.command("upgrade")
def upgrade(
    call: HomeOptions,
    migration_url: MigrationUrl = None,
) -> None:
    """Bring the database to the newest revision, and register GROVEKEEPER_ADMIN_KEY if
    it is set.
    """
    from app.cli import prepare

    settings = call.settings(migration_url=migration_url)
    prepare.upgrade(settings)
    prepare.register_configured_admin(settings)
    call.output.answer({"revision": revisions.head_revision()})
    call.output.say(f"the database is at revision {revisions.head_revision()}")


@db.command("move")
def move(
    call: HomeOptions,
    old: Annotated[
        str,
        argument(
            "File of the old SQLite database, or name of the old PostgreSQL database."
        ),
    ],
    migration_url: MigrationUrl = None,
) -> None:
    """Copy the database of a version before the first release into an empty one. The
    old one stays as it is.
    """
    from app.services.backup.move import move_database

    problems = move_database(call.settings(migration_url=migration_url), old)
    call.output.json({"revision": revisions.head_revision(), "problems": problems})
    call.output.say(
        f"copied {old}; the database is at revision {revisions.head_revision()}"
    )
    for problem in problems:
        call.output.complain(problem)


@db.command("status")
def status(call: HomeOptions) -> None:
    """Show the database's revision, and the time of the newest backup. Exits with 1 if
    the revision is not the newest.
    """
    settings = call.settings()
    current = revisions.current_revision(settings.database_url)
    head, backup = revisions.head_revision(), newest_backup(settings.home)
    answer = {"revision": current, "newest": head, "current": current == head}
    call.output.json(answer | {"backup_at": backup})
    call.output.say(
        f"the database is at revision {current or 'none'}; the newest is {head}\n"
        f"the newest backup of this home: {backup or 'none'}"
    )
    if current == head:
        return
    if current in revisions.MOVED:
        call.output.hint("grovekeeper db move OLD")
    elif current is None or current in revisions.known_revisions():
        call.output.hint("grovekeeper db upgrade")
    else:
        call.output.complain(
            revisions.TAKEN if current < revisions.FIRST else revisions.NEWER
        )
    raise typer.Exit(problems.ExitCode.FAILED)


@db.command("new-signer")
def new_signer(call: HomeOptions) -> None:
    """Replace a lost signing key: make a key where none is, and sign heads and
    checkpoints with it from now on.
    """
    from app.services.ledger.heads import replace_signer

    with call.database() as database:
        signer = replace_signer(call.settings(), database)
    call.output.answer({"verifier_key": signer.verifier_key})
    call.output.say(
        f"heads and checkpoints are signed with {signer.verifier_key}; publish the key for auditors"
    )


@db.command("rewrap-keys")
def rewrap_keys(call: HomeOptions) -> None:
    """Wrap the keys of stored rows with the newest storage key, so that older storage
    keys can be removed.
    """
    from app.services.ledger.heads import rewrap_data_keys

    with call.database() as database:
        key_id, n_wrapped = rewrap_data_keys(call.settings(), database)
    call.output.answer({"storage_key": key_id, "datasets": n_wrapped})
    call.output.say(
        f"the keys of {n_wrapped} datasets were wrapped anew; the storage key {key_id} wraps all keys"
    )


@command
def openapi(_call: Plain) -> None:
    """Print the API's OpenAPI document."""
    from app.api.main import openapi_text

    print(openapi_text(), end="")


@command
def backup(
    call: HomeOptions,
    folder: Annotated[Path, argument("Folder to make; must not exist.")],
) -> None:
    """Write database, rows and artifacts to a folder, while the service runs. Keys and
    heads are left out.
    """
    from app.services.backup.make import make_backup
    from app.services.installation import Installation

    with call.database():  # is at the newest revision
        installation = Installation.open(call.settings(), pool_size=1)
    with closing(installation):
        made = make_backup(installation, folder)
    call.output.answer(
        {
            "made_at": made.made_at,
            "files": len(made.files),
            "size_bytes": made.size_bytes,
        }
    )
    call.output.say(
        f"wrote {folder}: {len(made.files)} files, {made.size_bytes:,} bytes, as of {made.made_at}"
    )


@command
def restore(
    call: HomeOptions,
    folder: Annotated[Path, argument("Folder that `grovekeeper backup` made.")],
    migration_url: MigrationUrl = None,
    accept_loss: bool = option(
        "Restore without the newest entries; close their accounts for ever.",
        "--accept-loss",
        default=False,
    ),
) -> None:
    """Read a backup into an empty database and home. Refuses a backup that lacks
    entries which heads prove.
    """
    from app.services.backup.restore import restore_backup

    restored = restore_backup(
        call.settings(migration_url=migration_url), folder, accept_loss=accept_loss
    )
    closed = list(map(str, restored.losses))
    call.output.json(
        {"made_at": restored.made_at, "lost": closed, "problems": restored.problems}
    )
    call.output.say(f"restored the backup of {restored.made_at}")
    for line in closed:
        call.output.say(f"entries were lost: {line}")
    for problem in restored.problems:
        call.output.complain(problem)


dask_commands = Group(
    "Run the processes of a Dask cluster, which count the rows of large datasets."
)


@dask_commands.command("scheduler")
def run_scheduler() -> None:
    """Run the scheduler at GROVEKEEPER_DASK_SCHEDULER until a signal stops it."""
    settings = _dask_settings()
    _become("scheduler", settings, environ=processes.scrubbed_environment())


@dask_commands.command("worker")
def run_dask_worker(
    memory_limit: str = option(
        "Memory of the worker: 48GiB, or a share of the machine's.", default="0.8"
    ),
    host: str | None = option("Address to listen on; default: chosen by the network."),
) -> None:
    """Run one worker, which counts with all processors of the machine, until a signal
    stops it.
    """
    settings = _dask_settings()
    environ = processes.scrubbed_environment()
    if settings.store is not None:
        from app.core.object_store import ObjectStore  # an extra

        # refused here, not in a process that is started again and again
        ObjectStore(settings.store, settings.home)
        environ |= processes.provider_environment() | {f"{PREFIX}STORE": settings.store}
    _become("worker", settings, environ=environ, host=host, memory_limit=memory_limit)


def _dask_settings() -> Settings:
    _warn_of_unknown_variables()
    settings = Settings.from_environment(os.environ)
    if settings.dask_cluster is None:
        raise InstallationError("GROVEKEEPER_DASK_SCHEDULER is not set")
    return settings


def _become(
    kind: str, settings: Settings, *, environ: dict[str, str], **options: Any
) -> None:
    """Replaces this process by one of the cluster, which has no address of a database
    and no key of the service.
    """
    assert settings.dask_cluster is not None
    program = [sys.executable, "-m", "app.worker.dask_process", kind]
    arguments = json.dumps({"cluster": settings.dask_cluster.to_json(), **options})
    os.execve(sys.executable, [*program, arguments], environ)  # noqa: S606  (constant arguments)
