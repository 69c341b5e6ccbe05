"""Plans and quotes profiles (``POST /datasets/{id}/profiles``), checks the released
ones, and shows them.

Profiles stay when the rows are erased.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access.grants import TRAIN, Principal
from app.core import json_text, stamps
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import ReleaseRow
from app.services import guarantees
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.pagination import PageRequest, page_of
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
from app.services.spending.asked import AskedDataset, PricedPart, ask_part
from app.services.spending.quotes import PartQuote
from app.wire.profiles import (
    ClassCountOut,
    FeatureBinsOut,
    NoisyCountOut,
    ProfileIn,
    ProfileList,
    ProfileOut,
    ProfileQuoteOut,
    ProfileSummary,
)
from app.wire.spending import PriceOut
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.names import PROFILE
from grovekeeper_forests.releases.profile import price
from grovekeeper_forests.releases.profile.price import ProfileInvalid, ProfilePlan
from grovekeeper_forests.releases.profile.read import Profile


@dataclass(frozen=True, kw_only=True)
class PlannedProfile(Planned[ProfileQuoteOut]):
    """A profile with its plan."""

    plan: ProfilePlan

    def quoted(self, quotes: Sequence[PartQuote]) -> ProfileQuoteOut:
        """See :class:`Planned`."""
        [quote] = quotes
        schema = quote.part.asked.dataset.schema
        private = [
            schema.features[index].name
            for index in quantile_bins.private_features(schema)
        ]
        parameters = dict(self.plan.parameters)
        return ProfileQuoteOut(
            **quote.fields,
            parameters=parameters,
            private_features=private,
            warnings=quote.warnings,
        )


@dataclass(frozen=True, kw_only=True)
class ProfileRequest(ReleaseRequest[ProfileQuoteOut]):
    """A request for a profile of a dataset, or for its quote."""

    kind = PROFILE
    route = "POST /datasets/{dataset}/profiles"
    dataset: str
    body: ProfileIn

    def find(self, session: Session, principal: Principal) -> Named:
        """See :class:`ReleaseRequest`."""
        return Named([self.dataset])

    def plan(
        self, installation: Installation, named: Named, sources: Sequence[AskedDataset]
    ) -> PlannedProfile:
        """See :class:`ReleaseRequest`."""
        asked = ask_part(sources[0], self.body)
        plan = price.plan(
            self.body.parameters, public_facts(asked.terms, None, asked.dataset.schema)
        )
        return PlannedProfile(
            parts=[PricedPart(asked, plan.event)],
            work={"plan": plan.to_json()},
            plan=plan,
        )


def released_profile(row: ReleaseRow) -> Profile:
    """Reads the released numbers of a stored profile."""
    return Profile.from_json(
        row.facts["profile"], Schema.from_json(row.facts["schema"])
    )


class ProfileKind(ReleaseKind):
    """Jobs that release a profile: bins, class counts and a size."""

    prefix = stamps.PROFILE

    def is_planned(self, stored: StoredPlan) -> bool:
        """See :class:`ReleaseKind`."""
        [paid], plan = stored.terms, ProfilePlan.from_json(stored.work["plan"])
        return (
            price.plan(plan.parameters, public_facts(paid, None, stored.schema)) == plan
        )

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The facts that are shown with the released numbers."""
        [part] = row.parts
        return {
            **facts_of_job(session, row),
            "scope": part.scope,
            "epochs": part.epochs,
        }

    def body(self, task: JobTask, data: bytes) -> dict[str, Any]:
        """See :class:`ReleaseKind`."""
        schema = Schema.from_json(task.parts[0].schema)
        try:
            released = Profile.from_json(json.loads(data), schema)
        except (ProfileInvalid, ValueError):
            raise OutputInvalid from None
        return {
            **task.metadata,
            "schema": schema.to_json(),
            "profile": released.to_json(),
        }


def show_profile(
    installation: Installation, principal: Principal, profile_id: str
) -> ProfileOut:
    """Shows one profile: released numbers, guarantee, receipt."""
    with installation.database.read() as session:
        return _profile_out(session, visible(session, principal, PROFILE, profile_id))


def list_profiles(
    installation: Installation, principal: Principal, reference: str, page: PageRequest
) -> ProfileList:
    """Lists the profiles of one dataset, newest first."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, TRAIN)
        shown, following = page_of(
            page,
            lambda limit: releases.page_of_dataset(
                session, PROFILE, dataset_id=dataset.id, before=page.cursor, limit=limit
            ),
            lambda row: row.id,
            lambda row: json_text.n_bytes(row.facts),
        )
        return ProfileList(profiles=[_summary(row) for row in shown], next=following)


def _summary(row: ReleaseRow) -> ProfileSummary:
    return ProfileSummary(
        id=row.id,
        name=row.name,
        dataset=row.dataset_id,
        dataset_name=row.dataset_name,
        scope=row.facts["scope"],
        epochs=row.facts["epochs"],
        price=PriceOut.model_validate(row.facts["price"]),
        created_at=stamps.to_text(row.created_at),
    )


def _profile_out(session: Session, row: ReleaseRow) -> ProfileOut:
    profile, facts = released_profile(row), row.facts
    counts = zip(profile.schema.label.classes, profile.counts_in_rows, strict=True)
    return ProfileOut(
        **_summary(row).model_dump(),
        job_id=row.job_id,
        parameters=dict(profile.plan.parameters),
        features=[
            FeatureBinsOut(name=name, edges=edges)
            for name, edges in profile.edges().items()
        ],
        class_counts=[
            ClassCountOut(label=label, count=count, noise_sd=profile.count_noise_sd)
            for label, count in counts
        ],
        size=NoisyCountOut(count=profile.size_in_rows, noise_sd=profile.size_noise_sd),
        guarantee=guarantees.today(session, row.dataset_id, facts),
        receipt=facts["receipt"],
        event=profile.plan.event.to_json(),
        ledger=facts["ledger"],
    )
