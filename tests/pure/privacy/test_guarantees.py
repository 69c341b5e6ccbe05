"""Printed guarantees: numbers, adjacencies, privacy unit and assumptions; odds of a
right guess: laws and bounds.
"""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest

from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import Amount, SplitDelta
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.guarantees import (
    addition,
    guarantee,
    odds_by_change,
    of_output,
    right_guesses,
)

ROWS = Adjacency.ADD_REMOVE_ONE


def test_replacing_a_row_is_printed_at_twice_the_price() -> None:
    printed = guarantee(Amount("pure", 700_000_000), SplitDelta(None), adjacency=ROWS)

    assert printed["add_remove"] == {"epsilon": "0.7", "delta": "0"}
    assert printed["replace_one"] == {"epsilon": "1.4", "delta": "0"}


ASSUMED = (
    "This assumes the declared public schema and size, that the exact number of rows is not published, and that "
    "neither the running times of jobs nor whether they fail are observed."
)


def test_text_of_an_account_names_the_row_and_what_is_assumed() -> None:
    text = guarantee(Amount("pure", 3_000_000_000), SplitDelta(None), adjacency=ROWS)[
        "text"
    ]

    assert text == (
        "For any two datasets that differ in one row (one has it, the other does not) and carry the same declaration, "
        "all outputs released under this ledger together have a privacy loss of at most ε = 3, with δ = 0. Where one "
        "is replaced by another, at most 6. This is the guarantee of the account until its cap is raised. "
        f"{ASSUMED} A person with several rows is protected at the sum over those rows."
    )


def test_an_output_adds_its_charge_to_what_was_released_before() -> None:
    account = guarantee(Amount("pure", 3_000_000_000), SplitDelta(None), adjacency=ROWS)
    added = addition(
        "model", Amount("pure", 700_000_000), adjacency=Adjacency.ADD_REMOVE_ONE
    )
    printed = of_output(added, account)

    assert added == {
        "unit": "epsilon",
        "add_remove": "0.7",
        "replace_one": "1.4",
        "odds": {"add_remove": "0.6682", "replace_one": "0.8022"},
        "text": "Given everything that was released before, whatever that was, this model adds a privacy loss of at "
        "most ε = 0.7 where one row is added or removed, and at most 1.4 where one is replaced by another.",
    }
    assert printed["text"] == f"{added['text']} {account['text']}"
    assert printed["adds"] == added
    assert (
        printed["add_remove"] == account["add_remove"] == {"epsilon": "3", "delta": "0"}
    )
    assert (
        printed["replace_one"]
        == account["replace_one"]
        == {"epsilon": "6", "delta": "0"}
    )


@pytest.mark.parametrize(
    ("accountant", "unit", "added"),
    [
        (
            "zcdp",
            "rho",
            "at most ρ = 0.02 of zero-concentrated differential privacy where one row",
        ),
        (
            "gdp",
            "mu_squared",
            "at most μ² = 0.02 of Gaussian differential privacy where one row",
        ),
    ],
)
def test_other_units_add_their_own_amount_and_four_times_that(
    accountant: str, unit: str, added: str
) -> None:
    printed = addition(
        "profile",
        Amount(accountant, 20_000_000_000),
        adjacency=Adjacency.ADD_REMOVE_ONE,
    )

    assert (printed["unit"], printed["add_remove"], printed["replace_one"]) == (
        unit,
        "0.02",
        "0.08",
    )
    assert f"this profile adds {added} is added or removed, and at most 0.08" in str(
        printed["text"]
    )


@pytest.mark.parametrize(
    ("adjacency", "odds"),
    [
        (Adjacency.ADD_REMOVE_ONE, {"add_remove": "0.505", "replace_one": "0.51"}),
        (Adjacency.LABEL, {"label": "0.505"}),
    ],
)
def test_the_delta_of_a_charge_is_part_of_its_odds(
    adjacency: Adjacency, odds: dict[str, str]
) -> None:
    set_aside = Fraction(1, 100)
    assert (
        odds_by_change(Amount("zcdp", 0), adjacency, SplitDelta(set_aside, set_aside))
        == odds
    )


