"""Implements ``grovekeeper backup`` and ``restore``, which work on the installation itself."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.command import command
from app.cli.installation import HomeOptions


@command
def backup(
    call: HomeOptions,
    folder: Annotated[Path, typer.Argument(help="Folder to make; must not exist.", show_default=False)],
) -> None:
    """Write database, rows and artifacts to a folder, while the service runs. Keys and heads are left out."""
    from app.cli.prepare import opened
    from app.services.backup.make_backup import make_backup
    from app.services.installation import Installation

    settings = call.settings()
    with opened(settings):
        installation = Installation.open(settings, pool_size=1)
    try:
        made = make_backup(installation, folder)
    finally:
        installation.close()
    call.output.answer({"made_at": made.made_at, "files": len(made.files), "size_bytes": made.size_bytes})
    call.output.say(f"wrote {folder}: {len(made.files)} files, {made.size_bytes:,} bytes, as of {made.made_at}")


@command
def restore(
    call: HomeOptions,
    folder: Annotated[Path, typer.Argument(help="Folder that `grovekeeper backup` made.", show_default=False)],
    migration_url: Annotated[
        str | None, typer.Option(help="Address for the role that owns the tables.", show_default=False)
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Restore without the newest entries; close their accounts for ever.")
    ] = False,
) -> None:
    """Read a backup into an empty database and home. Refuses a backup that lacks entries which heads prove."""
    from app.services.backup.restore_backup import restore_backup

    restored = restore_backup(call.settings(migration_url=migration_url), folder, accept_loss=accept_loss)
    closed = [str(loss) for loss in restored.losses]
    call.output.json({"made_at": restored.made_at, "lost": closed, "problems": restored.problems})
    call.output.say(f"restored the backup of {restored.made_at}")
    for line in closed:
        call.output.say(f"entries were lost: {line}")
    for problem in restored.problems:
        call.output.complain(problem)
