"""Plans and quotes training (``POST /plans``, ``/train``), and checks the models that
its jobs release.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access import grants
from app.core import stamps
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import ReleaseRow
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.releases.contract import (
    Earlier,
    Named,
    OutputInvalid,
    Planned,
    ReleaseKind,
    ReleaseRequest,
    StoredPlan,
    facts_of_job,
    facts_of_part,
    visible,
)
from app.services.releases.profiles import released_profile
from app.services.spending.asked import AskedDataset, AskedPart, PricedPart, ask_part
from app.services.spending.quotes import PartQuote, expected_accuracy
from app.wire.spending import AccountPlanOut
from app.wire.training import PlanIn, PlanOut, ReusedProfileOut, UnlabelledIn
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests import catalogue
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.privacy import guarantees
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.price import (
    SECOND_PART,
    PlanRequest,
    plan,
    read_plan,
    require_priced,
)
from grovekeeper_forests.releases.names import MODEL, PROFILE
from grovekeeper_forests.releases.profile.read import Profile

PRECISE = 10
"""A noisy size replaces a declared size if it is at least this many standard deviations
of its noise.
"""


@dataclass(frozen=True, kw_only=True)
class PlannedTraining(Planned[PlanOut]):
    """A training with its plan.

    Attributes:
        plan: algorithm, parameters, trees and noise.
        profile: the profile that the request reuses.
        why: the reason of the algorithm, if ``auto`` chose it.
    """

    plan: Plan
    profile: ReusedProfileOut | None
    why: str | None

    def quoted(self, quotes: Sequence[PartQuote]) -> PlanOut:
        """See :class:`Planned`."""
        (labelled, *unlabelled), profile = quotes, self.profile
        warnings = [*self.plan.warnings, *labelled.warnings]
        for quote in unlabelled:
            warnings += [
                sentence for sentence in quote.warnings if sentence not in warnings
            ]
            is_one_dataset = (
                labelled.part.asked.dataset.id == quote.part.asked.dataset.id
            )
            warnings.append(guarantees.of_two_parts(is_one_dataset=is_one_dataset))
        size = labelled.part.asked.public_size if profile is None else profile.size
        return PlanOut(
            **labelled.fields,
            algorithm=self.plan.algorithm,
            why=self.why,
            parameters=catalogue.shown_parameters(
                self.plan, labelled.part.asked.schema.label
            ),
            profile=profile,
            warnings=warnings,
            expected_accuracy=expected_accuracy(
                self.plan.algorithm, self.parts, rows=size
            ),
            unlabelled=AccountPlanOut(**unlabelled[0].fields) if unlabelled else None,
        )


@dataclass(frozen=True, kw_only=True)
class TrainingRequest(ReleaseRequest[PlanOut]):
    """A request to train a forest (``POST /train``), or for its quote (``POST
    /plans``).
    """

    kind = MODEL
    body: PlanIn

    def find(self, session: Session, principal: grants.Principal) -> Named:
        """See :class:`ReleaseRequest`. A profile is public, so a request may reuse that
        of another dataset.
        """
        body = self.body
        datasets = [body.dataset]
        if body.unlabelled is not None:
            datasets.append(body.unlabelled.dataset)
        if body.profile is None:
            return Named(datasets)
        return Named(
            datasets, [Earlier(visible(session, principal, PROFILE, body.profile))]
        )

    def confirm(
        self, session: Session, principal: grants.Principal, named: Named
    ) -> None:
        """See :class:`ReleaseRequest`. A profile is never removed, but a grant may be."""
        for profile in named.releases:
            grants.require(
                session, principal, profile.row.dataset_id, grants.TRAIN, kind="profile"
            )

    def plan(
        self, installation: Installation, named: Named, sources: Sequence[AskedDataset]
    ) -> PlannedTraining:
        """See :class:`ReleaseRequest`. Every account's facts come from ``sources``."""
        body = self.body
        label = sources[0].dataset.read_label(body.label)
        labelled = ask_part(sources[0], body, label=label)
        unlabelled = None
        if body.unlabelled is not None:
            unlabelled = _ask_unlabelled(sources[1], body.unlabelled)
        profile = _reused(named, labelled.schema)
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
        planned = plan(request, labelled.schema)
        parts = [PricedPart(labelled, planned.event)]
        if unlabelled is not None:
            assert planned.unlabelled is not None, (
                "an algorithm that takes one dataset refuses a second"
            )
            _require_fitting(labelled, unlabelled)
            parts.append(PricedPart(unlabelled, planned.unlabelled.event))
        work: dict[str, object] = {"plan": planned.to_json()}
        shown = why = None
        if profile is not None:
            # Beside the plan: a forest without splits carries no profile, but its size
            # may come from one.
            work["profile"] = profile.row.id
            shown = profile.shown(is_used=planned.profile is not None, size=size)
        if body.algorithm == catalogue.AUTO.slug:
            why = catalogue.AUTO.reason(planned.algorithm)
        return PlannedTraining(
            parts=parts,
            work=work,
            algorithm=planned.algorithm,
            n_trees=planned.n_trees,
            plan=planned,
            profile=shown,
            why=why,
        )


