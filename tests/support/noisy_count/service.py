"""Quotes, submits and shows noisy numbers of rows over HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import Response
from sqlalchemy.orm import Session

from app.access.grants import Principal
from app.api.requests import By, Idempotency, Router, sent
from app.jobs.tables import JobRow
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.releases.contract import (
    Named,
    OutputInvalid,
    Planned,
    ReleaseKind,
    ReleaseRequest,
    StoredPlan,
    facts_of_job,
    visible,
)
from app.services.releases.requests import quote, submit
from app.services.spending.asked import AskedDataset, PricedPart, ask_part
from app.services.spending.quotes import PartQuote
from app.wire.base import Answer, PublicSentence
from app.wire.jobs import TrainOut
from app.wire.spending import AccountPlanOut, SpendIn
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.privacy import events
from grovekeeper_forests.releases.contract import public_facts
from tests.support.noisy_count.price import CountPlan, plan
from tests.support.noisy_count.read import read

COUNT = "count"


class CountIn(SpendIn):
    """A request for a noisy number of rows."""

    purpose: PublicSentence | None = None


class CountQuoteOut(AccountPlanOut):
    """Its price."""

    warnings: list[str]


class CountOut(Answer):
    """The number, in rows."""

    count: float
    noise_sd: float
    guarantee: JsonObject


@dataclass(frozen=True, kw_only=True)
class PlannedCount(Planned[CountQuoteOut]):
    def quoted(self, quotes: Sequence[PartQuote]) -> CountQuoteOut:
        [only] = quotes
        return CountQuoteOut(**only.fields, warnings=only.warnings)


@dataclass(frozen=True, kw_only=True)
class CountRequest(ReleaseRequest[CountQuoteOut]):
    kind = COUNT
    dataset: str
    body: CountIn

    def find(self, session: Session, principal: Principal) -> Named:
        return Named([self.dataset])

    def plan(
        self, installation: Installation, named: Named, sources: Sequence[AskedDataset]
    ) -> PlannedCount:
        asked = ask_part(sources[0], self.body)
        priced = plan(public_facts(asked.terms, None, asked.dataset.schema))
        return PlannedCount(
            parts=[PricedPart(asked, priced.event)], work={"plan": priced.to_json()}
        )


class CountKind(ReleaseKind):
    prefix = "ct"

    def is_planned(self, stored: StoredPlan) -> bool:
        [paid] = stored.terms
        facts = public_facts(paid, None, stored.schema)
        return plan(facts) == CountPlan.from_json(stored.work["plan"])

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        return facts_of_job(session, row)

    def body(self, task: JobTask, data: bytes) -> dict[str, Any]:
        try:
            count = read(data)
        except ValueError:
            raise OutputInvalid from None
        return {**task.metadata, "event": task.work["plan"]["event"], "count": count}


routes = Router()


@routes.post("/datasets/{dataset}/counts/quote")
def quote_count(by: By, dataset: str, body: CountIn) -> CountQuoteOut:
    return quote(*by, CountRequest(dataset=dataset, body=body))


@routes.post("/datasets/{dataset}/counts", status_code=202, response_model=TrainOut)
def release_count(
    by: By, dataset: str, body: CountIn, request: Idempotency
) -> Response:
    return sent(submit(*by, CountRequest(dataset=dataset, body=body), request=request))


@routes.get("/counts/{count_id}")
def show_count(by: By, count_id: str) -> CountOut:
    installation, principal = by
    with installation.database.read() as session:
        facts = visible(session, principal, COUNT, count_id).facts
    event = events.from_json(facts["event"])
    [count] = noisy_counts.in_rows(np.array([facts["count"]]), event)
    return CountOut(
        count=count, noise_sd=noisy_counts.noise_sd(event), guarantee=facts["guarantee"]
    )
