"""Plans and quotes profiles (``POST /datasets/{id}/profiles``), checks the released
ones, and shows them.

Profiles stay when the rows are erased.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access.grants import Principal
from app.core import stamps
from app.registry.tables import ReleaseRow
from app.services import guarantees
from app.services.installation import Installation
from app.services.pagination import PageRequest
from app.services.releases.contract import (
    Named,
    Planned,
    ReleaseRequest,
    StoredPlan,
    visible,
)
from app.services.releases.numbers import NumbersKind, details, head, page_of_kinds
from app.services.releases.statistics import table_quotes, tables_out
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
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.names import PROFILE
from grovekeeper_forests.releases.profile import price
from grovekeeper_forests.releases.profile.read import Profile


@dataclass(frozen=True, kw_only=True)
class PlannedProfile(Planned[ProfileQuoteOut]):
    """A profile with its plan."""

    plan: price.ProfilePlan

    def quoted(self, quotes: Sequence[PartQuote]) -> ProfileQuoteOut:
        """See :class:`Planned`."""
        [quote] = quotes
        schema = quote.part.asked.schema
        private = [
            schema.features[index].name
            for index in quantile_bins.private_features(schema)
        ]
        parameters = dict(self.plan.parameters)
        of_label = self.plan.label_plan(schema)
        tables = []
        if of_label is not None:
            tables = table_quotes(of_label, quote.part.asked.public_size)
        return ProfileQuoteOut(
            **quote.fields,
            parameters=parameters,
            private_features=private,
            tables=tables,
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
        [source] = sources
        label = source.dataset.read_label(self.body.label)
        asked = ask_part(source, self.body, label=label)
        facts = public_facts(asked.terms, asked.public_size, asked.schema)
        plan = price.plan(self.body.parameters, facts)
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


class ProfileKind(NumbersKind):
    """Jobs that release a profile: bins, class counts or the numbers of a label, and a
    size.
    """

    kind = PROFILE
    prefix = stamps.PROFILE

    def is_planned(self, stored: StoredPlan) -> bool:
        """See :class:`ReleaseKind`."""
        [paid], plan = stored.terms, price.ProfilePlan.from_json(stored.work["plan"])
        # The size decides about the grid alone, which the event names.
        size = quantile_bins.SIZES[quantile_bins.grid_of(plan.event)]
        facts = public_facts(paid, size, stored.schema)
        return price.plan(plan.parameters, facts) == plan

    def read(self, value: object, schema: Schema) -> Profile:
        """See :class:`NumbersKind`."""
        return Profile.from_json(value, schema)


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
        shown, following = page_of_kinds(session, principal, [PROFILE], reference, page)
        return ProfileList(
            profiles=[ProfileSummary(**head(row)) for row in shown], next=following
        )


def _profile_out(session: Session, row: ReleaseRow) -> ProfileOut:
    profile = released_profile(row)
    counts = zip(profile.schema.label.classes, profile.counts_in_rows, strict=True)
    numbers = profile.numbers
    return ProfileOut(
        **details(row),
        label=row.facts.get("label"),
        parameters=dict(profile.plan.parameters),
        features=[
            FeatureBinsOut(name=name, edges=edges)
            for name, edges in profile.edges().items()
        ],
        class_counts=[
            ClassCountOut(label=label, count=count, noise_sd=profile.count_noise_sd)
            for label, count in counts
        ],
        tables=[] if numbers is None else tables_out(numbers),
        size=NoisyCountOut(count=profile.size_in_rows, noise_sd=profile.size_noise_sd),
        guarantee=guarantees.today(session, row.dataset_id, row.facts),
        event=profile.plan.event.to_json(),
    )
