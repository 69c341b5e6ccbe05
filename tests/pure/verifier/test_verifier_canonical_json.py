"""The canonical form against an independent implementation, and every input that the
strict reader refuses.
"""

import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from grovekeeper_verifier.canonical_json import (
    MAX_INTEGER,
    MAX_NESTING,
    NotStrictJson,
    dumps,
    loads,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_canonical_form_equals_another_implementation(value: object) -> None:
    assert dumps(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


@given(VALUES)
def test_reading_undoes_writing(value: object) -> None:
    assert loads(dumps(value)) == value  # type: ignore[arg-type]


def test_keys_are_ordered_by_utf16_code_units_not_by_code_points() -> None:
    """U+1F600 is written with the surrogate D83D, which is ordered before U+FB33."""
    assert (
        dumps({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()
    )


def test_escapes_are_the_short_ones_and_lower_case() -> None:
    assert (
        dumps('\x00\x0f\b\t\n\f\r"\\/\x7fé')
        == b'"\\u0000\\u000f\\b\\t\\n\\f\\r\\"\\\\/\x7f\xc3\xa9"'
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"a":1,"a":1}', "duplicate key"),
        (b'{"a":{"b":1,"b":2}}', "duplicate key"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "NaN"),
        (b"[-Infinity]", "NaN"),
        (b"1.0", "not an integer"),
        (b"1e3", "not an integer"),
        (b"9007199254740992", "too large"),
        (b"-9007199254740992", "too large"),
        (b"1" * 10_000, "too large"),
        (b'"\xff"', "UTF-8"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udfff":1}', "surrogate"),
        (b'{"a":1', "not JSON"),
        (b"", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"[" * 200_000, "nested"),
        (b'{"a":' * (MAX_NESTING + 1) + b"1" + b"}" * (MAX_NESTING + 1), "nested"),
        (b"[" * (MAX_NESTING + 1) + b"1" + b"]" * (MAX_NESTING + 1), "nested"),
    ],
)
def test_ambiguous_json_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(NotStrictJson, match=why):
        loads(line)


def test_the_largest_exact_integers_are_read() -> None:
    assert loads(json.dumps([MAX_INTEGER, -MAX_INTEGER]).encode()) == [
        MAX_INTEGER,
        -MAX_INTEGER,
    ]


def test_nesting_up_to_the_limit_is_read() -> None:
    assert loads(b"[" * MAX_NESTING + b"1" + b"]" * MAX_NESTING)
