"""Defines what draws a release. Only the child process of a job imports this module."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from grovekeeper_forests.data.coded_rows import (
    CodeRequest,
    ColumnRequest,
    Parts,
    TrainingRows,
)
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import Randomness


class Drawing(Protocol):
    """A charged job, as the child process that draws its release has it: public facts,
    and access to PRIVATE rows.
    """

    @property
    def work(self) -> Mapping[str, Any]:
        """The instructions, with the ``plan`` that the charge pays for."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Public facts that the release carries beside its numbers."""

    @property
    def randomness(self) -> Randomness:
        """Pays for nothing: a release draws through ``PaidRandomness``, with the event
        of its plan.
        """

    @property
    def on_tree_done(self) -> Callable[[], None]:
        """Called once for each planned tree."""

    def schema(self, part: int = 0) -> Schema:
        """The public declaration of the dataset of a part."""

    def values(self, part: int = 0, *, keep_unlabelled: bool = False) -> SanitisedRows:
        """The PRIVATE rows of a part; ``keep_unlabelled``: also those whose label is
        missing or unknown.
        """

    def columns(
        self, request: ColumnRequest, part: int = 0, *, keep_unlabelled: bool = False
    ) -> Parts:
        """The PRIVATE rows of a part by their values in some columns, which the workers
        of a cluster may add up; see
        :class:`grovekeeper_forests.releases.statistics.sums.StoredRows`.
        """

    def codes(
        self, request: CodeRequest, part: int = 0, *, keep_unlabelled: bool = False
    ) -> TrainingRows:
        """The PRIVATE rows of a part as codes, which the workers of a cluster may
        count.
        """

    def model(self, digest: str) -> bytes:
        """The artifact of a released model that the job names."""


Draw: TypeAlias = Callable[[Drawing], bytes]
"""Draws the release of a kind. One call is one release, paid for by the job's charge: a
second call would be a second release, so a job that breaks after its charge fails and
stays charged.
"""
