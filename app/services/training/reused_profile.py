"""Finds the released profile that a training request reuses, and derives the number of rows in its scope."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import TRAIN, Principal
from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.profile.read import Profile
from app.privacy.composition import Scope
from app.registry import profiles
from app.registry.tables import ProfileRow
from app.services.profiles.show_profiles import released
from app.services.spending.price import RequestedPart
from app.wire.training import ReusedProfileOut

PRECISE = 10
"""A noisy size replaces a declared size if it is at least this many standard deviations of its noise."""


@dataclass(frozen=True)
class Reuse:
    """A released profile that a request names."""

    row: ProfileRow
    profile: Profile

    @property
    def numbers(self) -> ReusedProfile:
        """The numbers that the plan carries."""
        return self.profile.reused(self.row.id)

    def size(self, part: RequestedPart, *, n_epochs: int) -> int | None:
        """The number of rows in the request's scope that planning assumes.

        The profile's noisy size, scaled by the public shares of the two scopes, if no size was declared or the noise is
        small relative to the size; otherwise the declared size. The size of another dataset is not used.
        """
        noisy, declared = self.profile.size_in_rows, part.public_size
        if self.row.dataset_id != part.dataset.id:
            return declared
        if declared is not None and noisy < PRECISE * self.profile.size_noise_sd:
            return declared
        inside, all_cells = part.dataset.partitions.share(part.scope, n_epochs=n_epochs)
        profile_inside, profile_cells = part.dataset.partitions.share(self._scope, n_epochs=n_epochs)
        return max(round(noisy * (inside * profile_cells) / (all_cells * profile_inside)), 1)

    def shown(self, *, is_used: bool, size: int | None) -> ReusedProfileOut:
        """The profile as a quote shows it."""
        return ReusedProfileOut(
            id=self.row.id,
            dataset=self.row.dataset_id,
            dataset_name=self.row.dataset_name,
            scope=self.row.body["scope"],
            epochs=self.row.body["epochs"],
            is_used=is_used,
            size=size,
        )

    @property
    def _scope(self) -> Scope:
        return {name: tuple(cells) for name, cells in self.row.body["scope"].items()}


def reuse(session: Session, principal: Principal, dataset: catalog.Dataset, profile_id: str | None) -> Reuse | None:
    """Finds the profile that a request names, if any.

    A profile is public, so a request may reuse the profile of another dataset. Both datasets must declare equal
    features and classes.

    Raises:
        NotFound: no such profile, or it is not visible to this key.
        RoleMissing: the key's role on the profile's dataset does not allow this.
        InvalidRequest: the profile was released under other features or classes.
    """
    if profile_id is None:
        return None
    row = profiles.find(session, profile_id)
    grants.require(session, principal, row.dataset_id, TRAIN, kind="profile")
    profile = released(row)
    if not profile.schema.reads_like(dataset.schema):
        raise InvalidRequest.at("/profile", "other-declaration")
    return Reuse(row, profile)
