"""Tests that an encrypted file gives its text at every place, and that no changed file
is read.
"""

import io
import os
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.sealed_files import (
    CHUNK_BYTES,
    HEADER_BYTES,
    TAG_BYTES,
    DataKey,
    Reader,
    SealBroken,
    Writer,
)

pytestmark = pytest.mark.property

_STRIDE = CHUNK_BYTES + TAG_BYTES
_KEY = DataKey(bytes(32))
_TEXT = os.urandom(4 * CHUNK_BYTES)

sizes = st.builds(
    lambda n_chunks, more: max(n_chunks * CHUNK_BYTES + more, 0),
    st.integers(0, 3),
    st.integers(-2, 2) | st.just(1000),
)


def _sealed(
    text: bytes, key: DataKey = _KEY, *, pieces: list[int] | None = None
) -> bytes:
    file = io.BytesIO()
    writer = Writer(file, key)
    start = 0
    for size in pieces or []:
        start += writer.write(text[start : start + size])
    writer.write(text[start:])
    writer.finish()
    return file.getvalue()


def _read(sealed: bytes, key: DataKey = _KEY) -> bytes:
    return Reader(io.BytesIO(sealed), key).read()


@given(size=sizes, pieces=st.lists(st.integers(0, 2 * CHUNK_BYTES), max_size=4))
@settings(max_examples=40)
def test_a_stream_of_any_pieces_is_read_back(size: int, pieces: list[int]) -> None:
    sealed = _sealed(_TEXT[:size], pieces=pieces)
    assert _read(sealed) == _TEXT[:size]
    assert len(sealed) == HEADER_BYTES + size + TAG_BYTES * max(
        -(-size // CHUNK_BYTES), 1
    )


@given(
    size=sizes,
    reads=st.lists(
        st.tuples(st.integers(0, 4 * CHUNK_BYTES), st.integers(-1, 2 * CHUNK_BYTES)),
        min_size=1,
        max_size=6,
    ),
)
@settings(max_examples=40)
def test_a_reader_is_a_file_of_the_text(
    size: int, reads: list[tuple[int, int]]
) -> None:
    reader, plain = (
        Reader(io.BytesIO(_sealed(_TEXT[:size])), _KEY),
        io.BytesIO(_TEXT[:size]),
    )
    assert reader.size == size
    for offset, length in reads:
        assert reader.seek(offset) == plain.seek(offset)
        assert reader.read(length) == plain.read(length)
        assert reader.tell() == plain.tell()


@given(size=sizes, data=st.data())
@settings(max_examples=80)
def test_a_changed_bit_is_detected_and_other_chunks_are_authentic(
    size: int, data: st.DataObject
) -> None:
    sealed = bytearray(_sealed(_TEXT[:size]))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(SealBroken):
        _read(bytes(sealed))
    with pytest.raises(SealBroken):
        reader = Reader(io.BytesIO(sealed), _KEY)
        changed = (place - HEADER_BYTES) // _STRIDE
        for index in range(-(-size // CHUNK_BYTES)):
            reader.seek(index * CHUNK_BYTES)
            chunk = reader.read(CHUNK_BYTES)
            assert index < changed
            assert chunk == _TEXT[:size][index * CHUNK_BYTES :][:CHUNK_BYTES]


@given(size=sizes, data=st.data())
@settings(max_examples=60)
def test_a_file_that_was_cut_or_grew_is_detected_when_it_is_opened(
    size: int, data: st.DataObject
) -> None:
    sealed = _sealed(_TEXT[:size])
    whole_chunks = HEADER_BYTES + _STRIDE * data.draw(
        st.integers(0, len(sealed) // _STRIDE)
    )
    cut = data.draw(
        st.integers(0, len(sealed) - 1) | st.just(min(whole_chunks, len(sealed) - 1))
    )
    grown = sealed + data.draw(
        st.binary(min_size=1, max_size=40) | st.just(sealed[HEADER_BYTES:])
    )
    for changed in (sealed[:cut], grown):
        with pytest.raises(SealBroken):
            Reader(io.BytesIO(changed), _KEY)


@given(order=st.permutations(range(3)).filter(lambda order: order != [0, 1, 2]))
@settings(max_examples=5)
def test_chunks_in_another_order_are_detected(order: list[int]) -> None:
    sealed = _sealed(_TEXT[: 3 * CHUNK_BYTES])
    chunks = [sealed[HEADER_BYTES + index * _STRIDE :][:_STRIDE] for index in order]
    with pytest.raises(SealBroken):
        _read(sealed[:HEADER_BYTES] + b"".join(chunks))


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    "other_key", [_KEY, DataKey(bytes([1] * 32))], ids=["same dataset", "other dataset"]
)
def test_a_chunk_of_another_file_is_detected(index: int, other_key: DataKey) -> None:
    text = _TEXT[: 3 * CHUNK_BYTES]
    one, other = bytearray(_sealed(text)), _sealed(text, other_key)
    place = slice(HEADER_BYTES + index * _STRIDE, HEADER_BYTES + (index + 1) * _STRIDE)
    one[place] = other[place]
    with pytest.raises(SealBroken):
        _read(bytes(one))


def test_a_file_of_another_dataset_is_not_read() -> None:
    with pytest.raises(SealBroken):
        _read(_sealed(b"text"), DataKey(bytes([1] * 32)))


_CHANGES: list[Callable[[bytes, bytes], bytes]] = [
    lambda one, other: other[:HEADER_BYTES] + one[HEADER_BYTES:],
    lambda one, _other: one[:HEADER_BYTES],
    lambda _one, _other: b"",
]


@pytest.mark.parametrize(
    "change", _CHANGES, ids=["other header", "header alone", "nothing"]
)
def test_a_file_with_another_header_or_none_is_not_read(
    change: Callable[[bytes, bytes], bytes],
) -> None:
    with pytest.raises(SealBroken):
        _read(change(_sealed(b"text"), _sealed(b"text")))


def test_equal_texts_have_nothing_in_common() -> None:
    first, second = (_sealed(bytes(2 * CHUNK_BYTES))[HEADER_BYTES:] for _ in range(2))
    blocks = [
        text[at : at + 16]
        for text in (first, second)
        for at in range(0, len(text) - 15, 16)
    ]
    assert len(set(blocks)) == len(blocks)
