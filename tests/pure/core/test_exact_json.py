"""Exact parsing of JSON bodies, and equality of bodies by content instead of spelling."""

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core import json_text, limits
from app.core.errors import MalformedRequest, TooLarge
from app.core.json_text import digest

_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=8,
)


def loads(body: bytes) -> object:
    return json_text.loads_exactly(body, max_nodes=10**7)


def test_a_number_keeps_its_own_characters() -> None:
    assert loads(b"[0.1, 1e2, 3, 0.30000000000000000000001]") == [
        Decimal("0.1"),
        Decimal("1e2"),
        3,
        Decimal("0.30000000000000000000001"),
    ]


@pytest.mark.parametrize(
    "text",
    [b"100000", b"1e5", b"1e+05", b"1.0E5", b"100000.0", b"100000.000", b"10000000e-2"],
)
def test_a_whole_number_is_an_integer_however_it_is_spelt(text: bytes) -> None:
    """So JSON Schema has it, and the document of the API. R's jsonlite writes round
    numbers with an exponent.
    """
    assert (loads(text), type(loads(text))) == (100_000, int)
    assert digest(loads(text)) == digest(100_000)


@pytest.mark.parametrize("text", [b"1e15", b"1e400", b"1e999999", b"0.5", b"1e-999999"])
def test_a_number_of_another_size_is_a_decimal(text: bytes) -> None:
    assert type(loads(text)) is Decimal


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"{}{}", b"nul", b"NaN", b"[Infinity]", b"[-Infinity]", b'{"a":1,"a":1}',
        b'[{"b":{"a":1,"a":2}}]',
        b"\xff", b'"\xff"', b"1e9999999999999999999", b"1" * 5_000, b"0." + b"1" * 500, b"01",
        b"1_0",
        b"+1", b"'a'", b"[1,]", b"\x00", b'"\x01"', '{"a": 1}'.encode("utf-16"), b"[" * 10**6,
    ],
)  # fmt: skip
def test_a_body_that_is_not_json_is_malformed_and_not_quoted(body: bytes) -> None:
    with pytest.raises(MalformedRequest) as caught:
        loads(body)
    assert str(caught.value).startswith("the body is not JSON: ")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "it is empty"),
        (b'{\n "name": "x",\n "schema": {},\n}\n', "line 3, column 14: a trailing comma"),
        (b"[1,]", "line 1, column 3: a trailing comma"),
        (b'{"a": 1,\n\n}', "line 1, column 8: a trailing comma"),
        (b"[1,,2]", "line 1, column 4"),
        (b'{"a": 1\n"b": 2}', "line 2, column 1"),
        (b"{'a': 1}", "line 1, column 2"),
        (b'{"a": "secret', "line 1, column 7"),
        (b'\xef\xbb\xbf{"a" 1}', "line 1, column 6"),
        (b'{"a": 1,\n"b": "pl\xe4"}', "line 2 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "line 1 is not UTF-8, and looks like UTF-16"),
        ('{"a": 1}'.encode("utf-16-le"), "line 1, column 2, which looks like UTF-16"),
        (b'{"NaN": "-Infinity",\n "a": NaN}',
         "line 2, column 7: NaN and Infinity are not JSON; null stands for a missing value"),
        (b'{"a": [{"b": 1, "b": 2}]}', "a name occurs twice in one object"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"[1e9999999999999999999]", "a number has too many digits or too large an exponent"),
    ],
)  # fmt: skip
def test_the_place_of_the_first_fault_is_stated(body: bytes, fault: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        loads(body)
    assert str(caught.value) == f"the body is not JSON: {fault}"


def test_a_byte_order_mark_is_no_part_of_a_body() -> None:
    assert loads(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_has_a_public_limit(opening: bytes, closing: bytes) -> None:
    deepest = limits.MAX_JSON_DEPTH
    assert loads(opening * deepest + b"1" + closing * deepest)
    with pytest.raises(MalformedRequest, match="nested too deeply"):
        loads(opening * (deepest + 1) + b"1" + closing * (deepest + 1))


@pytest.mark.parametrize(
    "n_members", [limits.MAX_JSON_MEMBERS, limits.MAX_JSON_MEMBERS + 1]
)
def test_the_members_of_an_object_have_a_public_limit(n_members: int) -> None:
    body = json.dumps([{str(index): index for index in range(n_members)}]).encode()
    if n_members <= limits.MAX_JSON_MEMBERS:
        assert loads(body)
        return
    with pytest.raises(TooLarge) as caught:
        loads(body)
    assert caught.value.limit == limits.MAX_JSON_MEMBERS


@given(_values)
def test_the_digest_of_a_body_does_not_depend_on_its_spelling(value: object) -> None:
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    spacious = json.dumps(value, indent=3, sort_keys=True, ensure_ascii=True).encode()
    assert digest(loads(compact)) == digest(loads(spacious))


@given(_values, _values)
def test_two_bodies_have_one_digest_only_if_they_are_equal(
    first: object, second: object
) -> None:
    same = _plain(first) == _plain(second)
    assert (
        digest(loads(json.dumps(first).encode()))
        == digest(loads(json.dumps(second).encode()))
    ) == same


def _plain(value: object) -> object:
    """A value whose equality is that of JSON: numbers compare by value and never equal
    a boolean.
    """
    if isinstance(value, bool | None | str):
        return repr(value)
    if isinstance(value, int | float):
        return Fraction(str(value))
    if isinstance(value, list):
        return [_plain(item) for item in value]
    assert isinstance(value, dict)
    return {key: _plain(item) for key, item in value.items()}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"1", b"1.0"), (b"100", b"1e2"), (b"0", b"-0.000"), (b"0", b"0e7"), (b"1e9999999", b"10e9999998"),
        (b"120", b"1.20E+2"), (b"-5", b"-5.0"),
    ],
)  # fmt: skip
def test_equal_numbers_have_one_digest(first: bytes, second: bytes) -> None:
    assert digest(loads(first)) == digest(loads(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"1", b"true"), (b"1", b'"1"'), (b"null", b'"null"'), (b"[]", b"{}"), (b"1", b"-1"), (b"[1]", b"[[1]]"),
        (b"1000000000000000000000000000001", b"1000000000000000000000000000002"),
        (b"0.1000000000000000000000000000001", b"0.1000000000000000000000000000002"),
        (b'{"$number":"1e0"}', b"1"), (b'{"$object":{"a":1}}', b'{"a":1}'), (b"1e9999999", b"1e9999998"),
    ],
)  # fmt: skip
def test_different_values_have_different_digests(first: bytes, second: bytes) -> None:
    assert digest(loads(first)) != digest(loads(second))
