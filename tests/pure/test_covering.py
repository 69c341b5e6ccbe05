"""A matrix runs with every value of its arguments each time, and with every case in one
slice.
"""

import itertools

import pytest

from tests.support.covering import covering, left_out

CASES = {
    f"test[{name}-{account}]": [("name", name), ("account", account)]
    for name, account in itertools.product("abcd", ("pure", "zcdp"))
}


def test_every_value_occurs_in_few_cases_and_in_turn() -> None:
    cases = list(CASES.values())
    taken = [cases[position] for position in covering(cases)]
    assert {name for (_, name), _ in taken} == set("abcd")
    accounts = sorted(account for _, (_, account) in taken)
    assert accounts == ["pure", "pure", "zcdp", "zcdp"]


def test_a_value_of_one_case_is_taken() -> None:
    cases = [[("a", "1"), ("b", "1")], [("a", "1"), ("b", "1")], [("a", "2")]]
    assert covering(cases) == {0, 2}


def test_each_other_case_is_in_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SLICE", raising=False)
    others = left_out(CASES)
    assert len(others) == 4
    slices = []
    for number in range(3):
        monkeypatch.setenv("TEST_SLICE", f"{number}/3")
        slices.append(others - left_out(CASES))
    assert set.union(*slices) == others
    assert sum(map(len, slices)) == len(others)


@pytest.mark.covering("name", "account")
@pytest.mark.parametrize("account", ["pure", "zcdp"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_the_marker_leaves_cases_out(
    request: pytest.FixtureRequest, name: str, account: str
) -> None:
    """Those that are left out are long; this run may be that of the long tests."""
    marks = {mark.name for mark in request.node.iter_markers()}
    is_first = (name, account) in (("a", "pure"), ("b", "zcdp"))
    assert "covering" in marks
    assert not (is_first and "long" in marks)


@pytest.mark.in_turn("database")
@pytest.mark.parametrize("rule", ["a", "b", "c"])
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_each_rule_is_asked_of_one_database_in_turn(
    request: pytest.FixtureRequest, rule: str, database: str
) -> None:
    marks = {mark.name for mark in request.node.iter_markers()}
    in_turn = {"a": "sqlite", "b": "postgresql", "c": "sqlite"}
    assert not (database == in_turn[rule] and "long" in marks)