def test_what_an_output_adds_to_labels_has_no_number_for_rows() -> None:
    printed = addition(
        "model",
        Amount("pure", 10**9),
        adjacency=Adjacency.LABEL,
        unit_column="person",
        max_rows=3,
    )

    assert (printed["label"], printed["add_remove"], printed["replace_one"]) == (
        "1",
        None,
        None,
    )
    assert printed["text"] == (
        "Labels only; features and membership are not protected. Given everything that was released before, whatever "
        "that was, this model adds a privacy loss of at most ε = 1 where the labels of one value of the column "
        "'person' with its at most 3 rows change."
    )


@pytest.mark.parametrize(
    ("max_rows", "rows"), [(1, "its one row"), (5, "all of its at most 5 rows")]
)
def test_unit_with_several_rows_is_protected_as_a_whole(
    max_rows: int, rows: str
) -> None:
    text = guarantee(
        Amount("pure", 3_000_000_000),
        SplitDelta(None),
        adjacency=ROWS,
        unit_column="person",
        max_rows=max_rows,
    )["text"]

    assert f"differ in one value of the column 'person' with {rows} (one has it" in str(
        text
    )
    assert "sum over those rows" not in str(text)


def test_nothing_spent_is_a_guarantee_too() -> None:
    assert guarantee(Amount("pure", 0), SplitDelta(None), adjacency=ROWS)[
        "replace_one"
    ] == {
        "epsilon": "0",
        "delta": "0",
    }


@pytest.mark.parametrize(
    ("accountant", "replaced"), [("zcdp", "2.111734102"), ("gdp", "2.122857133")]
)
def test_approximate_accounts_print_the_cap_and_never_twice_its_epsilon(
    accountant: str, replaced: str
) -> None:
    delta = Fraction(1, 10**6)
    cap = accountants.by_name(accountant).cap(Fraction(1), delta)
    printed = guarantee(Amount(accountant, cap), SplitDelta(delta), adjacency=ROWS)

    assert printed["add_remove"] == {"epsilon": "1", "delta": "0.000001"}
    assert printed["replace_one"] == {"epsilon": replaced, "delta": "0.000001"}
    text = str(printed["text"])
    assert (
        "all outputs released under this ledger together are (ε, δ)-differentially"
        in text
    )
    assert (
        f"with ε = 1 and δ = 0.000001. Where one is replaced by another, with ε = {replaced} at the same δ."
        in text
    )
    assert "at its highest cap since the first charge" in text


def test_approximate_guarantee_of_a_ledger_names_no_model() -> None:
    text = guarantee(
        Amount("gdp", 10**12), SplitDelta(Fraction(1, 10**6)), adjacency=ROWS
    )["text"]

    assert "released under this ledger together are (ε, δ)" in str(text)
    assert "model" not in str(text)


@pytest.mark.parametrize(("accountant", "symbol"), [("zcdp", "ρ"), ("gdp", "μ²")])
def test_several_rows_of_a_person_are_never_called_a_sum_where_it_is_not_one(
    accountant: str, symbol: str
) -> None:
    delta = Fraction(1, 10**6)
    text = str(
        guarantee(Amount(accountant, 10**9), SplitDelta(delta), adjacency=ROWS)["text"]
    )

    assert "sum over those rows" not in text
    assert f"k² times its {symbol}" in text


