"""One person has one spelling in a unit column, and different people stay different."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.datasets import unit_names
from app.datasets.csv_columns import UnitColumn
from app.datasets.unit_names import NotAPlainInteger, canonical, canonical_text, folded, n_similar

ONE_PERSON = {
    "17": [
        "17 ", " 17", "\t17", "17\u00a0", "\u200b17", "1\u200b7", "\ufeff17", "\uff11\uff17", "17\u2060",
        "\u202a17\u202c", "17\u3000", "1\u00ad7", "17\x1f",
    ],
    "M\u00fcller": ["Mu\u0308ller", "Mu\u200d\u0308ller", " M\u00fcller\u200e"],
    "file": ["\ufb01le"],
    "Ann Bo": ["Ann\u00a0Bo", "Ann Bo\u3000"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "other"), [(name, other) for name, others in ONE_PERSON.items() for other in others])
def test_spellings_of_one_person_are_one_name(name: str, other: str) -> None:
    assert canonical_text(other) == canonical_text(name) == name


@pytest.mark.parametrize(
    ("one", "other"), [("17", "017"), ("ann", "Ann"), ("1 7", "17"), ("17", "-17"), ("17", "17.0")]
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
    assert canonical_text(sign + text) == canonical_text(text + sign) == canonical_text(text)


@given(st.lists(st.text(alphabet=st.sampled_from("017aA \u200b\uff11e\u0301\u00e9\t"))))
def test_a_block_of_an_upload_is_read_as_a_name_that_is_typed(texts: list[str]) -> None:
    for form in (unit_names.TEXT, unit_names.RAW):
        cells = UnitColumn("pid", form).read(pa.array(texts, pa.string()))
        assert cells.to_pylist() == [canonical(text, form) for text in texts]
    in_dictionary = pa.array(texts, pa.string()).dictionary_encode()
    assert UnitColumn("pid", unit_names.TEXT).read(in_dictionary).to_pylist() == [canonical_text(it) for it in texts]


@pytest.mark.parametrize("name", ["017", "+17", "-17", "17.0", "17 ", " 17", "\uff11\uff17", "1e3", "17\n", "x", "00"])
def test_an_integer_has_one_spelling(name: str) -> None:
    with pytest.raises(NotAPlainInteger):
        canonical(name, unit_names.INTEGER)
    column = UnitColumn("pid", unit_names.INTEGER)
    column.read(pa.array(["3", "0", ""]))
    column.read(pa.array(["12345678901234567890", name, name]))
    refused = [(it.problem, it.count, it.row) for it in column.problems if it.problem != "line-break"]
    assert refused == [("not-a-plain-integer", 2, 5)]


def test_names_that_differ_by_leading_zeros_or_case_are_counted() -> None:
    names = ["17", "017", "0017", "ann", "ANN", "bo", "17", "bo", "0", "00"]
    number = {name: index for index, name in enumerate([*names, *map(folded, names)])}
    folds, ids = (np.array([number[name] for name in of], np.uint64) for of in (list(map(folded, names)), names))
    assert n_similar(folds, ids) == 7
    assert n_similar(folds[:0], ids[:0]) == 0
