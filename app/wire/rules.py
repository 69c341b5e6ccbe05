"""Defines the types of the rules of a dataset."""

from typing import Annotated

from pydantic import Field

from app.core import limits
from app.wire.base import (
    Answer,
    DecimalText,
    Instant,
    OfDataset,
    PositiveAmount,
    Reference,
    Request,
)


class QuotaIn(Request):
    """A limit, in the account's unit, of what several keys reserve and charge together."""

    keys: Annotated[
        list[Reference], Field(min_length=1, max_length=limits.MAX_QUOTA_KEYS)
    ]
    cap: PositiveAmount


class RulesIn(Request):
    """All rules of a dataset; they replace the earlier rules. Amounts are in the
    account's unit; null: no limit.
    """

    largest_job: PositiveAmount | None
    approval_above: PositiveAmount | None
    quotas: Annotated[list[QuotaIn], Field(max_length=limits.MAX_QUOTAS)]
    frozen: bool
    erase_rows_at: Instant | None


class QuotaOut(Answer):
    keys: list[str]
    cap: DecimalText


class SpentQuota(QuotaOut):
    """A quota and what its keys have reserved or charged of it."""

    spent: DecimalText


class ProposedRules(Answer):
    """Rules that a second owner can put in force by sending them, too."""

    largest_job: DecimalText | None
    approval_above: DecimalText | None
    quotas: list[QuotaOut]
    frozen: bool
    erase_rows_at: str | None


class ProposalOut(Answer):
    """Looser rules that one owner sent, and when."""

    rules: ProposedRules
    by: str
    at: str


class RulesOut(OfDataset):
    """The rules in force, and a proposal that waits for a second owner, if any.

    ``etag`` names both; the spent amounts are no part of it.
    """

    unit: str
    largest_job: DecimalText | None
    approval_above: DecimalText | None
    quotas: list[SpentQuota]
    frozen: bool
    erase_rows_at: str | None
    changed_by: str | None
    changed_at: str | None
    proposal: ProposalOut | None
    etag: str
