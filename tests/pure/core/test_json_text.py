"""Nodes of a JSON text are counted exactly, up to empty arrays and objects, and before
anything is built.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import TooLarge
from app.core.json_text import check_nodes
from grovekeeper_common import strict_json
from grovekeeper_common.strict_json import loads

_texts = st.text(alphabet='",:[]{}\\\\ab\u00e9', max_size=6)
_values = st.recursive(
    st.none() | st.integers() | _texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4)
    ),
    max_leaves=12,
)


def n_nodes(value: object) -> int:
    """Values and names of a value, with one more for every empty array and object."""
    if isinstance(value, list):
        return 1 + max(sum(map(n_nodes, value)), not value)
    if isinstance(value, dict):
        return 1 + max(sum(1 + n_nodes(inner) for inner in value.values()), not value)
    return 1


@given(_values, st.booleans(), st.sampled_from([2, 3, 5, 128 * 1024]))
def test_a_text_passes_at_its_number_of_nodes_and_not_below(
    value: object, ascii_only: bool, part_bytes: int
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strict_json, "_PART_BYTES", part_bytes)
        check_nodes(text, n_nodes(value))
        with pytest.raises(TooLarge):
            check_nodes(text, n_nodes(value) - 1)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 10**6, b"1," * 10**6, b'"",,' * 10**6, b'{"' + b"\\," * 10**6 + b'":1,' * 100, b'["a,b"' * 10**5,
        b"{:" * 10**6,
    ],
)  # fmt: skip
def test_a_text_that_is_not_json_is_refused_too(text: bytes) -> None:
    with pytest.raises(TooLarge):
        check_nodes(text, 99)


def test_marks_in_strings_are_not_nodes() -> None:
    check_nodes(json.dumps([",:[{" * 1_000, '\\",' * 1_000]).encode(), 3)


@pytest.mark.parametrize(
    "text",
    [
        rb'["\ud800"]',
        rb'{"\uDFFF": 1}',
        rb'["\ude00\ud83d"]',
        b"[NaN]",
        b'{"a": 1, "a": 2}',
        b'["\xff"]',
        b"[",
    ],
)
def test_a_text_is_read_strictly(text: bytes) -> None:
    with pytest.raises(ValueError):
        loads(text)


def test_whole_pairs_and_a_byte_order_mark_are_read() -> None:
    assert loads(b"\xef\xbb\xbf" + rb'["\ud83d\ude00", "\\ud800"]') == [
        "\U0001f600",
        r"\ud800",
    ]
