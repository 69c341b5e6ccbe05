"""Answers that need no key and are the same for everybody are made once, whatever the
number of requests.
"""

import gzip
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.api import fixed_answers, main
from app.api.authentication import WITHOUT_SESSION
from app.api.middleware import PUBLIC_PATHS
from app.core import limits
from grovekeeper_forests import limits as forest_limits
from tests.support.databases import on_one_idle_server
from tests.support.server import Server

pytestmark = on_one_idle_server

FIXED = ["/openapi.json", "/ui/style.css", "/ui/live.js"]


@pytest.mark.parametrize("path", FIXED)
@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_an_answer_that_never_changes_is_not_sent_again(
    idle_server: Server, path: str, coding: str
) -> None:
    stranger, accepts = idle_server.client(None), {"Accept-Encoding": coding}
    first = stranger.get(path, headers=accepts)
    assert (first.status_code, first.headers.get("Content-Encoding", "identity")) == (
        200,
        coding,
    )
    again = stranger.get(
        path, headers=accepts | {"If-None-Match": f'"another", {first.headers["ETag"]}'}
    )
    assert (again.status_code, again.content, again.headers["ETag"]) == (
        304,
        b"",
        first.headers["ETag"],
    )
    assert (
        stranger.get(path, headers=accepts | {"If-None-Match": '"another"'}).content
        == first.content
    )


@pytest.mark.parametrize("path", FIXED)
def test_the_two_forms_of_an_answer_have_two_tags_and_one_content(
    idle_server: Server, path: str
) -> None:
    stranger = idle_server.client(None)
    packed, plain = (
        stranger.get(path, headers={"Accept-Encoding": coding})
        for coding in ("gzip", "identity")
    )
    assert packed.content == plain.content  # httpx unpacks
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"


def test_no_request_renders_or_compresses_what_never_changes(
    idle_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 requests for the document made everybody else wait for 8 s."""
    stranger = idle_server.client(None)
    first = [stranger.get(path).content for path in FIXED]

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("made again")

    for module, name in ((main, "get_openapi"), (fixed_answers.gzip, "compress")):
        monkeypatch.setattr(module, name, never)
    # of this module alone: the log writes JSON, too
    monkeypatch.setattr(main, "json", SimpleNamespace(dumps=never))
    monkeypatch.setattr(gzip.GzipFile, "write", never)
    assert [stranger.get(path).content for path in FIXED] == first


@pytest.mark.parametrize("path", sorted(PUBLIC_PATHS | WITHOUT_SESSION))
@pytest.mark.parametrize(
    "query",
    [
        "a&" * limits.MAX_OPEN_QUERY_FIELDS,
        "next=" + "%2F" * limits.MAX_OPEN_QUERY_BYTES,
    ],
    ids=["many", "long"],
)
def test_a_long_query_is_refused_before_it_is_parsed_also_where_nobody_needs_a_key(
    idle_server: Server, monkeypatch: pytest.MonkeyPatch, path: str, query: str
) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(
        "starlette.datastructures.parse_qsl",
        lambda text, **_: parsed.append(text) or [],
    )
    answer = idle_server.client(None).get(f"{path}?{query}")
    assert (answer.status_code, "".join(parsed)) == (422, "")
    if path in PUBLIC_PATHS:
        (error,) = answer.json()["errors"]
        assert error["problem"] == "query-too-long"
        assert error["accepted"] == [
            f"at most {limits.MAX_OPEN_QUERY_BYTES} bytes and {limits.MAX_OPEN_QUERY_FIELDS} parameters"
        ]


def test_every_cell_that_a_page_offers_fits_into_its_address(
    idle_server: Server,
) -> None:
    partition = {"name": "shard", "kind": "hash", "cells": forest_limits.MAX_HASH_CELLS}
    dataset = idle_server.declared(partitions=[partition])["id"]
    cells = [
        ("cells", f'["shard", {cell}]') for cell in range(forest_limits.MAX_HASH_CELLS)
    ]
    query = str(httpx.QueryParams([*cells, ("epsilon", "1"), ("algorithm", "rpf")]))
    assert len(query) < limits.MAX_QUERY_BYTES
    assert len(cells) < limits.MAX_QUERY_FIELDS
    answer = idle_server.admin.http.get(
        f"/ledger/{dataset}?" + str(httpx.QueryParams({"scope": "x" * 9_000}))
    )
    assert answer.json()["errors"][0]["problem"] == "not-json"
