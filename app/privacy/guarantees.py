"""The sentences and numbers that the service may print as a guarantee. Nothing else may be claimed."""

from fractions import Fraction
from typing import Literal, TypeAlias

from app.core import amounts
from app.privacy.accountants import pure
from app.privacy.adjacency import Adjacency

Subject: TypeAlias = Literal["model", "ledger"]

_SUBJECTS: dict[Subject, str] = {
    "model": "this model has",
    "ledger": "all outputs released under this ledger together have",
}
_ASSUMES = (
    "It assumes the declared public schema and size, that the exact number of rows is not published, and that running "
    "times are not observed."
)


def guarantee(
    *, epsilon: Fraction, subject: Subject, unit_column: str | None = None, max_rows: int = 1
) -> dict[str, object]:
    """The printed guarantee of a pure account, or of one model's charge to it.

    Valid for the realised sum at any time, and for the cap (Theorem L (a), docs/proofs/lemmas.md). Never printed at
    less than twice ε for replace-one: a replacement is a removal and an addition.

    Args:
        epsilon: exact; what the account was charged, or its cap. The loss of one whole unit, not of one of its rows.
        subject: what the number covers.
        unit_column: public column whose values name the protected units; ``None``: the unit is a row.
        max_rows: rows of one unit that were admitted at most.

    Returns:
        ``{"add_remove": {"epsilon", "delta"}, "replace_one": {"epsilon", "delta"}, "text"}``, amounts as exact
        decimal text.
    """
    assert epsilon >= 0
    assert max_rows >= 1
    single, replaced = amounts.to_text(epsilon), amounts.to_text(pure.replace_one(epsilon))
    text = (
        f"For any two datasets that differ in {_unit(unit_column, max_rows)} (one has it, the other does not) and "
        f"carry the same declaration, {_SUBJECTS[subject]} a privacy loss of at most ε = {single}, with δ = 0. Where "
        f"one is replaced by another, at most {replaced}. {_ASSUMES}{_SEVERAL_ROWS if unit_column is None else ''}"
    )
    return {
        Adjacency.ADD_REMOVE_ONE.value: {"epsilon": single, "delta": "0"},
        Adjacency.REPLACE_ONE.value: {"epsilon": replaced, "delta": "0"},
        "text": text,
    }


_SEVERAL_ROWS = " A person with several rows is protected at the sum over those rows."


def _unit(unit_column: str | None, max_rows: int) -> str:
    if unit_column is None:
        return "one row"
    rows = "its one row" if max_rows == 1 else f"all of its at most {max_rows} rows"
    return f"one value of the column {unit_column!r} with {rows}"
