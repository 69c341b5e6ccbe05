"""Serves ``/profiles``: lists and shows released profiles of datasets, which stay when the rows are erased."""

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import TRAIN, Principal
from app.core import stamps
from app.registry import releases
from app.registry.tables import ProfileRow
from app.services import guarantees
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.pages import PageRequest, page_of
from app.services.spending.profiles import released
from app.wire.spending import (
    ClassCountOut,
    FeatureBinsOut,
    NoisyCountOut,
    PriceOut,
    ProfileList,
    ProfileOut,
    ProfileSummary,
)


def show_profile(installation: Installation, principal: Principal, profile_id: str) -> ProfileOut:
    """Shows one profile: released numbers, guarantee, receipt.

    Raises:
        NotFound: no such profile, or it is not visible to this key.
        RoleMissing: the key's role on its dataset does not allow this.
    """
    with installation.database.read() as session:
        row = releases.find_profile(session, profile_id)
        grants.require(session, principal, row.dataset_id, TRAIN, kind="profile")
        return _profile_out(session, row)


def list_profiles(installation: Installation, principal: Principal, reference: str, page: PageRequest) -> ProfileList:
    """Lists the profiles of one dataset, newest first.

    Raises:
        NotFound: no such dataset, or it is not visible to this key.
        RoleMissing: the key may not train on it.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, TRAIN)
        shown, following = page_of(
            page,
            lambda limit: releases.page_of_profiles(session, dataset_id=dataset.id, before=page.cursor, limit=limit),
            lambda row: row.id,
        )
        return ProfileList(profiles=[_summary(row) for row in shown], next=following)


def _summary(row: ProfileRow) -> ProfileSummary:
    return ProfileSummary(
        id=row.id,
        name=row.name,
        dataset=row.dataset_id,
        dataset_name=row.dataset_name,
        scope=row.body["scope"],
        epochs=row.body["epochs"],
        price=PriceOut.model_validate(row.body["price"]),
        created_at=stamps.to_text(row.created_at),
    )


def _profile_out(session: Session, row: ProfileRow) -> ProfileOut:
    profile, facts = released(row), row.body
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
