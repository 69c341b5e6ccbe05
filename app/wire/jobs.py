"""Defines the types of ``/jobs``, and of an accepted job."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from app.core import limits
from app.wire.base import (
    NO_CONTROLS,
    Answer,
    LabelOfJob,
    PublicSentence,
    Request,
    no_secret,
)
from app.wire.spending import PriceOut, UnlabelledOut
from grovekeeper_common.json_types import JsonObject

JobName = Annotated[
    str,
    Field(min_length=1, max_length=limits.MAX_JOB_NAME_CHARS, pattern=NO_CONTROLS),
    AfterValidator(no_secret),
]
"""The client's name for the output of a job."""

JobState = Literal["waiting", "queued", "running", "succeeded", "failed", "cancelled"]
"""The state of a job; ``waiting``: for the approval of an owner."""

EndReason = Literal[
    "cancelled",
    "dataset-erased",
    "rejected",
    "expired",
    "not-started",
    "not-approved",
    "lost",
    "revoked",
    "key-expired",
    "model-deleted",
    "failed",
    "damaged",
]
"""Why a job ended without an output; ``expired``, which jobs of earlier versions have,
is one of the next two.
"""


class NamedJobIn(Request):
    """Fields of every request that makes a job."""

    name: JobName | None = None
    purpose: PublicSentence | None = None


class TrainOut(Answer):
    """An accepted job."""

    job_id: str
    state: Literal["waiting", "queued"]
    reservation_id: str
    price: PriceOut
    unlabelled: UnlabelledOut | None


JobKind = Literal["train", "profile", "evaluation", "statistics"]


HeldBy = Literal[
    "frozen", "erasure-due", "no-room", "rows-absent", "model-absent", "cannot-load"
]
"""Why a queued job is not started."""


class _JobFacts(Answer):
    """What a job has in a list, too."""

    id: str
    dataset: str
    dataset_name: str
    kind: JobKind | str
    algorithm: str | None
    what: str
    name: str | None
    purpose: str | None
    label: LabelOfJob
    submitted_by: str
    state: JobState
    reason: EndReason | str | None
    held_by: HeldBy | None
    jobs_before: int | None
    charged: bool
    preparing: bool
    progress: float
    trees_done: int
    n_trees: int
    model_id: str | None
    profile_id: str | None
    evaluation_id: str | None
    statistics_id: str | None
    reservation_id: str
    price: PriceOut
    unlabelled: UnlabelledOut | None
    submitted_at: str


class JobOut(_JobFacts):
    """A job as shown to analysts and auditors: states and public numbers only.

    ``charged``: the price is spent, for good. ``submitted_by``: the key that submitted
    the job; ``purpose``: the reason that it stated. ``label``: the label that the job
    reads, absent where the dataset declares no other. ``scope``: the cells that the job
    reads of ``dataset``; empty: all.

    ``held_by`` says why a queued job is not started: a dataset that it reads is
    ``frozen``, or the date has come at which the rows of the dataset are erased
    (``erasure-due``), which cancels the job; or why the last worker put the job back,
    uncharged, which workers try again.

    ``preparing``: the job runs on a machine that still loads and compiles the program,
    and has read no row.

    ``kind`` and ``reason`` of a job that a newer version accepted or ended may be
    others than those listed.
    """

    scope: JsonObject


class ListedJob(_JobFacts):
    """A job in a list, without its cells, of which it may name thousands;
    ``submitted_by_name`` is the name of the key, if the caller may know it.
    """

    submitted_by_name: str | None


class JobList(Answer):
    jobs: list[ListedJob]
    next: str | None
