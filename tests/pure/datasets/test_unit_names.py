"""One person has one spelling in a unit column, and different people stay different."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.datasets import unit_names
from app.datasets.csv_columns import UnitColumn
from app.datasets.unit_names import (
    NotAPlainInteger,
    canonical,
    canonical_text,
    folded,
    n_similar,
    similar_spellings,
)

ONE_PERSON = {
    "17": [
        "17 ", " 17", "\t17", "17\u00a0", "\u200b17", "1\u200b7", "\ufeff17", "\uff11\uff17", "17\u2060",
        "\u202a17\u202c", "17\u3000", "1\u00ad7", "17\x1f", "1\x017", "17\x7f",
    ],
    "M\u00fcller": ["Mu\u0308ller", "Mu\u200d\u0308ller", " M\u00fcller\u200e"],
    "file": ["\ufb01le"],
    "Ann Bo": ["Ann\u00a0Bo", "Ann Bo\u3000"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "other"),
    [(name, other) for name, others in ONE_PERSON.items() for other in others],
)
def test_spellings_of_one_person_are_one_name(name: str, other: str) -> None:
    assert canonical_text(other) == canonical_text(name) == name


@pytest.mark.parametrize(
    ("one", "other"),
    [("17", "017"), ("ann", "Ann"), ("1 7", "17"), ("17", "-17"), ("17", "17.0")],
)
def test_different_identifiers_stay_different(one: str, other: str) -> None:
    assert canonical_text(one) != canonical_text(other)


@given(st.text())
def test_a_canonical_name_is_its_own_canonical_form(text: str) -> None:
    name = canonical_text(text)
    assert canonical_text(name) == name
    assert name == unicodedata.normalize("NFKC", name) == name.strip()


@given(st.text(), st.sampled_from([" ", "\t", "\u200b", "\ufeff", "\u00a0"]))
def test_signs_that_nobody_sees_do_not_matter(text: str, sign: str) -> None:
    assert (
        canonical_text(sign + text)
        == canonical_text(text + sign)
        == canonical_text(text)
    )


@example(["17\x7f"])
@given(st.lists(st.text(alphabet=st.sampled_from("017aA \u200b\uff11e\u0301\u00e9\t"))))
def test_a_block_of_an_upload_is_read_as_a_name_that_is_typed(texts: list[str]) -> None:
    for form in (unit_names.TEXT, unit_names.RAW):
        cells = UnitColumn("pid", form).read(pa.array(texts, pa.string()))
        assert cells.to_pylist() == [canonical(text, form) for text in texts]
    in_dictionary = pa.array(texts, pa.string()).dictionary_encode()
    assert UnitColumn("pid", unit_names.TEXT).read(in_dictionary).to_pylist() == [
        canonical_text(it) for it in texts
    ]


@pytest.mark.parametrize(
    "name",
    [
        "017",
        "+17",
        "-17",
        "17.0",
        "17 ",
        " 17",
        "\uff11\uff17",
        "1e3",
        "17\n",
        "x",
        "00",
    ],
)
def test_an_integer_has_one_spelling(name: str) -> None:
    with pytest.raises(NotAPlainInteger):
        canonical(name, unit_names.INTEGER)
    column = UnitColumn("pid", unit_names.INTEGER)
    column.read(pa.array(["3", "0", ""]))
    column.read(pa.array(["12345678901234567890", name, name]))
    refused = [
        (it.problem, it.count, it.row)
        for it in column.problems
        if it.problem != "line-break"
    ]
    assert refused == [("not-a-plain-integer", 2, 5)]


def test_names_that_differ_by_leading_zeros_or_case_are_counted() -> None:
    names = ["17", "017", "0017", "ann", "ANN", "bo", "17", "bo", "0", "00"]
    number = {name: index for index, name in enumerate([*names, *map(folded, names)])}
    folds, ids = (
        np.array([number[name] for name in of], np.uint64)
        for of in (list(map(folded, names)), names)
    )
    assert n_similar(folds, ids) == 7
    assert n_similar(folds[:0], ids[:0]) == 0


def test_the_signs_by_which_a_spreadsheet_keeps_a_text_tell_nobody_apart() -> None:
    assert {folded(name) for name in ("z17", '="z17"', "'z17", "Z17")} == {"z17"}
    assert {folded(name) for name in ("17", '="017"', "'17", "'17.0")} == {folded("17")}


ONE_NUMBER = {
    "4711": [
        "4.711E+03",
        "+4711",
        "4711.0",
        "4,711",
        "4 711",
        "4'711",
        "04711",
        "4711.",
        "4711.00",
        "4.711e3",
        "4.71100E+03",
    ],
    "17": ["17.0", "017", "+17", "1.7e+01", "00017.0"],
    "100000": ["1e+05", "1E5", "100,000", "100000.0"],
    "0": ["0.0", "00", "-0", "0e5"],
    "-17": ["-17.0", "-017"],
    "2.5": ["2.50", "+2.5", "2.5e0"],
    "12345678901234567890": [
        "12345678901234567890.0",
        "12,345,678,901,234,567,890",
        "1.234567890123456789e+19",
    ],
}


@pytest.mark.parametrize(
    ("name", "other"),
    [(name, other) for name, others in ONE_NUMBER.items() for other in others],
)
def test_spellings_of_one_number_are_similar(name: str, other: str) -> None:
    assert folded(name) == folded(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("17", "-17"),
        ("17", "170"),
        ("17", "1.7"),
        ("4711", "4,7,11"),
        ("4.711", "4,711"),
        ("1e5", "1e-5"),
        ("0", "e0"),
        ("17", "17e0x"),
        ("12345678901234567", "12345678901234568"),
        ("17", "17-0"),
    ],
)
def test_other_numbers_are_not_similar(one: str, other: str) -> None:
    assert folded(one) != folded(other)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        (
            "17",
            {"17.0", "017", "+17", "1.7E+01", "1.7e+01", "17.", "17.00", "00000017"},
        ),
        ("17.0", {"17", "017"}),
        ("4,711", {"4711", "4.711E+03", "4711.0", "4.71100E+03"}),
        ("1e+05", {"100000", "1E+05", "100,000"}),
        ("-5", {"-5.0", "-05"}),
        ("0", {"0.0", "00"}),
        ("2.50", {"2.5"}),
        ("0.05", {"0.050", "5e-02"}),
        ("ann bo", {"Ann Bo", "ANN BO", "Ann bo"}),
        ("00a1", {"A1", "a1", "0a1"}),
        ("17", {'="17"', '="017"', "'17", "'00017"}),
        ("McDay", {'="McDay"', "'mcday"}),
        ('="017"', {"17", "017", "'17", "17.0"}),
        ("'z17", {"z17", "Z17", '="z17"'}),
    ],
)
def test_an_erasure_looks_for_what_programs_write(name: str, others: set[str]) -> None:
    found = similar_spellings(name)
    assert others <= found
    assert name not in found


@given(
    st.one_of(
        st.text(min_size=1),
        st.from_regex(
            r"[+-]?[0-9,]{1,9}(\.[0-9]{0,9})?(e[+-]?[0-9]{1,4})?", fullmatch=True
        ),
    )
)
def test_similar_spellings_are_canonical_have_the_same_fold_and_are_few(
    text: str,
) -> None:
    name = canonical_text(text)
    found = similar_spellings(name)
    assert {folded(other) for other in found} <= {folded(name)}
    assert {canonical_text(other) for other in found} == found
    assert len(found) < 1_000
