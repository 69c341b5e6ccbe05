"""Plans training from public facts, quotes and accepts it (``POST /plans``, ``/train``), and registers the model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import TRAIN, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.core import stamps
from app.core.errors import GrovekeeperError, InvalidRequest
from app.datasets import catalog
from app.forests import catalogue
from app.forests.bins.quantile_bins import ReusedProfile
from app.forests.contract.plan import Plan
from app.forests.data.schema import Schema
from app.jobs.tables import JobRow
from app.privacy import guarantees
from app.privacy.calibration import Terms
from app.privacy.scope import Scope
from app.registry import releases
from app.registry.releases import PROFILE
from app.registry.tables import ReleaseRow
from app.releases.forest import price as forest_price
from app.releases.forest import read as released_forest
from app.releases.forest.price import PlanRequest, plan
from app.releases.profile.read import Profile
from app.services.installation import Installation
from app.services.jobs import kinds
from app.services.jobs.kinds import OutputInvalid
from app.services.jobs.task import JobTask
from app.services.spending.asked import AskedDataset, AskedPart, PricedPart, ask_part, read_asked
from app.services.spending.profiles import released_profile
from app.services.spending.quotes import expected_accuracy, quote_parts
from app.services.spending.spend import Job, Locked, spending
from app.wire.spending import AccountPlanOut, PlanIn, PlanOut, ReusedProfileOut, TrainIn

SECOND_PART = "/unlabelled"
"""The JSON pointer of the second part of a training request."""

PRECISE = 10
"""A noisy size replaces a declared size if it is at least this many standard deviations of its noise."""


def submit_training(
    installation: Installation, caller: Principal, body: TrainIn, *, request: IdempotentRequest
) -> Answer:
    """Accepts a job or refuses it: a refused request stores neither job nor reservation."""
    planned = _planned_before(installation, caller, body)
    with spending(installation, caller, request) as opened:
        locked = opened.authorize(datasets_of(body)).lock()
        if isinstance(locked, Answer):
            return locked
        planned = _confirmed(locked, planned)
        # The profile beside the plan: a forest without splits carries none, but its size may come from a profile.
        profile = {} if planned.profile is None else {"profile": planned.profile.id}
        job = Job(
            kind="train",
            dataset=planned.parts[0].asked.dataset,
            parts=planned.parts,
            work={"plan": planned.plan.to_json(), **profile},
            name=body.name,
            purpose=body.purpose,
            algorithm=planned.plan.algorithm,
            n_trees=planned.plan.n_trees,
        )
        return locked.accept(job)


def _planned_before(
    installation: Installation, caller: Principal, body: TrainIn
) -> "PlannedTraining | GrovekeeperError":
    """Plans before the transaction, or finds why there is no plan; see :meth:`Locked.confirmed`."""
    try:
        with installation.database.read() as session:
            principal, asked = read_asked(installation, session, caller, datasets_of(body), TRAIN)
            return plan_training(session, principal, asked, body)
    except GrovekeeperError as error:
        return error


def _confirmed(locked: Locked, planned: "PlannedTraining | GrovekeeperError") -> "PlannedTraining":
    """The plan under the locks, whose profile the caller may still use."""
    if isinstance(planned, GrovekeeperError):
        raise planned
    parts = locked.confirmed(planned.parts)
    if planned.profile is not None:
        principal = locked.authorized.principal
        grants.require(locked.session, principal, planned.profile.dataset, TRAIN, kind="profile")
    return replace(planned, parts=tuple(parts))


@dataclass(frozen=True)
class PlannedTraining:
    """A training request with its plan and its priced parts, from public facts alone.

    Attributes:
        plan: algorithm, parameters, trees and noise.
        parts: the rows that are read, with their prices: the labelled rows, then the rows without labels, if any.
        profile: the profile that the request reuses.
    """

    plan: Plan
    parts: tuple[PricedPart, ...]
    profile: ReusedProfileOut | None


def show_plan(installation: Installation, principal: Principal, body: PlanIn) -> PlanOut:
    """Quotes a request: its plan, its price on each account, and whether the accounts would admit it now."""
    with installation.database.read() as session:
        principal, asked = read_asked(installation, session, principal, datasets_of(body), TRAIN)
        for each in asked:
            each.dataset.living()
        planned = plan_training(session, principal, asked, body)
        labelled, *unlabelled = quote_parts(session, principal, planned.parts)
    part, profile = planned.parts[0].asked, planned.profile
    size = part.public_size if profile is None else profile.size
    warnings = [*planned.plan.warnings, *labelled.warnings]
    for quote in unlabelled:
        warnings += [sentence for sentence in quote.warnings if sentence not in warnings]
        is_one_dataset = labelled.part.asked.dataset.id == quote.part.asked.dataset.id
        warnings.append(guarantees.of_two_parts(is_one_dataset=is_one_dataset))
    return PlanOut(
        **labelled.fields,
        algorithm=planned.plan.algorithm,
        why=catalogue.AUTO.reason(planned.plan.algorithm) if body.algorithm == catalogue.AUTO.slug else None,
        parameters=dict(planned.plan.parameters),
        profile=planned.profile,
        warnings=warnings,
        expected_accuracy=expected_accuracy(planned.plan.algorithm, planned.parts, rows=size),
        unlabelled=AccountPlanOut(**unlabelled[0].fields) if unlabelled else None,
    )


def datasets_of(body: PlanIn) -> list[str]:
    """Ids or names of the datasets of a request, in the order of its parts."""
    return [body.dataset] if body.unlabelled is None else [body.dataset, body.unlabelled.dataset]


def plan_training(
    session: Session, principal: Principal, sources: Sequence[AskedDataset], body: PlanIn
) -> PlannedTraining:
    """Plans the job and prices its parts. Every account's facts come from ``sources``."""
    labelled, unlabelled = ask_part(sources[0], body), None
    if body.unlabelled is not None:
        try:
            unlabelled = ask_part(sources[1], body.unlabelled)
        except InvalidRequest as invalid:
            raise invalid.below(SECOND_PART) from None
    profile = reuse(session, principal, labelled.dataset, body.profile)
    size = labelled.public_size if profile is None else profile.size(labelled)
    request = PlanRequest(
        algorithm=body.algorithm,
        parameters=body.parameters,
        terms=labelled.terms,
        public_size=size,
        profile=None if profile is None else profile.numbers,
        unlabelled=None if unlabelled is None else unlabelled.terms,
        unlabelled_size=None if unlabelled is None else unlabelled.public_size,
    )
    planned = plan(request, labelled.dataset.schema)
    parts = [PricedPart(labelled, planned.event)]
    if unlabelled is not None:
        assert planned.unlabelled is not None, "an algorithm that takes one dataset refuses a second"
        _require_fitting(labelled, unlabelled)
        parts.append(PricedPart(unlabelled, planned.unlabelled.event))
    reused = None if profile is None else profile.shown(is_used=planned.profile is not None, size=size)
    return PlannedTraining(planned, tuple(parts), reused)


