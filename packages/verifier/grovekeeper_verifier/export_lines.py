"""Reads an export line by line and names the first line that fails a check."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from grovekeeper_verifier import amounts, canonical_json
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.chain import Broken, Chain
from grovekeeper_verifier.checkpoints import ORIGIN, Checkpoint
from grovekeeper_verifier.joint_cells import TooComplex
from grovekeeper_verifier.json_fields import Malformed
from grovekeeper_verifier.prices import NoPrice

MAX_LINE_BYTES = 64 * 1024 * 1024


@dataclass
class NotVerified(Exception):
    """The first line that fails a check. The header is line 1.

    Attributes:
        line: number of the line.
        reason: the check that failed.
        file: path of a member's export; None for the export that is verified.
    """

    line: int
    reason: str
    file: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Header(Protocol):
    """The first line of an export."""

    @property
    def cap(self) -> int:
        """The cap in force at the end, in steps of the account's unit."""

    @property
    def places(self) -> int:
        """Decimal places of a step."""


class Account(Protocol):
    """An account after the entries so far."""

    chain: Chain
    cap: int

    @property
    def header(self) -> Header:
        """The first line of the export."""

    def take(self, value: Json) -> None:
        """Checks one entry against the entries before it, and applies it."""


AccountT = TypeVar("AccountT", bound=Account)
SummaryT = TypeVar("SummaryT")


class Reading(Generic[AccountT]):
    """An export whose lines up to the current one passed every check."""

    def __init__(
        self,
        lines: Iterable[bytes],
        opened: Callable[[Json], AccountT],
        *,
        file: str | None = None,
    ) -> None:
        """Reads the header.

        Args:
            lines: of the file, with line ends, as iteration over a binary file yields
                them.
            opened: makes the account from the header.
            file: path for messages; None for the export that is verified.
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
        """Checks and applies the next entry; False at the end of the file."""
        line = next(self._lines, None)
        if line is None:
            return False
        self._take(line)
        return True

    def read_to_the_end(self, summary: Callable[[], SummaryT]) -> SummaryT:
        """Reads all remaining entries and returns the summary."""
        for line in self._lines:
            self._take(line)
        return self.finished(summary)

    def _take(self, line: bytes) -> None:
        self.n_lines += 1
        with self.named(self.n_lines):
            self.account.take(_read_line(line))

    def finished(self, summary: Callable[[], SummaryT]) -> SummaryT:
        """Checks the end of the export and returns the summary."""
        header = self.account.header
        with self.named(self.n_lines + 1):
            self.account.chain.check_end()
        with self.named(1):
            if header.cap != self.account.cap:
                stated, last = (
                    amounts.from_steps(cap, header.places)
                    for cap in (header.cap, self.account.cap)
                )
                raise Broken(
                    f"the header states a cap of {stated}, the entries end with {last}"
                )
        with self.named(self.n_lines):
            return summary()

    @contextmanager
    def named(self, line: int) -> Iterator[None]:
        """Adds the line number to a failure."""
        try:
            yield
        except (Malformed, TooComplex, NoPrice, Broken) as error:
            raise NotVerified(line, str(error), self._file) from error


def check_logs(checkpoints: Sequence[Checkpoint], accounts: Sequence[str]) -> None:
    """Checks that every checkpoint belongs to a log that is verified, so that no
    checkpoint is ignored.

    Raises:
        NotVerified: a checkpoint belongs to another log.
    """
    if not {checkpoint.origin for checkpoint in checkpoints} <= {
        f"{ORIGIN}{account}" for account in accounts
    }:
        raise NotVerified(
            1, "a checkpoint belongs to a log of which no export is given"
        )


def _read_line(line: bytes) -> Json:
    try:
        return canonical_json.loads(line)
    except canonical_json.NotStrictJson as error:
        if not line.endswith(b"\n"):  # an object without its end is no JSON
            reason = "the line has no line end: the file was truncated, or the line is longer than any entry"
            raise Malformed(reason) from error
        raise Malformed(f"the line cannot be read: {error}") from error
