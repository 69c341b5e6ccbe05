"""Writes amounts, cells and times as words for people. What is spent rounds up, what is left rounds down."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import groupby
from typing import Any

from app.wire.datasets import DatasetOut

SYMBOLS: Mapping[str, str] = {"epsilon": "ε", "rho": "ρ", "mu_squared": "μ²", "delta": "δ"}
_DIGITS = 4


def spent(amount: str) -> str:
    """An amount that was spent, with at most four significant digits, rounded up."""
    return _rounded(amount, ROUND_CEILING)


def left(amount: str) -> str:
    """An amount that is left, with at most four significant digits, rounded down."""
    return _rounded(amount, ROUND_FLOOR)


def cell(scope: Mapping[str, Any]) -> str:
    """A cell or a scope in words: ``region=EU, shard=3``; the whole dataset if it names no partition."""
    parts = [f"{name}={', '.join(_runs(_listed(cells)))}" for name, cells in scope.items()]
    return "; ".join(parts) or "the whole dataset"


def unit_of(dataset: DatasetOut) -> str:
    """What the guarantee of a dataset protects, in one word."""
    return "row" if dataset.privacy_unit["column"] is None else "person"


def who(key_id: str, name: str | None) -> str:
    """A key by its name, where the reader may know it, and its id."""
    return key_id if name is None else f"{name} ({key_id})"


def entry(fields: Mapping[str, Any], symbol: str) -> str:
    """What an entry of a ledger says, as a sentence."""
    details = fields.get("details") or {}
    words = {
        "amount": f"{fields['amount']} {symbol}",
        "purpose": f"job {fields['job_id']}" if "attested_by" not in details else f"a mechanism outside the service, "
        f"attested by {details['attested_by']}: {details['description']}",
        "reason": details.get("reason"),
        "member": details.get("member", {}).get("dataset"),
        "erased": details.get("continues", {}).get("dataset"),
    }  # fmt: skip
    return _ENTRIES["opening-load" if "continues" in details else fields["kind"]].format(**words)


_ENTRIES: Mapping[str, str] = {
    "open": "The account was opened with a cap of {amount}.",
    "opening-load": "The account goes on from that of the erased dataset {erased}, which had spent {amount}: the most "
    "that one person can have lost there.",
    "reserve": "{amount} was reserved for {purpose}.",
    "charge": "{amount} was charged for {purpose}. A charge is final.",
    "void": "The reservation of {amount} for {purpose} was given back, because the job did not read a row.",
    "expire": "The reservation of {amount} for {purpose} was given back, because the job did not start in time.",
    "cap": "The cap was changed to {amount}. Reason: {reason}",
    "join": "The dataset {member} became a member. Its load was {amount}: the most that one person can lose there.",
    "load": "From here on, the load of the member {member} is {amount}: the most that one person can lose there.",
    "state": "The state of the account was stated, so that a process that starts need not read the entries before.",
}
"""Sentences by kind of an entry; an opening load is an entry of the kind ``load``."""


def sentence(detail: str) -> str:
    """The detail of a problem as a sentence."""
    return f"{detail[:1].upper()}{detail[1:]}{'' if detail.endswith('.') else '.'}"


def field_problem(problem: str, accepted: Sequence[str] | None = None) -> str:
    """A problem of a field as a sentence."""
    if problem in _FIELD_PROBLEMS:
        return _FIELD_PROBLEMS[problem]
    words = f"{problem.replace('-', ' ').capitalize()}."
    return f"{words} Accepted: {', '.join(accepted[:12])}." if accepted else words


_FIELD_PROBLEMS: Mapping[str, str] = {
    "required": "Needed.",
    "missing": "Needed.",
    "empty": "Must not be empty.",
    "too-few": "Needs more values.",
    "above-upper": "Larger than the upper bound.",
    "not-distinct": "Occurs twice.",
    "not-an-amount": "Not a decimal number, such as 0.5 or 1e-6.",
    "not-a-number": "Not a number.",
    "not-an-integer": "Not a whole number.",
    "needs-a-unit-column": "More than one row needs a column that names the person.",
    "malformed": "Only letters, digits, dots, hyphens and underscores.",
    "delta-required": "This kind of account needs a δ.",
}
"""Sentences for problems of fields that their slugs do not explain."""


def minute(time: str) -> str:
    """A time to the minute, in UTC."""
    return f"{time[:10]} {time[11:16]}"


def _listed(cells: Any) -> list[Any]:
    return cells if isinstance(cells, list) else [cells]


def _runs(cells: list[Any]) -> list[str]:
    """Cells as texts; three or more consecutive numbers as ``0–7``."""
    texts: list[str] = []
    for _, grouped in groupby(
        enumerate(cells), key=lambda item: item[1] - item[0] if isinstance(item[1], int) else item
    ):
        run = [str(cell) for _, cell in grouped]
        texts += run if len(run) < 3 else [f"{run[0]}–{run[-1]}"]
    return texts


def _rounded(amount: str, rounding: str) -> str:
    exact = Decimal(amount)
    if not exact:
        return "0"
    place = Decimal(1).scaleb(min(exact.adjusted() - _DIGITS + 1, 0))
    shown = exact.quantize(place, rounding=rounding)
    return f"{shown.normalize():f}"