def _require_fitting(labelled: AskedPart, part: AskedPart) -> None:
    """Checks that one forest can use the rows of both parts.

    Both parts may read one dataset in disjoint scopes: then each row is charged for one part (docs/proofs/sspe-1.md).

    Raises:
        InvalidRequest: the second dataset has other features, or a row can be in both parts.
    """
    if not part.dataset.schema.has_features_of(labelled.dataset.schema):
        raise InvalidRequest.at(f"{SECOND_PART}/dataset", "other-features")
    if part.dataset.id == labelled.dataset.id and labelled.scope.overlaps(part.scope):
        raise InvalidRequest.at(f"{SECOND_PART}/scope", "not-disjoint")


@dataclass(frozen=True)
class Reuse:
    """A released profile that a request names."""

    row: ReleaseRow
    profile: Profile

    @property
    def numbers(self) -> ReusedProfile:
        """The numbers that the plan carries."""
        return self.profile.reused(self.row.id)

    def size(self, part: AskedPart) -> int | None:
        """The number of rows in the request's scope that planning assumes.

        The profile's noisy size, scaled by the public shares of the two scopes, if no size was declared or the noise is
        small relative to the size; otherwise the declared size. The size of another dataset is not used.
        """
        noisy, declared = self.profile.size_in_rows, part.public_size
        if self.row.dataset_id != part.dataset.id:
            return declared
        if declared is not None and noisy < PRECISE * self.profile.size_noise_sd:
            return declared
        n_epochs = len(part.source.uploads)
        inside, all_cells = part.dataset.partitions.share(part.scope, n_epochs=n_epochs)
        profile_inside, profile_cells = part.dataset.partitions.share(self._scope, n_epochs=n_epochs)
        return max(round(noisy * (inside * profile_cells) / (all_cells * profile_inside)), 1)

    def shown(self, *, is_used: bool, size: int | None) -> ReusedProfileOut:
        """The profile as a quote shows it."""
        return ReusedProfileOut(
            id=self.row.id,
            dataset=self.row.dataset_id,
            dataset_name=self.row.dataset_name,
            scope=self.row.facts["scope"],
            epochs=self.row.facts["epochs"],
            is_used=is_used,
            size=size,
        )

    @property
    def _scope(self) -> Scope:
        return Scope(self.row.facts["scope"])


