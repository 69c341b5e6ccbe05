"""Searches all places to which bytes of a running service go for canaries."""

import subprocess
from contextlib import suppress
from pathlib import Path

from sqlalchemy import inspect, text

from tests.support.canaries import Canaries
from tests.support.server import Server


class Search:
    """What was found so far.

    Attributes:
        found: canaries by the place in which they were found.
        n_bytes: number of bytes that were searched, in ``n_places`` answers, files and
            rows of tables.
    """

    def __init__(self, server: Server, canaries: Canaries, *, folder: Path) -> None:
        self._server = server
        self._canaries = canaries
        self._folder = folder
        self.n_bytes = 0
        self.n_places = 0
        self.found: dict[str, list[str]] = {}

    def look(self, place: str, content: bytes) -> None:
        self.n_places += 1
        self.n_bytes += len(content)
        found = self._canaries.found_in(content)
        if found:
            self.found.setdefault(place, []).extend(found)

    def files(self) -> None:
        """The home, the folder of temporary files and the logs. Names of files are
        searched, too.
        """
        home = self._server.settings.home
        for path in sorted((*home.parent.rglob("*"), *self._folder.rglob("*"))):
            self.look("names of files", str(path).encode())
            if path.is_file() and path != home / "storage.key":
                self.look(str(path), _read(path))

    def processes(self, *pids: int) -> None:
        """What the kernel shows of the processes to this account; it hides the most
        part of processes with rows.
        """
        for folder in (Path(f"/proc/{pid}") for pid in pids):
            for name in ("cmdline", "environ", "comm", "stat", "status", "maps"):
                with suppress(PermissionError):
                    self.look(f"{name} of a process", (folder / name).read_bytes())
            with suppress(PermissionError):
                for link in (folder / "fd").iterdir():
                    with suppress(FileNotFoundError):  # closed meanwhile
                        self.look("open files of a process", bytes(link.readlink()))

    def database(self) -> None:
        """Every value of every table, and the log of PostgreSQL."""
        with self._server.database.read() as session:
            for table in inspect(self._server.database.engine).get_table_names():
                for row in session.execute(text(f"SELECT * FROM {table}")):
                    self.look(f"table {table}", b"\n".join(map(_stored, row)))
            if self._server.database.engine.dialect.name == "postgresql":
                folder = Path(
                    str(session.execute(text("SHOW data_directory")).scalar())
                ).parent
                self.look("log of PostgreSQL", (folder / "log").read_bytes())


def _read(path: Path) -> bytes:
    """The content of a file, which another process reads if it is a file of SQLite.

    Closing any descriptor of such a file ends every lock that this process has on it,
    and the server is in this process. The next worker would then truncate memory that
    the server has mapped, and a signal would end the server.
    """
    if ".sqlite3" not in path.name:
        return path.read_bytes()
    return subprocess.run(["cat", str(path)], check=True, capture_output=True).stdout


def _stored(value: object) -> bytes:
    return (
        bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
    )
