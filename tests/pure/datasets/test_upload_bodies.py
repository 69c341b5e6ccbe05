"""Tests how the bytes of an upload are decompressed, bounded and refused without
quoting them.
"""

import gzip
import io
import re
import tracemalloc
from random import Random

import pytest

from app.core.errors import MalformedRequest, RowsInvalid, TooLarge
from app.datasets.upload_bodies import CsvSource, _Quotes

TEXT = b"a,b\n1,2\n3,4\n"
PACKED = gzip.compress(TEXT)


def open_source(content, *, is_gzip=False, max_bytes=10**9, max_line_bytes=1024):
    return CsvSource(
        io.BytesIO(content),
        is_gzip=is_gzip,
        max_bytes=max_bytes,
        max_line_bytes=max_line_bytes,
    )


def read_to_the_end(source, size):
    return b"".join(iter(lambda: source.read(size), b""))


def slug(caught):
    (problem,) = caught.value.columns
    assert (problem.name, problem.count) == ("", 1)
    return problem.problem


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        b"\xef\xbb\xbf" + TEXT,
        b"\n\r\n\n" + TEXT,
        b"\xef\xbb\xbf\n" + TEXT,
        b'"a","b"\n1,2\n3,4\n',
    ],
    ids=["plain", "byte order mark", "empty lines", "mark and empty line", "quoted"],
)
def test_the_header_is_read_and_replaced(content):
    source = open_source(content)
    assert source.read_header() == ["a", "b"]
    source.place_columns([1, 0])
    assert source.read() == b"1,0\n" + b"\n1,2\n3,4\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_ends_the_header(end):
    source = open_source(f"a,b{end}1,2{end}".encode())
    assert source.read_header() == ["a", "b"]
    assert source.read() == f"{end}1,2{end}".encode()


def test_a_header_without_rows_needs_no_line_end():
    source = open_source(b"a,b")
    assert source.read_header() == ["a", "b"]
    assert source.read() == b""


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"]
)
def test_a_body_without_a_line_has_no_header(content):
    with pytest.raises(RowsInvalid) as caught:
        open_source(content).read_header()
    assert slug(caught) == "no-header"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a,\xff\n", "not-text"),
        (b"a,\0\n", "not-text"),
        ("a,b\n".encode("utf-16"), "not-text"),
        (b'a,"b\nc",d\n', "malformed-header"),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(content, expected):
    with pytest.raises(RowsInvalid) as caught:
        open_source(content).read_header()
    assert slug(caught) == expected


@pytest.mark.parametrize("size", [1, 2, 5, 7, 100])
def test_reads_have_their_full_size_until_the_end(size):
    content = b"x" * 10 + b"\n" + b"y" * 9 + b"\n"
    source = open_source(
        gzip.compress(content[:9]) + gzip.compress(content[9:]),
        is_gzip=True,
        max_line_bytes=10,
    )
    blocks = []
    while block := source.read(size):
        blocks.append(block)
    assert b"".join(blocks) == content
    assert {len(block) for block in blocks[:-1]} <= {size}
    assert source.refusal is None


@pytest.mark.parametrize("n_zeros", [1, 512, 8 * 1024, 100_000])
def test_zeros_behind_a_member_are_skipped(n_zeros):
    zeros = bytes(n_zeros)
    source = open_source(PACKED + zeros + gzip.compress(b"more") + zeros, is_gzip=True)
    assert source.read() == TEXT + b"more"
    assert source.refusal is None


@pytest.mark.parametrize(
    "body",
    [b"\0" + PACKED, bytes(512), PACKED + b"\0x"],
    ids=["before", "zeros", "others"],  # a packed file states when it was made
)
def test_zeros_before_the_first_member_and_other_bytes_are_refused(body):
    source = open_source(body, is_gzip=True)
    source.read()
    assert isinstance(source.refusal, MalformedRequest)