def _ask_unlabelled(source: AskedDataset, body: UnlabelledIn) -> AskedPart:
    """The part of the request without labels; a refusal says where it stands."""
    try:
        return ask_part(source, body)
    except InvalidRequest as invalid:
        raise invalid.below(f"/{SECOND_PART}") from None
    except ParameterInvalid as invalid:
        raise invalid.inside(SECOND_PART) from None


def _require_fitting(labelled: AskedPart, part: AskedPart) -> None:
    """Checks that one forest can use the rows of both parts.

    Both parts may read one dataset in disjoint scopes: then each row is charged for one
    part (docs/proofs/sspe-1.md).

    Raises:
        InvalidRequest: the second dataset has other features, or a row can be in both
            parts.
    """
    if not part.dataset.schema.has_features_of(labelled.dataset.schema):
        raise InvalidRequest.at(f"/{SECOND_PART}/dataset", "other-features")
    if part.dataset.id == labelled.dataset.id and labelled.scope.overlaps(part.scope):
        raise InvalidRequest.at(f"/{SECOND_PART}/scope", "not-disjoint")


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

        The profile's noisy size, scaled by the public shares of the two scopes, if no
        size was declared or the noise is small relative to the size; otherwise the
        declared size. The size of another dataset is not used.
        """
        noisy = self.profile.size_in_rows
        declared = part.public_size
        if self.row.dataset_id != part.dataset.id:
            return declared
        if declared is not None and noisy < PRECISE * self.profile.size_noise_sd:
            return declared
        n_epochs = len(part.source.uploads)
        inside, all_cells = part.dataset.partitions.share(part.scope, n_epochs=n_epochs)
        profile_inside, profile_cells = part.dataset.partitions.share(
            self._scope, n_epochs=n_epochs
        )
        return max(
            round(noisy * (inside * profile_cells) / (all_cells * profile_inside)), 1
        )

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


def _reused(named: Named, schema: Schema) -> Reuse | None:
    """The profile that a request names, if any. It must have the features and classes
    of the request.

    Raises:
        InvalidRequest: the profile was released under other features or classes.
    """
    if not named.releases:
        return None
    [earlier] = named.releases
    profile = released_profile(earlier.row)
    if not profile.schema.reads_like(schema):
        raise InvalidRequest.at("/profile", "other-declaration")
    return Reuse(earlier.row, profile)


class TrainKind(ReleaseKind):
    """Jobs that grow a forest and register a model."""

    prefix = stamps.MODEL
    is_file = True

    def is_planned(self, stored: StoredPlan) -> bool:
        """See :class:`ReleaseKind`."""
        planned = read_plan(stored.work["plan"])
        require_priced(planned, stored.schema)
        is_named = (
            planned.profile is None or planned.profile.id == stored.work["profile"]
        )
        paid = [
            planned.terms,
            *([] if planned.unlabelled is None else [planned.unlabelled.terms]),
        ]
        return (
            is_named and stored.algorithm == planned.algorithm and paid == stored.terms
        )

    def planned_bytes(self, work: JsonMapping, schema: Schema) -> int:
        """See :class:`ReleaseKind`."""
        return released_forest.planned_bytes(read_plan(work["plan"]), schema)

    def needs_sums_alone(self, algorithm: str | None) -> bool:
        """See :class:`ReleaseKind`."""
        return algorithm is not None and not catalogue.algorithm(algorithm).reads_values

    def public_facts(self, session: Session, row: JobRow) -> JsonObject:
        """The facts of the model card, bound into the artifact's own bytes."""
        profile = _profile_of_model(session, row)
        part = row.parts[0]
        dataset = catalog.find(session, part.dataset)
        scope = Scope(part.scope)
        facts = {
            **facts_of_job(session, row),
            "profile_id": None if profile is None else profile.id,
            "scope": part.scope,
            "expected_rows": dataset.expected_rows(
                scope, n_epochs=len(catalog.upload_ids(session, dataset.id))
            ),
        }
        if len(row.parts) > 1:
            labelled, unlabelled = row.parts
            is_one_dataset = labelled.dataset == unlabelled.dataset
            facts["unlabelled"] = {
                **facts_of_part(session, row, 1),
                "persons_in_both": guarantees.of_two_parts(
                    is_one_dataset=is_one_dataset
                ),
            }
        return facts

    def body(self, task: JobTask, data: bytes) -> None:
        """See :class:`ReleaseKind`: the artifact is a file."""
        try:
            released_forest.loads(data)
        except released_forest.ArtifactInvalid:
            raise OutputInvalid from None


def _profile_of_model(session: Session, row: JobRow) -> ReleaseRow | None:
    """The profile that the model is a function of, if its request named one.

    A profile of the job's dataset counts even if the plan carries none of its numbers,
    because the number of trees may follow from the profile's size. The size of another
    dataset is not used.
    """
    work = row.task["work"]
    if "profile" not in work:
        return None
    profile = releases.find(session, PROFILE, work["profile"])
    if "profile" in work["plan"] or profile.dataset_id == row.dataset_id:
        return profile
    return None
