"""A body is JSON in UTF-8, and says so or nothing; any other type is refused with the
types that are accepted.
"""

import json

import pytest

from tests.support.databases import on_one_idle_server
from tests.support.server import Server, declaration

PATHS = [
    "/declarations",
    "/plans",
    "/models/unknown/predict",
    "/v2/models/unknown/infer",
]


def _status(server: Server, path: str, media_type: str) -> tuple[int, str]:
    body = declaration() if path == "/declarations" else {}
    answer = server.admin.http.post(
        path, content=json.dumps(body), headers={"Content-Type": media_type}
    )
    return answer.status_code, answer.json().get("detail", "")


@on_one_idle_server
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "media_type",
    [
        "application/json; charset=utf-8", 'application/json;charset="UTF-8"', "application/json; charset=utf8",
        "Application/JSON ; v=1 ; Charset = utf-8", "application/json; charset=us-ascii", "application/ld+json",
    ],
)  # fmt: skip
def test_json_in_utf_8_is_read(idle_server: Server, path: str, media_type: str) -> None:
    status, detail = _status(idle_server, path, media_type)
    assert status in (200, 404, 422), detail


@on_one_idle_server
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "media_type",
    [
        "text/json", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json", "", "/json",
        "application/json; charset=iso-8859-1", "application/json; charset=utf-16", "application/json; charset=",
        "application/json; v=1; charset='latin1'", "application/ld+json; charset=windows-1252",
    ],
)  # fmt: skip
def test_another_type_or_charset_is_refused_with_what_is_accepted(
    idle_server: Server, path: str, media_type: str
) -> None:
    status, detail = _status(idle_server, path, media_type)
    assert status == 415, detail
    assert "application/json, with charset=utf-8 or without a charset" in detail
