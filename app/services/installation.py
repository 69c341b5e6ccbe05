"""Defines the installation that a process works on: database, home folder, artifact
store.
"""

import logging
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from app.access.keys import CachedAuthority, LastUses
from app.core.errors import InstallationError
from app.core.files import FOLDERS_OF_ROWS, Directory, Store, close_to_others
from app.core.logging import Tally
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.db.database import Database, database_file, dialect_of, parse_url
from app.registry.store import FOLDER as ARTIFACTS_FOLDER
from app.registry.store import ArtifactCache, ArtifactStore
from grovekeeper_forests.errors import GrovekeeperError

_log = logging.getLogger(__name__)

UNFINISHED_RESTORE = "restore.unfinished"
"""File in the home that marks a restore until it is complete."""

FINISHED_FOLDER = "finished"
"""Folder of the store with notes of outputs that are not registered yet."""

WRITTEN_FOLDERS = (
    *FOLDERS_OF_ROWS,
    "cache",
    "jobs",
    FINISHED_FOLDER,
    ARTIFACTS_FOLDER,
)
"""Folders in the home that requests and jobs write to, and make if they are absent."""

PRIVATE_NAMES = (
    *WRITTEN_FOLDERS,
    "storage.key",
    "signing.key",
    "fingerprint.key",
    "admin.key",
)
"""Names in the home that hold rows, keys or releases. A folder of mode 0700 closes
everything in it.
"""


@dataclass(frozen=True)
class Installation:
    """One installation, opened once per process and shared by its threads.

    Attributes:
        files: rows, artifacts and what belongs to them; machines of one installation
            share it.
        store: the artifacts among the files.
        admissions: requests that spend budget, by outcome: ``True`` admitted, ``False``
            answered from an earlier request, or the kind of the error.
        changed_cells: cells of rows to predict that models do not see as they were
            sent, by what changed them.
        last_uses: uses of keys that are not written yet.
        authority: callers and models that predictions have read.
        late_leases: how often sweeps of this process found a paid job with an ended
            lease, by job and end of the lease.
    """

    settings: Settings
    database: Database
    files: Store
    store: ArtifactStore
    cache: ArtifactCache
    admissions: Tally[bool | type[GrovekeeperError]] = field(default_factory=Tally)
    changed_cells: Tally[str] = field(default_factory=Tally)
    last_uses: LastUses = field(default_factory=LastUses)
    authority: CachedAuthority = field(default_factory=CachedAuthority)
    late_leases: Counter[tuple[str, datetime]] = field(default_factory=Counter)

    @classmethod
    def open(cls, settings: Settings, *, pool_size: int) -> "Installation":
        """Opens the database and the home folder. Makes the folder, but no tables."""
        refuse_unfinished_restore(settings)
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        close_to_others(_private_paths(settings))
        files = open_store(settings)
        store = ArtifactStore(files)
        database = Database.open(settings.database_url, pool_size=pool_size)
        return cls(settings, database, files, store, ArtifactCache(store))

    @property
    def home(self) -> Path:
        return self.settings.home

    @cached_property
    def heads(self) -> Store:
        """The heads of accounts, and the records of erasures."""
        return open_heads(self.settings)

    @cached_property
    def storage_keys(self) -> StorageKeys:
        """The keys that wrap the data keys in the database, read once per process."""
        return read_storage_keys(self.settings)

    def spool(self) -> BinaryIO:
        """Opens a file in the home without a name, for the body of an upload or a file
        that an answer streams.

        The kernel frees the content when the file is closed or the process ends,
        however it ends. So no text of an upload outlives an erasure.
        """
        return cast(BinaryIO, tempfile.TemporaryFile(dir=self.settings.home))

    def job_folder(self, job_id: str) -> Path:
        """The folder of a job, with the models that it reads and the output that its
        child leaves; it exists only while the job runs.
        """
        return self.settings.home / "jobs" / job_id

    def close(self) -> None:
        """Closes the database."""
        self.database.close()


def require_writable(settings: Settings) -> None:
    """Writes a file in the home, in the folder of the heads, and in each folder of the
    home that exists; the files have no names. Of the folders in these, of which every
    dataset has one, it reads the permissions.

    Raises:
        InstallationError: names the folder and the reason; so does the log.
    """
    heads = settings.checkpoint_dir or settings.home / "checkpoints"
    written = [settings.home / name for name in WRITTEN_FOLDERS]
    # not lost+found, which a disk that is mounted there has, and the system writes
    inner = (child for folder in written for child in folder.glob("*/"))
    ours = (child for child in inner if child.name.replace("_", "").isalnum())
    closed = (child for child in ours if not os.access(child, os.W_OK | os.X_OK))
    for folder in (settings.home, heads, *written, *closed):
        try:
            if folder.exists():
                with tempfile.TemporaryFile(dir=folder) as file:
                    file.write(b"0")
        except OSError as error:
            _log.error(
                "a folder cannot be written",
                extra={"folder": str(folder)},
                exc_info=True,
            )
            raise InstallationError(
                f"{folder} cannot be written by this account: {error.strerror}"
            ) from None


def open_store(settings: Settings) -> Store:
    """The store of the rows and artifacts of an installation: its home, unless a
    setting names another one.
    """
    if settings.store is None:
        return Directory(settings.home)
    return _object_store(settings, settings.store)


def open_heads(settings: Settings) -> Store:
    """The store of the heads of an installation."""
    if settings.checkpoint_dir is not None or settings.store is None:
        return Directory(settings.checkpoint_dir or settings.home / "checkpoints")
    return _object_store(settings, f"{settings.store.rstrip('/')}/checkpoints")


def _object_store(settings: Settings, address: str) -> Store:
    from app.core.object_store import ObjectStore  # an extra

    return ObjectStore(address, settings.home / "cache")


def refuse_unfinished_restore(settings: Settings) -> None:
    """Checks that no restore was killed in the home.

    Raises:
        InstallationError: a restore was killed.
    """
    if (settings.home / UNFINISHED_RESTORE).exists():
        raise InstallationError(
            f"a restore into {settings.home} is not complete; run grovekeeper restore again"
        )


def _private_paths(settings: Settings) -> list[Path]:
    """The files and folders that only the account of the service may open, in the home
    and beside a SQLite database.

    Files that settings name elsewhere are the operator's: containers mount secrets with
    permissions of their own.
    """
    paths = [settings.home / name for name in PRIVATE_NAMES]
    url = parse_url(settings.database_url)
    if dialect_of(url) == "sqlite":
        file = database_file(url)
        paths += [
            file.with_name(f"{file.name}{ending}")
            for ending in ("", "-wal", "-shm", "-journal")
        ]
    return paths


def storage_key_file(settings: Settings) -> Path:
    """The file of the storage keys, unless a setting has them."""
    return settings.home / "storage.key"


def read_storage_keys(settings: Settings) -> StorageKeys:
    """Reads the keys that wrap the data keys in the database.

    Raises:
        InstallationError: the keys are missing or cannot be read.
    """
    if settings.storage_key is not None:
        return StorageKeys.from_text(settings.storage_key)
    file = storage_key_file(settings)
    try:
        return StorageKeys.from_text(file.read_text(encoding="ascii", errors="replace"))
    except OSError:
        raise InstallationError(
            f"the storage key {file} is missing. Put it back; without it the stored rows cannot be read"
        ) from None
