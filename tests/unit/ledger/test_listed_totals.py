"""Totals as lists equal the totals of the entries in any order, and nothing else does."""

import pytest

from app.ledger.listed_totals import NO_SCOPE, Digests, ListedTotals

TOTALS = {"a": (1, 2), "b": (3, 2**62)}


@pytest.mark.parametrize(
    ("digests", "charged", "reserved"), [("a,b", "1,3", f"2,{2**62}"), ("b,a", "3,1", f"{2**62},2")]
)
def test_equal_totals_in_any_order(digests: str, charged: str, reserved: str) -> None:
    listed = ListedTotals.of([digests, charged, reserved])
    assert listed.equal(TOTALS)
    assert listed.by_digest() == TOTALS


@pytest.mark.parametrize(
    ("digests", "charged", "reserved"),
    [
        ("a,b", "1,3", f"2,{2**62 + 1}"),
        ("a,b", "3,1", f"{2**62},2"),
        ("a,c", "1,3", f"2,{2**62}"),
        ("a", "1", "2"),
        ("a,b,c", "1,3,0", f"2,{2**62},0"),
        ("a,b", "1,3,5", f"2,{2**62}"),
        ("a,a", "1,1", "2,2"),
        ("a,b", "1,x", f"2,{2**62}"),
        ("a,b", None, f"2,{2**62}"),
        ("", "1", "2"),
        NO_SCOPE,
    ],
)
def test_other_totals(digests: str | None, charged: str | None, reserved: str | None) -> None:
    assert not ListedTotals.of([digests, charged, reserved]).equal(TOTALS)


def test_an_account_without_scopes() -> None:
    assert ListedTotals.of(NO_SCOPE).equal({})
    assert not ListedTotals.of(NO_SCOPE).equal({"": (0, 0)})


def test_an_earlier_reading_serves_for_the_same_text_only() -> None:
    known = Digests.of("a,b")
    assert ListedTotals.of(["a,b", "1,2", "0,0"], known=known).digests is known
    assert ListedTotals.of(["a,c", "1,2", "0,0"], known=known).digests.listed == ["a", "c"]
