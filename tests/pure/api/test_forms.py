"""Forms with a file are split at their boundary, however the body is cut into chunks."""

import pytest

from app.api.pages.forms import utc
from app.core import limits
from app.core.errors import InvalidRequest, MalformedRequest
from grovekeeper_forests.errors import GrovekeeperError
from tests.support.file_forms import BOUNDARY, FILE, body_of, read_body


@pytest.mark.parametrize("step", [1, 2, 7, 64, 10_000])
def test_a_file_comes_out_as_it_was_sent(step: int) -> None:
    form = read_body(body_of(), step=step)
    assert (form.fields, form.file_name, b"".join(form.chunks)) == (
        {"once": "a" * 22},
        "rows.csv",
        FILE,
    )


def test_an_empty_file_is_a_file() -> None:
    assert b"".join(read_body(body_of(b""), step=50).chunks) == b""


def test_a_large_file_is_passed_on_in_pieces() -> None:
    file = b"x" * 100_000
    chunks = read_body(body_of(file), step=1_000).chunks
    assert b"".join(chunks) == file
    assert max(map(len, chunks)) < 2_000


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (body_of(name=""), InvalidRequest),
        (body_of()[:-30], MalformedRequest),
        (body_of(field="a" * (limits.MAX_FORM_PART_BYTES + 100)), MalformedRequest),
        (f"--{BOUNDARY}--\r\n".encode(), InvalidRequest),
        (b"no form", MalformedRequest),
        (b"", MalformedRequest),
        (body_of().replace(b'name="once"', b"no-name"), MalformedRequest),
        (
            f'--{BOUNDARY}\r\nx; name="a"\r\n\r\n\r\n'.encode()
            * limits.MAX_FIELDS_BEFORE_FILE
            + body_of(),
            MalformedRequest,
        ),
    ],
    ids=[
        "no file chosen",
        "cut off",
        "long field",
        "no part",
        "no boundary",
        "nothing",
        "no name",
        "many fields",
    ],
)
def test_what_is_no_such_form_is_refused(
    body: bytes, error: type[GrovekeeperError]
) -> None:
    with pytest.raises(error):
        read_body(body, step=100)
    with pytest.raises(error):
        read_body(body, step=100_000)


def test_a_form_of_another_site_is_refused() -> None:
    with pytest.raises(MalformedRequest):
        read_body(body_of(), step=100, origin="http://elsewhere")


@pytest.mark.parametrize(
    ("typed", "time"),
    [
        ("", None),
        (" 2030-12-31T12:00 ", "2030-12-31T12:00:00Z"),
        ("2030-12-31T12:00:07", "2030-12-31T12:00:07Z"),
        ("2030-12-31T12:00:07Z", "2030-12-31T12:00:07Z"),
        ("2030-12-31T12:00:00-05:00", "2030-12-31T12:00:00-05:00"),
        ("tomorrow", "tomorrow"),
    ],
)
def test_no_zone_of_a_time_is_cut_off(typed: str, time: str | None) -> None:
    assert utc(typed) == time
