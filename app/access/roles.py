"""Who may do what: the whole policy, as one table of plain sets.

A key may hold ``admin`` (every call on every dataset), ``owner`` (may declare datasets) and ``auditor`` (reads every
ledger) globally. On a dataset a key is granted one of ``owner``, ``attester``, ``analyst``, ``predictor``, ``auditor``;
owner includes attester, attester analyst, and analyst predictor. An attester may charge the account for mechanisms that
run elsewhere, on its word about what they lose.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from app.core.errors import RoleMissing


class Role(StrEnum):
    """A right, held globally or on one dataset."""

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
"""What a grant on a dataset lets its key act as."""

SEE_DATASET = frozenset({Role.OWNER, Role.ANALYST, Role.PREDICTOR, Role.AUDITOR})
MANAGE_DATASET = frozenset({Role.OWNER})
TRAIN = frozenset({Role.ANALYST})
ATTEST = frozenset({Role.ATTESTER})
SEE_MODEL = frozenset({Role.ANALYST, Role.PREDICTOR})
TAKE_MODEL = frozenset({Role.ANALYST})
PREDICT = frozenset({Role.PREDICTOR})
SEE_BALANCE = frozenset({Role.AUDITOR, Role.OWNER, Role.ANALYST})
SEE_RESERVATIONS = frozenset({Role.AUDITOR, Role.OWNER, Role.ATTESTER})
SEE_LEDGER = frozenset({Role.AUDITOR, Role.OWNER})


@dataclass(frozen=True)
class Principal:
    """A caller that proved its key."""

    key_id: str
    roles: frozenset[Role] = field(default_factory=frozenset)

    @property
    def is_admin(self) -> bool:
        return Role.ADMIN in self.roles

    def require(self, *needed: Role) -> None:
        """Checks a global role.

        Raises:
            RoleMissing: the key holds neither ``admin`` nor one of ``needed``.
        """
        if not self.is_admin and self.roles.isdisjoint(needed):
            raise RoleMissing([role.value for role in needed] or [Role.ADMIN.value])

    def acts_as(self, granted: Role | None) -> frozenset[Role]:
        """All the roles that the principal has on a dataset where it was granted ``granted``; empty = sees nothing."""
        held: frozenset[Role] = frozenset()
        if self.is_admin:
            held |= INCLUDED[Role.ADMIN]
        if Role.AUDITOR in self.roles:
            held |= INCLUDED[Role.AUDITOR]
        if granted is not None:
            held |= INCLUDED[granted]
        return held