def reuse(session: Session, principal: Principal, dataset: catalog.Dataset, profile_id: str | None) -> Reuse | None:
    """Finds the profile that a request names, if any.

    A profile is public, so a request may reuse the profile of another dataset. Both datasets must declare equal
    features and classes.

    Raises:
        InvalidRequest: the profile was released under other features or classes.
    """
    if profile_id is None:
        return None
    row = releases.find(session, PROFILE, profile_id)
    grants.require(session, principal, row.dataset_id, TRAIN, kind="profile")
    profile = released_profile(row)
    if not profile.schema.reads_like(dataset.schema):
        raise InvalidRequest.at("/profile", "other-declaration")
    return Reuse(row, profile)


@dataclass(frozen=True)
class StoredArtifact:
    """A stored artifact before its model is registered. Its bytes hold the job's id, so no two jobs share it."""

    digest: str
    size_bytes: int

    def register(self, session: Session, row: JobRow) -> None:
        """See :class:`app.services.jobs.kinds.JobOutput`."""
        model = ReleaseRow(
            **kinds.identity_of_output(row, prefix=stamps.MODEL),
            algorithm=row.algorithm,
            digest=self.digest,
            size_bytes=self.size_bytes,
        )
        releases.add(session, model)
        row.release_id = model.id

    def discard(self, installation: Installation) -> None:
        """See :class:`app.services.jobs.kinds.JobOutput`."""
        installation.store.remove(self.digest)


class TrainKind:
    """Jobs that grow a forest and register a model."""

    def is_planned(self, session: Session, row: JobRow, schema: Schema, terms: Sequence[Terms]) -> bool:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        work = row.task["work"]
        planned = forest_price.read_plan(work["plan"])
        forest_price.require_priced(planned, schema)
        is_named = planned.profile is None or planned.profile.id == work["profile"]
        paid = [planned.terms, *([] if planned.unlabelled is None else [planned.unlabelled.terms])]
        return is_named and row.algorithm == planned.algorithm and paid == terms

    def inputs(self, row: JobRow) -> Sequence[str]:
        """See :class:`app.services.jobs.kinds.JobKind`: none."""
        return ()

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The facts of the model card, bound into the artifact's own bytes."""
        profile, part = _profile_of_model(session, row), row.parts[0]
        dataset, scope = catalog.find(session, part.dataset), Scope(part.scope)
        facts = {
            **kinds.facts_of_job(session, row, output="model"),
            "profile_id": None if profile is None else profile.id,
            "scope": part.scope,
            "expected_rows": dataset.expected_rows(scope, n_epochs=len(catalog.upload_ids(session, dataset.id))),
        }
        if len(row.parts) > 1:
            labelled, unlabelled = row.parts
            is_one_dataset = labelled.dataset == unlabelled.dataset
            facts["unlabelled"] = {
                **kinds.facts_of_part(session, row, 1, output="model"),
                "persons_in_both": guarantees.of_two_parts(is_one_dataset=is_one_dataset),
            }
        return facts

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> StoredArtifact:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        try:
            released_forest.loads(data)
        except released_forest.ArtifactInvalid:
            raise OutputInvalid from None
        return StoredArtifact(installation.store.put(data), len(data))

    def output(self, fields: dict[str, Any]) -> StoredArtifact:
        """See :class:`app.services.jobs.kinds.JobKind`."""
        return StoredArtifact(**fields)


def _profile_of_model(session: Session, row: JobRow) -> ReleaseRow | None:
    """The profile that the model is a function of, if its request named one.

    A profile of the job's dataset counts even if the plan carries none of its numbers, because the number of trees may
    follow from the profile's size. The size of another dataset is not used.
    """
    work = row.task["work"]
    if "profile" not in work:
        return None
    profile = releases.find(session, PROFILE, work["profile"])
    return profile if "profile" in work["plan"] or profile.dataset_id == row.dataset_id else None