def test_an_account_of_labels_prints_a_number_for_labels_and_none_for_rows() -> None:
    printed = guarantee(
        Amount("pure", 700_000_000), SplitDelta(None), adjacency=Adjacency.LABEL
    )

    assert printed["label"] == {"epsilon": "0.7", "delta": "0"}
    assert printed["add_remove"] is None
    assert printed["replace_one"] is None
    assert printed["text"] == (
        "Labels only; features and membership are not protected. For any two datasets with the same rows and the same "
        "features that differ in one label and carry the same declaration, all outputs released under this ledger "
        "together have a privacy loss of at most ε = 0.7, with δ = 0. This is the guarantee of the account until its "
        "cap is raised. This assumes the declared public schema, and that neither the running times of jobs nor "
        "whether they fail are observed. A person with several rows is protected at the sum over the labels of those "
        "rows."
    )


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_labels_with_a_delta_are_those_of_the_whole_account(accountant: str) -> None:
    delta = Fraction(1, 10**6)
    cap = accountants.by_name(accountant).cap(Fraction(1), delta)
    printed = guarantee(
        Amount(accountant, cap),
        SplitDelta(delta),
        adjacency=Adjacency.LABEL,
        unit_column="person",
        max_rows=3,
    )
    text = str(printed["text"])

    assert printed["label"] == {"epsilon": "1", "delta": "0.000001"}
    assert (
        "differ in the labels of one value of the column 'person' with its at most 3 rows"
        in text
    )
    assert "all outputs released under this ledger together are (ε, δ)" in text
    assert "highest cap since the first charge" in text
    assert "replaced" not in text
    assert "several rows" not in text


LOSSES = [Fraction(1, 1000), Fraction(1, 10), Fraction(1), Fraction(5, 2), Fraction(8)]


def _amount(accountant: str, loss: Fraction) -> Amount:
    return Amount(accountant, int(loss * 10 ** accountants.by_name(accountant).PLACES))


@pytest.mark.parametrize("loss", LOSSES)
def test_randomised_response_reaches_the_odds_of_pure_accounts(loss: Fraction) -> None:
    exact = 1 / (1 + math.exp(-float(loss)))
    assert exact <= float(right_guesses(_amount("pure", loss))) <= exact + 1e-4


@pytest.mark.parametrize("loss", LOSSES)
def test_a_gaussian_mechanism_reaches_the_odds_of_gdp_accounts(loss: Fraction) -> None:
    exact = NormalDist().cdf(math.sqrt(loss) / 2)
    assert exact <= float(right_guesses(_amount("gdp", loss))) <= exact + 1e-4


@pytest.mark.parametrize("loss", LOSSES)
def test_no_gaussian_pair_exceeds_the_odds_of_zcdp_accounts(loss: Fraction) -> None:
    """N(0, 1) and N(√(2ρ), 1) are exactly ρ-zCDP."""
    exact = NormalDist().cdf(math.sqrt(2 * loss) / 2)
    assert exact <= float(right_guesses(_amount("zcdp", loss))) <= exact + 0.12


def test_no_pair_of_coins_exceeds_the_odds_of_zcdp_accounts() -> None:
    orders = np.linspace(1.01, 60, 400)
    for p in np.linspace(0.02, 0.98, 13):
        for q in np.linspace(0.02, 0.98, 13):
            both = [(p, q), (q, p)]
            rho = max(float(np.max(_renyi(a, b, orders) / orders)) for a, b in both)
            steps = math.ceil(rho * 10 ** accountants.by_name("zcdp").PLACES)
            odds = float(right_guesses(Amount("zcdp", steps)))
            assert (1 + abs(p - q)) / 2 <= odds + 1e-3


def _renyi(p: float, q: float, orders: np.ndarray) -> np.ndarray:
    moments = p**orders * q ** (1 - orders) + (1 - p) ** orders * (1 - q) ** (
        1 - orders
    )
    return np.log(moments) / (orders - 1)


@pytest.mark.parametrize("accountant", accountants.NAMES)
def test_nothing_spent_leaves_a_coin(accountant: str) -> None:
    assert right_guesses(Amount(accountant, 0)) == "0.5"
    assert right_guesses(Amount(accountant, 10**30)) == "1"


def test_delta_that_is_set_aside_counts() -> None:
    assert right_guesses(Amount("zcdp", 0), set_aside=Fraction(1, 100)) == "0.505"
