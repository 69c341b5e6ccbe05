"""The printed guarantee: exact numbers, both adjacencies, the unit and the assumptions."""

import pytest

from app.privacy.guarantees import guarantee


def test_replacing_a_row_is_printed_at_twice_the_price() -> None:
    printed = guarantee(accountant="pure", amount=700_000_000, delta=None, subject="model")

    assert printed["add_remove"] == {"epsilon": "0.7", "delta": "0"}
    assert printed["replace_one"] == {"epsilon": "1.4", "delta": "0"}


def test_text_names_the_row_and_what_is_assumed() -> None:
    text = guarantee(accountant="pure", amount=1_000_000_000, delta=None, subject="model")["text"]

    assert text == (
        "For any two datasets that differ in one row (one has it, the other does not) and carry the same declaration, "
        "this model has a privacy loss of at most ε = 1, with δ = 0. Where one is replaced by another, at most 2. It "
        "assumes the declared public schema and size, that the exact number of rows is not published, and that running "
        "times are not observed. A person with several rows is protected at the sum over those rows."
    )


def test_text_of_a_ledger_covers_all_its_outputs() -> None:
    text = guarantee(accountant="pure", amount=3_000_000_000, delta=None, subject="ledger")["text"]

    assert "all outputs released under this ledger together have a privacy loss of at most ε = 3," in str(text)
    assert "this model" not in str(text)


@pytest.mark.parametrize(("max_rows", "rows"), [(1, "its one row"), (5, "all of its at most 5 rows")])
def test_unit_with_several_rows_is_protected_as_a_whole(max_rows: int, rows: str) -> None:
    text = guarantee(
        accountant="pure", amount=3_000_000_000, delta=None, subject="model", unit_column="person", max_rows=max_rows
    )["text"]

    assert f"differ in one value of the column 'person' with {rows} (one has it" in str(text)
    assert "sum over those rows" not in str(text)


def test_nothing_spent_is_a_guarantee_too() -> None:
    assert guarantee(accountant="pure", amount=0, delta=None, subject="ledger")["replace_one"] == {
        "epsilon": "0",
        "delta": "0",
    }
