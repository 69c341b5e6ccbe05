"""Draws the release of a charged job in the child process: reads its rows, and writes
the output.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Protocol

from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.services.jobs.task import JobTask, PartRows, input_path
from grovekeeper_common import durable_files
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_forests.data.coded_rows import (
    CodeRequest,
    ColumnRequest,
    Parts,
    RowParts,
    TrainingRows,
)
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import Randomness, SystemRandomness
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.releases.drawing import Draw
from grovekeeper_forests.releases.evaluation import draw as evaluation
from grovekeeper_forests.releases.forest import draw as forest
from grovekeeper_forests.releases.names import EVALUATION, MODEL, PROFILE, STATISTICS
from grovekeeper_forests.releases.profile import draw as profile
from grovekeeper_forests.releases.statistics import draw as statistics
from grovekeeper_forests.releases.statistics.sums import StoredRows

DRAW: Mapping[str, Draw] = MappingProxyType(
    {
        MODEL: forest.draw,
        PROFILE: profile.draw,
        EVALUATION: evaluation.draw,
        STATISTICS: statistics.draw,
    }
)
"""What draws each kind of release."""


def perform(task: JobTask, *, on_tree_done: Callable[[], None]) -> None:
    """Draws the release of a job once, and writes it to the task's folder.

    Reads the rows in this process, or by the workers of a Dask cluster.

    Raises:
        KeyError: the task names no kind of release.
    """
    draw = DRAW[task.kind]
    reader: Reader = _ReaderHere()
    with ExitStack() as stack:
        if task.cluster is not None:
            # the extra, which jobs in this process do not need
            from app.services.drawing import dask_fleet

            workers = dask_fleet.Connection.to(task.cluster, task.job_id)
            reader = stack.enter_context(workers)
        job = ChargedJob(
            task, task.work, task.metadata, SystemRandomness(), on_tree_done, reader
        )
        output = draw(job)
    durable_files.write(task.output_path, output)


class Reader(Protocol):
    """Reads the rows of a part of a job; ``keep_unlabelled``: also those whose label is
    missing or unknown.
    """

    def rows(
        self, part: PartRows, codes: CodeRequest, *, keep_unlabelled: bool
    ) -> TrainingRows:
        """The PRIVATE rows as codes."""

    def columns(
        self, part: PartRows, request: ColumnRequest, *, keep_unlabelled: bool
    ) -> Parts:
        """The PRIVATE rows by their values in some columns."""


class _ReaderHere:
    """Reads rows in this process."""

    def rows(
        self, part: PartRows, codes: CodeRequest, *, keep_unlabelled: bool
    ) -> TrainingRows:
        """See :class:`Reader`."""
        selection = _selection(part, keep_unlabelled=keep_unlabelled)
        return private_rows.read(part.files, selection, codes=codes)

    def columns(
        self, part: PartRows, request: ColumnRequest, *, keep_unlabelled: bool
    ) -> Parts:
        """See :class:`Reader`."""
        selection = _selection(part, keep_unlabelled=keep_unlabelled)
        blocks = partial(
            private_rows.read_columns, part.files, selection, request.names
        )
        return RowParts([StoredRows(request.schema, blocks)])


def _selection(part: PartRows, *, keep_unlabelled: bool) -> Selection:
    schema = Schema.from_json(part.schema)
    partitions = Partitions.from_json(part.partitions)
    return Selection(
        schema,
        partitions,
        part.scope,
        label=part.label,
        keep_unlabelled=keep_unlabelled,
    )


@dataclass(frozen=True)
class ChargedJob:
    """Implements :class:`grovekeeper_forests.releases.drawing.Drawing`."""

    task: JobTask
    work: JsonMapping
    metadata: JsonMapping
    randomness: Randomness
    on_tree_done: Callable[[], None]
    reader: Reader

    def schema(self, part: int = 0) -> Schema:
        """The public declaration of the dataset of a part."""
        return self.task.parts[part].columns

    def values(self, part: int = 0, *, keep_unlabelled: bool = False) -> SanitisedRows:
        """See :class:`Drawing`."""
        rows = self.task.parts[part]
        return private_rows.read(
            rows.files, _selection(rows, keep_unlabelled=keep_unlabelled)
        )

    def codes(
        self, request: CodeRequest, part: int = 0, *, keep_unlabelled: bool = False
    ) -> TrainingRows:
        """See :class:`Drawing`."""
        return self.reader.rows(
            self.task.parts[part], request, keep_unlabelled=keep_unlabelled
        )

    def columns(
        self, request: ColumnRequest, part: int = 0, *, keep_unlabelled: bool = False
    ) -> Parts:
        """See :class:`Drawing`."""
        return self.reader.columns(
            self.task.parts[part], request, keep_unlabelled=keep_unlabelled
        )

    def model(self, digest: str) -> bytes:
        """The artifact of a released model that the job names."""
        return input_path(self.task.folder, digest).read_bytes()