@pytest.mark.parametrize("read_size", [1, 3, 11, 1000])
@pytest.mark.parametrize("before", [b"", b"ab\n", b"\r\n", b"0123456789\n"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n1\n"])
def test_a_line_may_have_exactly_its_limit(read_size, before, end):
    for length, is_legal in ((9, True), (10, True), (11, False), (25, False)):
        source = open_source(before + b"x" * length + end, max_line_bytes=10)
        read_to_the_end(source, read_size)
        if is_legal:
            source.check()
        else:
            with pytest.raises(RowsInvalid) as caught:
                source.check()
            assert slug(caught) == "line-too-long"


def test_a_header_over_the_limit_of_a_line_is_refused():
    with pytest.raises(RowsInvalid) as caught:
        open_source(b"a" * 2000).read_header()
    assert slug(caught) == "line-too-long"


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_body_may_have_exactly_its_limit(is_gzip):
    content = PACKED if is_gzip else TEXT
    fits = open_source(content, is_gzip=is_gzip, max_bytes=len(TEXT))
    assert fits.read() == TEXT
    fits.check()
    too_large = open_source(content, is_gzip=is_gzip, max_bytes=len(TEXT) - 1)
    too_large.read()
    with pytest.raises(TooLarge) as caught:
        too_large.check()
    assert caught.value.limit == len(TEXT) - 1


def test_a_gzip_bomb_is_read_up_to_the_limit_in_bounded_memory():
    bomb = gzip.compress(b"1,2\n" * 16_000_000, compresslevel=1)
    assert len(bomb) < 1_000_000
    source = open_source(bomb, is_gzip=True, max_bytes=32_000_000)
    n_bytes = 0
    tracemalloc.start()
    while block := source.read(65536):
        n_bytes += len(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_bytes <= 32_000_000
    assert peak < 4_000_000
    with pytest.raises(TooLarge):
        source.check()


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        PACKED[:10] + b"\xff" * 20,
        PACKED[:-1],
        PACKED[:12],
        PACKED + b"junk",
        PACKED[:-8] + bytes(8),
    ],
    ids=[
        "not gzip",
        "broken data",
        "cut in the trailer",
        "cut in the data",
        "junk after the end",
        "wrong checksum",
    ],
)
def test_a_broken_gzip_is_refused(content):
    source = open_source(content, is_gzip=True)
    read_to_the_end(source, 4)
    with pytest.raises(MalformedRequest) as caught:
        source.check()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


class _CountedReads(io.BytesIO):
    n_reads = 0

    def read(self, size=-1):
        self.n_reads += 1
        return super().read(size)


@pytest.mark.parametrize("flag", [8, 16], ids=["name", "comment"])
def test_a_long_head_of_a_gzip_is_read_in_large_pieces(flag):
    """Byte by byte, 30 MB of it took a minute of every thread."""
    head = PACKED[:3] + bytes([flag]) + PACKED[4:10] + b"a" * 2**20 + b"\0"
    body = _CountedReads(head + PACKED[10:])
    source = CsvSource(body, is_gzip=True, max_bytes=10**9, max_line_bytes=1024)
    assert read_to_the_end(source, 100) == TEXT
    assert body.n_reads < 1_000


def test_members_of_a_gzip_follow_each_other():
    empty = gzip.compress(b"")
    body = PACKED + empty * 2_000 + gzip.compress(b"5,6\n")
    source = open_source(body, is_gzip=True)
    assert read_to_the_end(source, 100) == TEXT + b"5,6\n"
    source.check()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Zürich, 東京, 😀\n".encode(), "Zürich, 東京, 😀\n"),
        (b"a\xffb\xc3\n\xc3\xa9", "a\0b\0\né"),
        (b"cut \xf0\x9f\x98", "cut \0"),
        (b"surrogate \xed\xb2\x80", "surrogate \0"),
        (b"own \0", "own \0"),
    ],
)
def test_the_parser_gets_valid_text_wherever_reads_end(size, content, expected):
    source = open_source(content, max_line_bytes=size + 60)
    blocks = []
    while block := source.read(size):
        blocks.append(block)
    assert all(len(block) == size for block in blocks[:-1])
    assert len(blocks[-1]) <= size
    # Undecodable bytes at the end of a read and the start of the next become two NULs.
    assert re.sub("\0+", "\0", b"".join(blocks).decode()) == expected


def test_nothing_is_read_after_a_refusal_or_after_closing():
    refused = open_source(b"x" * 5000, max_line_bytes=10)
    refused.read()
    assert refused.read() == b""
    closed = open_source(TEXT)
    closed.close()
    assert closed.read() == b""


def _stray_line(text):
    """The line of the text behind a quote that ends a cell, by RFC 4180 sign by sign;
    ``None`` if there is none before the first quote inside a cell without quotes.
    """
    place = "start"
    for number, sign in enumerate(text):
        ends_cell = sign in ",\n"
        match place, sign:
            case ("cell", '"'):
                return None
            case ("quoted", _):
                place = "quote" if sign == '"' else "quoted"
            case ("start" | "quote", '"'):
                place = "quoted"
            case ("quote", _) if not ends_cell:
                return text.count("\n", 0, number) + 1
            case _:
                place = "start" if ends_cell else "cell"
    return None


def test_text_behind_a_quote_is_found_wherever_pieces_begin():
    random = Random(7)
    found = 0
    for _ in range(5_000):
        text = "".join(random.choices('a",\n', k=random.randint(1, 14)))
        quotes = _Quotes(",", line=1)
        size = random.randint(1, 5)
        pieces = [text[at : at + size].encode() for at in range(0, len(text), size)]
        are_alike = all(quotes.are_read_alike(piece) for piece in [*pieces, b""])
        line = _stray_line(text)
        assert are_alike == (line is None), text
        assert line in (None, quotes.line), text
        found += line is not None
    assert found > 500


@pytest.mark.parametrize(
    "cell", [r'"Ann \"A\" B"', '"3"0', '"y1" ', '""x', '"a"""x', '"a"b"']
)
def test_text_behind_a_quote_is_refused_with_its_line(cell):
    source = open_source(f'"a","b"\n"1","2"\n{cell},4\n"5","6"\n'.encode())
    source.read_header()
    source.place_columns([0, 1])
    read_to_the_end(source, 7)
    with pytest.raises(RowsInvalid) as caught:
        source.check()
    (problem,) = caught.value.columns
    assert (problem.problem, problem.line) == ("malformed-csv", 3)
    assert "twice" in problem.suspected


@pytest.mark.parametrize("row", ["""5'11",4""", '"a ""b"" c",4', '"",""', '"a\r\nb",4'])
def test_quotes_that_all_readers_understand_are_no_problem(row):
    source = open_source(f"a,b\n{row}\n".encode())
    source.read_header()
    source.place_columns([0, 1])
    assert read_to_the_end(source, 3).decode().endswith(f"{row}\n")
    source.check()
