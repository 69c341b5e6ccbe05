"""Defines roles and the complete access policy, as sets of roles.

Globally a key may have the roles ``admin`` (every call on every dataset), ``owner`` (may declare datasets) and
``auditor`` (reads every ledger). On a dataset a key is granted one of ``owner``, ``attester``, ``analyst``,
``predictor`` and ``auditor``; owner includes attester, attester includes analyst, and analyst includes predictor. An
attester may charge the account for external mechanisms, whose privacy loss it states.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from app.core.errors import RoleMissing


class Role(StrEnum):
    """A role of a key, globally or on one dataset."""

    ADMIN = "admin"
    OWNER = "owner"
    ATTESTER = "attester"
    ANALYST = "analyst"
    PREDICTOR = "predictor"
    AUDITOR = "auditor"


INCLUDED: dict[Role, frozenset[Role]] = {
    Role.ADMIN: frozenset(Role),
    Role.OWNER: frozenset({Role.OWNER, Role.ATTESTER, Role.ANALYST, Role.PREDICTOR}),
    Role.ATTESTER: frozenset({Role.ATTESTER, Role.ANALYST, Role.PREDICTOR}),
    Role.ANALYST: frozenset({Role.ANALYST, Role.PREDICTOR}),
    Role.PREDICTOR: frozenset({Role.PREDICTOR}),
    Role.AUDITOR: frozenset({Role.AUDITOR}),
}
"""All roles that a key has on a dataset where it was granted a role."""

SEE_DATASET = frozenset({Role.OWNER, Role.ANALYST, Role.PREDICTOR, Role.AUDITOR})
MANAGE_DATASET = frozenset({Role.OWNER})
TRAIN = frozenset({Role.ANALYST})
SEE_JOB = frozenset({Role.ANALYST, Role.AUDITOR})
ATTEST = frozenset({Role.ATTESTER})
SEE_MODEL = frozenset({Role.ANALYST, Role.PREDICTOR})
TAKE_MODEL = frozenset({Role.ANALYST})
NAME_MODEL = frozenset({Role.ANALYST})
PREDICT = frozenset({Role.PREDICTOR})
SEE_BALANCE = frozenset({Role.AUDITOR, Role.OWNER, Role.ANALYST})
SEE_RESERVATIONS = frozenset({Role.AUDITOR, Role.OWNER, Role.ATTESTER})
SEE_GRANTS = frozenset({Role.AUDITOR, Role.OWNER})
SEE_LEDGER = frozenset({Role.AUDITOR, Role.OWNER})


@dataclass(frozen=True)
class Principal:
    """An authenticated caller, with its global roles.

    Attributes:
        rotated_at: when the secret that the caller sent replaced another secret, if ever. A later rotation ends the
            authority of the caller, and not of the key.
        token_expires_at: when the token that the caller sent ends, if the caller sent a token.
        expires_at: when the key ends, if ever, by the clock of the database.
        sign_outs: how often the sessions of the key in the dashboard were ended.
        name: of the key, for the person who uses it.
    """

    key_id: str
    roles: frozenset[Role] = field(default_factory=frozenset)
    rotated_at: datetime | None = None
    token_expires_at: datetime | None = None
    expires_at: datetime | None = None
    sign_outs: int = field(default=0, compare=False)
    name: str = field(default="", compare=False)

    @property
    def is_admin(self) -> bool:
        return Role.ADMIN in self.roles

    def require(self, *needed: Role) -> None:
        """Checks that the key has one of several global roles, or ``admin``.

        Raises:
            RoleMissing: the key has neither ``admin`` nor one of ``needed``.
        """
        if not self.is_admin and self.roles.isdisjoint(needed):
            raise RoleMissing([role.value for role in needed] or [Role.ADMIN.value], is_global=True)

    def acts_as(self, granted: Role | None) -> frozenset[Role]:
        """All roles of the principal on a dataset where it was granted ``granted``; empty if the dataset is hidden."""
        roles: frozenset[Role] = frozenset()
        if self.is_admin:
            roles |= INCLUDED[Role.ADMIN]
        if Role.AUDITOR in self.roles:
            roles |= INCLUDED[Role.AUDITOR]
        if granted is not None:
            roles |= INCLUDED[granted]
        return roles
