"""Reading an export line by line, and naming the line that does not hold."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from app.verifier import amounts, canonical_json
from app.verifier.canonical_json import Json
from app.verifier.chain import Broken, Chain
from app.verifier.checkpoints import ORIGIN, Checkpoint
from app.verifier.joint_cells import TooComplex
from app.verifier.json_fields import Malformed
from app.verifier.prices import NoPrice

MAX_LINE_BYTES = 64 * 1024 * 1024


@dataclass
class NotVerified(Exception):
    """The first line that does not hold, and why. The header is line 1.

    Attributes:
        line: where.
        reason: why.
        file: a member's export, as it was named; None: the export that was to be checked.
    """

    line: int
    reason: str
    file: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Header(Protocol):
    """What the first line of any export says."""

    @property
    def cap(self) -> int:
        """In force at the end, in steps of the account's unit."""

    @property
    def places(self) -> int:
        """Decimal places of a step."""


class Account(Protocol):
    """An account after the entries so far."""

    chain: Chain
    cap: int

    @property
    def header(self) -> Header:
        """What the export says it is."""

    def take(self, value: Json) -> None:
        """Checks one entry against everything before it, and takes it in."""


AccountT = TypeVar("AccountT", bound=Account)
SummaryT = TypeVar("SummaryT")


class Reading(Generic[AccountT]):
    """An export as far as it was read, all of which held."""

    def __init__(self, lines: Iterable[bytes], opened: Callable[[Json], AccountT], *, file: str | None = None) -> None:
        """Reads the header.

        Args:
            lines: of the file, with their line ends, as iterating over a binary file gives them.
            opened: the account, from the header.
            file: what failures call it; None for the one file that is to be checked.

        Raises:
            NotVerified: the header does not hold.
        """
        self._lines = iter(lines)
        self._file = file
        self.n_lines = 1
        with self.named(1):
            first = next(self._lines, None)
            if first is None:
                raise Broken("the file is empty")
            self.account = opened(_read_line(first))

    def advance(self) -> bool:
        """Takes the next entry in; False where there is none.

        Raises:
            NotVerified: it does not hold.
        """
        line = next(self._lines, None)
        if line is None:
            return False
        self._take(line)
        return True

    def read_to_the_end(self, summary: Callable[[], SummaryT]) -> SummaryT:
        """What the export says, after all entries that are left.

        Raises:
            NotVerified: one does not hold, or the export ends otherwise than it should.
        """
        for line in self._lines:
            self._take(line)
        return self.finished(summary)

    def _take(self, line: bytes) -> None:
        self.n_lines += 1
        with self.named(self.n_lines):
            self.account.take(_read_line(line))

    def finished(self, summary: Callable[[], SummaryT]) -> SummaryT:
        """What the export says, after its last entry.

        Raises:
            NotVerified: it ends too early, or otherwise than its header says.
        """
        header = self.account.header
        with self.named(self.n_lines + 1):
            self.account.chain.check_end()
        with self.named(1):
            if header.cap != self.account.cap:
                said, found = (amounts.from_steps(cap, header.places) for cap in (header.cap, self.account.cap))
                raise Broken(f"the header says a cap of {said}, the entries end with {found}")
        with self.named(self.n_lines):
            return summary()

    @contextmanager
    def named(self, line: int) -> Iterator[None]:
        """Says of what fails inside which line it was."""
        try:
            yield
        except (Malformed, TooComplex, NoPrice, Broken) as error:
            raise NotVerified(line, str(error), self._file) from error


def check_logs(checkpoints: Sequence[Checkpoint], accounts: Sequence[str]) -> None:
    """Checks that every checkpoint is of a log that is looked at: none is silently left out.

    Raises:
        NotVerified: one is of another log.
    """
    if not {checkpoint.origin for checkpoint in checkpoints} <= {f"{ORIGIN}{account}" for account in accounts}:
        raise NotVerified(1, "a checkpoint is of another log than that of any export given here")


def _read_line(line: bytes) -> Json:
    if not line.endswith(b"\n"):
        raise Malformed("the line has no line end: the file was cut, or the line is longer than any entry")
    try:
        return canonical_json.loads(line)
    except canonical_json.NotStrictJson as error:
        raise Malformed(f"the line cannot be read: {error}") from error
