"""Defines the installation that a process works on: database, home folder, artifact store."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from app.core.settings import Settings
from app.db.unit_of_work import Database
from app.registry.cache import ArtifactCache
from app.registry.store import ArtifactStore


@dataclass(frozen=True)
class Installation:
    """One installation, opened once per process and shared by its threads."""

    settings: Settings
    database: Database
    store: ArtifactStore
    cache: ArtifactCache

    @classmethod
    def open(cls, settings: Settings, *, pool_size: int) -> "Installation":
        """Opens the database and the home folder. Makes the folder, but no tables."""
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = ArtifactStore(settings.home / "artifacts")
        database = Database.open(settings.database_url, pool_size=pool_size)
        return cls(settings, database, store, ArtifactCache(store))

    @property
    def home(self) -> Path:
        return self.settings.home

    def spool(self) -> BinaryIO:
        """Opens a file in the home without a name, for the body of an upload or a file that an answer streams.

        The kernel frees the content when the file is closed or the process ends, however it ends. So no text of an
        upload outlives an erasure.
        """
        return cast(BinaryIO, tempfile.TemporaryFile(dir=self.home))

    def job_folder(self, job_id: str) -> Path:
        """The folder in which a job's child leaves its artifact; it exists only while the job runs."""
        return self.home / "jobs" / job_id

    def close(self) -> None:
        """Closes the database."""
        self.database.close()
