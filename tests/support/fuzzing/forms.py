"""Target that reads forms with a file, as the dashboard's page of uploads receives
them.
"""

from app.core.errors import InvalidRequest, MalformedRequest
from tests.support.file_forms import body_of, read_body


def seeds() -> tuple[bytes, ...]:
    return (
        body_of(),
        body_of(b""),
        body_of(b"\r\n--" * 50, name="rows.csv.gz"),
        body_of(field="")[:-4],
    )


def run(data: bytes) -> bool:
    """A form means the same however it is cut into chunks, and its file is a part of
    the body.
    """
    whole, cut = (_outcome(data, step=step) for step in (len(data) + 1, 13))
    assert whole == cut
    if whole is None:
        return False
    fields, _, file = whole
    assert file in data
    assert len(fields) <= data.count(b"name=")
    return True


def _outcome(data: bytes, *, step: int) -> tuple[dict[str, str], str, bytes] | None:
    try:
        form = read_body(data, step=step)
    except (InvalidRequest, MalformedRequest):
        return None
    return form.fields, form.file_name, b"".join(form.chunks)
