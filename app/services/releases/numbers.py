"""Checks, lists and shows what profiles, statistics and evaluations have in common:
released numbers, kept as a body beside the facts of their job.
"""

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from sqlalchemy.orm import Session

from app.access.grants import TRAIN, Principal
from app.core import json_text, stamps
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import ReleaseRow
from app.services.authorization import authorized_dataset
from app.services.jobs.task import JobTask
from app.services.pagination import PageRequest, page_of
from app.services.releases.contract import OutputInvalid, ReleaseKind, facts_of_job
from app.wire.spending import PriceOut
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError


class Released(Protocol):
    """The released numbers of a job."""

    def to_json(self) -> dict[str, object]:
        """The numbers as they are stored."""


class NumbersKind(ReleaseKind):
    """Jobs that release numbers about the rows of one dataset.

    Attributes:
        kind: of the release, which is also the field of its numbers in the body.
    """

    kind: ClassVar[str]

    @abstractmethod
    def read(self, value: object, schema: Schema) -> Released:
        """Checks released numbers. Raises an error of the kind where they are not of
        its form.
        """

    def public_facts(self, session: Session, row: JobRow) -> JsonObject:
        """See :class:`ReleaseKind`."""
        [part] = row.parts
        return {
            **facts_of_job(session, row),
            "scope": part.scope,
            "epochs": part.epochs,
        }

    def body(self, task: JobTask, data: bytes) -> JsonObject:
        """See :class:`ReleaseKind`."""
        schema = task.parts[0].columns
        try:
            released = self.read(json.loads(data), schema)
        except (GrovekeeperError, ValueError):
            raise OutputInvalid from None
        return {
            **task.metadata,
            "schema": schema.to_json(),
            self.kind: released.to_json(),
        }


def page_of_kinds(
    session: Session,
    principal: Principal,
    kinds: Sequence[str],
    reference: str,
    page: PageRequest,
) -> tuple[Sequence[ReleaseRow], str | None]:
    """A page of the releases of some kinds about one dataset, newest first."""
    dataset = authorized_dataset(session, principal, reference, TRAIN)
    return page_of(
        page,
        lambda limit: releases.page_of_dataset(
            session, kinds, dataset_id=dataset.id, before=page.cursor, limit=limit
        ),
        lambda row: row.id,
        lambda row: json_text.n_bytes(row.facts),
    )


def head(row: ReleaseRow) -> JsonObject:
    """The fields that released numbers have in a list."""
    return {
        "id": row.id,
        "name": row.name,
        "dataset": row.dataset_id,
        "dataset_name": row.dataset_name,
        "scope": row.facts["scope"],
        "epochs": row.facts["epochs"],
        "price": PriceOut.model_validate(row.facts["price"]),
        "created_at": stamps.to_text(row.created_at),
    }


def details(row: ReleaseRow) -> JsonObject:
    """The fields that released numbers are shown with, beside the numbers."""
    return {
        **head(row),
        "job_id": row.job_id,
        "receipt": row.facts["receipt"],
        "ledger": row.facts["ledger"],
    }
