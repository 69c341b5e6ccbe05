"""Defines the profile kind of job: public facts, check and registration of a profile."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.core import stamps
from app.forests.data.schema import Schema
from app.forests.profile.price import ProfileInvalid
from app.forests.profile.read import Profile
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import ProfileRow
from app.services.installation import Installation
from app.services.jobs import output_facts
from app.services.jobs.kind import OutputInvalid
from app.services.jobs.task import JobTask


@dataclass(frozen=True)
class ReleasedProfile:
    """A profile before its registration. A profile has no file, so a lost job leaves nothing to remove."""

    job_id: str
    body: dict[str, Any]

    def register(self, session: Session, row: JobRow) -> None:
        """See :class:`app.services.jobs.kind.Output`."""
        released = ProfileRow(**output_facts.identity(row, prefix=stamps.PROFILE), body=self.body)
        releases.add_profile(session, released)
        row.profile_id = released.id

    def is_registered(self, session: Session) -> bool:
        """See :class:`app.services.jobs.kind.Output`."""
        return releases.profile_of_job(session, self.job_id) is not None

    def discard(self, installation: Installation) -> None:
        """See :class:`app.services.jobs.kind.Output`: a profile has no file to remove."""


class ProfileKind:
    """Jobs that release a profile: bins, class counts and a size."""

    def inputs(self, row: JobRow) -> Sequence[str]:
        """See :class:`app.services.jobs.kind.JobKind`: none."""
        return ()

    def public_facts(self, session: Session, row: JobRow) -> dict[str, Any]:
        """The facts that are shown with the released numbers."""
        [part] = row.parts
        return {
            **output_facts.of_job(session, row, output="profile"),
            "scope": part.scope,
            "epochs": part.epochs,
        }

    def keep(self, installation: Installation, task: JobTask, data: bytes) -> ReleasedProfile:
        """See :class:`app.services.jobs.kind.JobKind`."""
        schema = Schema.from_json(task.parts[0].schema)
        try:
            released = Profile.from_json(json.loads(data), schema)
        except (ProfileInvalid, ValueError):
            raise OutputInvalid from None
        body = {**task.metadata, "schema": schema.to_json(), "profile": released.to_json()}
        return ReleasedProfile(task.job_id, body)
