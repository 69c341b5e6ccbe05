"""Defines the errors of the installation: what makes it unavailable, and what its operator has to mend."""

from dataclasses import dataclass

from app.core.errors.root import GrovekeeperError


@dataclass(eq=False)
class Unavailable(GrovekeeperError):
    """The service cannot answer at the moment."""

    why: str = "the service is not ready"
    retry_after_s: int = 1

    def __str__(self) -> str:
        return self.why


class BalanceMismatch(Unavailable):
    """An account differs from its entries, so nothing is admitted until the operator acts.

    Attributes:
        account_id: of a dataset or a population, for the operator; no message names it.
        part: the part that differs, as a slug.
    """

    def __init__(self, account_id: str, part: str) -> None:
        super().__init__("the account differs from its entries", retry_after_s=60)
        self.account_id = account_id
        self.part = part


@dataclass(eq=False)
class InstallationError(GrovekeeperError):
    """The operator has to act: a setting is missing, the schema is old, or the address is unsafe."""

    why: str

    def __str__(self) -> str:
        return self.why


class LedgerRewound(InstallationError):
    """The database contradicts a head that was written outside it: an older backup was restored, or it was forged."""

    def __init__(self, account_id: str) -> None:
        super().__init__(
            f"the ledger of {account_id} in the database does not match the head that was written outside it: the "
            "database was restored from an older backup, or was changed. Nothing is served, because spent budget "
            "could be spent again, or a revoked key be used. See the operator's guide, After a refusal"
        )


class HeadNotSigned(LedgerRewound):
    """A head outside the database is forged; or the database is older than the key that signed the head."""

    def __init__(self, file: str) -> None:
        self.why = (
            f"{file} is forged, or signed by another key than the database names. Nothing is served, because the "
            "database may be an older backup. See the operator's guide, After a refusal"
        )
