"""Quotes and accepts profiles (``POST /datasets/{id}/profiles``), registers the released ones, and shows them.

Profiles stay when the rows are erased.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import TRAIN, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.core import json_text, stamps
from app.core.errors import GrovekeeperError
from app.forests.bins import quantile_bins
from app.forests.contract.algorithm import PublicFacts
from app.forests.data.schema import Schema
from app.jobs.tables import JobRow
from app.privacy.calibration import Terms
from app.privacy.events import Adjacency
from app.registry import releases
from app.registry.releases import PROFILE
from app.registry.tables import ReleaseRow
from app.releases.contract import public_facts
from app.releases.profile import price as profile_price
from app.releases.profile.price import ProfileInvalid, ProfilePlan
from app.releases.profile.read import Profile
from app.services import guarantees
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.jobs import kinds
from app.services.jobs.kinds import OutputInvalid
from app.services.jobs.task import JobTask
from app.services.pagination import PageRequest, page_of
from app.services.spending.asked import AskedDataset, PricedPart, ask_part, read_asked
from app.services.spending.quotes import quote_parts
from app.services.spending.spend import Job, spending
from app.wire.spending import (
    ClassCountOut,
    FeatureBinsOut,
    NoisyCountOut,
    PriceOut,
    ProfileIn,
    ProfileList,
    ProfileOut,
    ProfileQuoteOut,
    ProfileSummary,
)


def show_profile_quote(
    installation: Installation, principal: Principal, reference: str, body: ProfileIn
) -> ProfileQuoteOut:
    """Quotes a profile. Reads no rows and costs nothing."""
    with installation.database.read() as session:
        principal, [asked] = read_asked(installation, session, principal, [reference], TRAIN)
        dataset = asked.dataset.living()
        plan, part = _plan_profile(asked, body)
        [quote] = quote_parts(session, principal, [part])
    features = dataset.schema.features
    return ProfileQuoteOut(
        **quote.fields,
        parameters=dict(plan.parameters),
        private_features=[features[index].name for index in quantile_bins.private_features(dataset.schema)],
        warnings=quote.warnings,
    )


def submit_profile(
    installation: Installation, caller: Principal, reference: str, body: ProfileIn, *, request: IdempotentRequest
) -> Answer:
    """Accepts a job that releases a profile, or refuses it."""
    planned = _planned_before(installation, caller, reference, body)
    with spending(installation, caller, request) as opened:
        authorized = opened.authorize([reference])
        [source] = authorized.sources
        locked = authorized.lock(route=f"POST /datasets/{source.dataset.id}/profiles")
        if isinstance(locked, Answer):
            return locked
        if isinstance(planned, GrovekeeperError):
            raise planned
        plan, part = planned
        work = {"plan": plan.to_json()}
        parts = locked.confirmed([part])
        return locked.accept(Job("profile", part.asked.dataset, parts, work, name=body.name, purpose=body.purpose))


def _planned_before(
    installation: Installation, caller: Principal, reference: str, body: ProfileIn
) -> tuple[ProfilePlan, PricedPart] | GrovekeeperError:
    """Plans before the transaction, or finds why there is no plan; see :meth:`Locked.confirmed`."""
    try:
        with installation.database.read() as session:
            _, [asked] = read_asked(installation, session, caller, [reference], TRAIN)
        return _plan_profile(asked, body)
    except GrovekeeperError as error:
        return error


def released_profile(row: ReleaseRow) -> Profile:
    """Reads the released numbers of a stored profile."""
    return Profile.from_json(row.facts["profile"], Schema.from_json(row.facts["schema"]))


def _plan_profile(source: AskedDataset, body: ProfileIn) -> tuple[ProfilePlan, PricedPart]:
    """Plans the release and prices it, from public facts alone."""
    asked = ask_part(source, body)
    plan = profile_price.plan(body.parameters, _facts(asked.terms, source.dataset.schema))
    return plan, PricedPart(asked, plan.event)


def _facts(terms: Terms, schema: Schema) -> PublicFacts:
    return public_facts(terms, None, schema, Adjacency.ADD_REMOVE_ONE)


@dataclass(frozen=True)
class ReleasedProfile:
    """A profile before its registration. A profile has no file, so a lost job leaves nothing to remove."""

    body: dict[str, Any]

    def register(self, session: Session, row: JobRow) -> None:
        """See :class:`app.services.jobs.kinds.JobOutput`."""
        released = ReleaseRow(**kinds.identity_of_output(row, prefix=stamps.PROFILE), body=self.body)
        releases.add(session, released)
        row.release_id = released.id

    def discard(self, installation: Installation) -> None:
        """See :class:`app.services.jobs.kinds.JobOutput`: a profile has no file to remove."""


class ProfileKind:
    """Jobs that release a profile: bins, class counts and a size."""

    def is_planned(self, session: Session, row: JobRow, schema: Schema, terms: Sequence[Terms]) -> bool:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        [paid], stored = terms, ProfilePlan.from_json(row.task["work"]["plan"])
        return profile_price.plan(stored.parameters, _facts(paid, schema)) == stored

    def inputs(self, row: JobRow) -> Sequence[str]:
        """See :class:`app.services.jobs.kinds.JobKind`: none."""
        return ()

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The facts that are shown with the released numbers."""
        [part] = row.parts
        return {
            **kinds.facts_of_job(session, row, output="profile"),
            "scope": part.scope,
            "epochs": part.epochs,
        }

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> ReleasedProfile:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        schema = Schema.from_json(task.parts[0].schema)
        try:
            released = Profile.from_json(json.loads(data), schema)
        except (ProfileInvalid, ValueError):
            raise OutputInvalid from None
        body = {**task.metadata, "schema": schema.to_json(), "profile": released.to_json()}
        return ReleasedProfile(body)

    def output(self, fields: dict[str, Any]) -> ReleasedProfile:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        return ReleasedProfile(**fields)


def show_profile(installation: Installation, principal: Principal, profile_id: str) -> ProfileOut:
    """Shows one profile: released numbers, guarantee, receipt."""
    with installation.database.read() as session:
        row = releases.find(session, PROFILE, profile_id)
        grants.require(session, principal, row.dataset_id, TRAIN, kind="profile")
        return _profile_out(session, row)


def list_profiles(installation: Installation, principal: Principal, reference: str, page: PageRequest) -> ProfileList:
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
        features=[FeatureBinsOut(name=name, edges=edges) for name, edges in profile.edges().items()],
        class_counts=[
            ClassCountOut(label=label, count=count, noise_sd=profile.count_noise_sd) for label, count in counts
        ],
        size=NoisyCountOut(count=profile.size_in_rows, noise_sd=profile.size_noise_sd),
        guarantee=guarantees.today(session, row.dataset_id, facts),
        receipt=facts["receipt"],
        event=profile.plan.event.to_json(),
        ledger=facts["ledger"],
    )
