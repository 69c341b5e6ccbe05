"""Defines what a kind of release adds to the service: what its requests name, its plan,
and the facts of its jobs.

Mathematics is in :mod:`grovekeeper_forests.releases`. All kinds share the way of a
request (:mod:`.requests`), the queue, the charge, the child process, and the end of a
job (:mod:`.outputs`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from sqlalchemy.orm import Session

from app.access import grants
from app.datasets import catalog
from app.jobs.tables import JobPart, JobRow
from app.registry import releases
from app.registry.tables import ReleaseRow
from app.services.guarantees import of_charged
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.spending.asked import AskedDataset, PricedPart
from app.services.spending.quotes import PartQuote
from app.wire import base
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy import accountants, events, receipts
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases import names

Quote = TypeVar("Quote", bound=base.Answer)
"""The answer to a request for a quote."""


class OutputInvalid(GrovekeeperError):
    """The bytes that the child wrote are not an output of the job's kind."""

    sentence = "the job's output is not of its form"


@dataclass(frozen=True)
class Earlier:
    """An earlier release that a request names, and the parts of the job that released
    it.
    """

    row: ReleaseRow
    parts: Sequence[JobPart] = ()


@dataclass(frozen=True)
class Named:
    """What a request names: datasets by id or name, in the order of the job's parts,
    and earlier releases.
    """

    datasets: Sequence[str]
    releases: Sequence[Earlier] = ()


@dataclass(frozen=True, kw_only=True)
class Planned(ABC, Generic[Quote]):
    """A planned and priced request, from public facts alone.

    Attributes:
        parts: the rows that are read, with their prices.
        work: the child's instructions besides rows and schemas, in JSON form.
        algorithm: of a training.
        n_trees: trees to grow, the unit of progress; 0 where no tree grows.
    """

    parts: Sequence[PricedPart]
    work: JsonMapping
    algorithm: str | None = None
    n_trees: int = 0

    @abstractmethod
    def quoted(self, quotes: Sequence[PartQuote]) -> Quote:
        """The quote, from those of the parts."""


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(ABC, Generic[Quote]):
    """A request for a release, or for its quote.

    Attributes:
        kind: of the release.
        route: of the idempotency key, with a place for the dataset's id where the path
            may have its name; ``None``: the path.
        body: what the client sent.
    """

    kind: ClassVar[str]
    route: ClassVar[str | None] = None
    body: base.Request

    @abstractmethod
    def find(self, session: Session, principal: grants.Principal) -> Named:
        """What the request names; checks that the caller may use the earlier releases."""

    def confirm(
        self, session: Session, principal: grants.Principal, named: Named
    ) -> None:
        """Checks, with the caller's present roles, that the request still names the
        earlier releases that were found.

        Runs under the locks of the job's datasets, so it loads no body and no file.
        """

    @abstractmethod
    def plan(
        self, installation: Installation, named: Named, sources: Sequence[AskedDataset]
    ) -> Planned[Quote]:
        """Plans and prices. Reads artifacts, which do not change, and no database."""


class StoredPlan(NamedTuple):
    """What the row of a job says of its plan, and what the plan follows from.

    Attributes:
        declaration: of the first part's dataset, in JSON form: comparing it takes less
            time than reading it.
        terms: on which each part is paid.
        label: that the first part reads, where its dataset declares several.
    """

    kind: str
    algorithm: str | None
    work: JsonObject
    declaration: JsonObject
    terms: Sequence[Terms]
    label: str | None = None

    @property
    def schema(self) -> Schema:
        """The declaration, of its labels with the one that is read."""
        return Schema.from_json(self.declaration).with_label(self.label)


class ReleaseKind(ABC):
    """The jobs of one kind, from what their rows store.

    Attributes:
        prefix: of the ids of the releases.
        is_file: whether the release is the file that the child wrote; otherwise
            :meth:`body` makes a body of it.
    """

    prefix: str
    is_file: bool = False

    @abstractmethod
    def is_planned(self, stored: StoredPlan) -> bool:
        """Whether a stored plan is what planning makes of its parameters. Raises an
        error of any kind where the work is not of its form.
        """

    def inputs(self, work: JsonMapping) -> Sequence[tuple[str, str]]:
        """Ids and digests of the models that the child reads; they are copied to the
        job's folder before the charge.
        """
        return ()

    def planned_bytes(self, work: JsonMapping, schema: Schema) -> int:
        """The public size of the file that a job stores; asked of kinds that are files."""
        return 0

    def needs_sums_alone(self, algorithm: str | None) -> bool:
        """Whether the workers of a Dask cluster may read the rows: where a release
        needs no more of them than sums.
        """
        return False

    @abstractmethod
    def public_facts(self, session: Session, row: JobRow) -> JsonObject:
        """The public facts that the release carries beside its numbers: price,
        guarantee, receipt.
        """

    @abstractmethod
    def body(self, task: JobTask, data: bytes) -> JsonObject | None:
        """Checks the child's output, and makes the body that is stored of it; ``None``
        where the file is stored.

        Raises:
            OutputInvalid: the bytes are not a release of this kind.
        """


def visible(
    session: Session, principal: grants.Principal, kind: str, release_id: str
) -> ReleaseRow:
    """Finds a release of a kind for a caller who may train on its dataset."""
    row = releases.find(session, kind, release_id)
    grants.require(
        session, principal, row.dataset_id, grants.TRAIN, kind=names.IN_WORDS[kind]
    )
    return row


def facts_of_job(session: Session, row: JobRow) -> JsonObject:
    """The facts of a job that is being charged, with the facts of its first part.

    Args:
        session: the session of the charging transaction; the guarantee follows from the
            caps in it.
    """
    return {"job_id": row.id, "name": row.name, **facts_of_part(session, row, 0)}


def facts_of_part(session: Session, row: JobRow, position: int) -> JsonObject:
    """The facts of one part of a job, on the account that pays for it."""
    part = row.parts[position]
    event = events_of(row)[position]
    dataset = catalog.find(session, part.dataset)
    facts = {"dataset": dataset.id, "dataset_name": dataset.name, "price": part.price}
    # of datasets with several labels alone, so that other artifacts keep their bytes
    if part.label is not None:
        facts["label"] = part.label
    accountant = part.price["accountant"]
    return {
        **facts,
        "guarantee": of_charged(
            session,
            dataset,
            amount=_charged(row, dataset.id),
            output=names.IN_WORDS[row.kind],
        ),
        "receipt": receipts.in_words(
            events.from_json(event),
            accountant=accountant,
            adjacency=dataset.adjacency,
            max_rows=dataset.max_rows,
        ),
        "ledger": {
            "dataset": dataset.id,
            "reservation_id": part.reservation_id,
            "job_id": row.id,
        },
    }


def events_of(row: JobRow) -> list[Any]:
    """The events of a job's plan, one per part, in JSON form."""
    plan = row.task["work"]["plan"]
    return [
        plan["event"],
        *([plan["unlabelled"]["event"]] if "unlabelled" in plan else []),
    ]


def _charged(row: JobRow, dataset_id: str) -> int:
    """The steps that a job charges for one unit of a dataset: the largest price of its
    parts there.

    The scopes of two parts of one dataset are disjoint, so a row is in one part at most
    (docs/proofs/sspe-1.md).
    """
    steps = []
    for part in row.parts:
        if part.dataset == dataset_id:
            places = accountants.by_name(part.price["accountant"]).PLACES
            steps.append(int(Fraction(part.price["amount"]) * 10**places))
    return max(steps)
