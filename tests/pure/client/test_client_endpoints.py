"""Client methods call their endpoints, stream large bodies, and leave no incomplete
file.
"""

import gzip
import hashlib
import json
import resource
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from app.core import limits
from grovekeeper_client.client import Client
from grovekeeper_client.datasets import Dataset
from grovekeeper_client.errors import ApiProblem, Unreachable
from tests.support.columnar import COLUMNAR, body_of

KEY = "key_test." + "s" * 43
DATASET = {
    "id": "ds_1",
    "schema": {
        "features": [{"name": "age", "type": "integer"}],
        "label": {"name": "income", "classes": ["low"]},
    },
    "partitions": [],
}
Handler = Callable[[httpx.Request], httpx.Response]


def _client(handler: Handler, **options: Any) -> Client:
    return Client(
        "http://grove.test",
        KEY,
        transport=httpx.MockTransport(handler),
        sleep=lambda _s: None,
        **options,
    )


CALLS: list[tuple[Callable[[Client], object], str, str, object]] = [
    (lambda c: c.declare_dataset({"name": "a"}), "POST", "/datasets", {"name": "a"}),
    (lambda c: c.dataset("a"), "GET", "/datasets/a", None),
    (lambda c: c.dataset("../keys"), "GET", "/datasets/..%2Fkeys", None),
    (lambda c: c.delete_dataset("a"), "DELETE", "/datasets/a", None),
    (lambda c: c.grant("a", "key_b", "analyst"), "PUT", "/datasets/a/grants/key_b", {"role": "analyst"}),
    (lambda c: c.revoke_grant("a", "key_b"), "DELETE", "/datasets/a/grants/key_b", None),
    (
        lambda c: c.open_population("p", {"epsilon": "1"}),
        "POST", "/populations", {"name": "p", "budget": {"epsilon": "1"}},
    ),
    (lambda c: c.population("p"), "GET", "/populations/p", None),
    (lambda c: c.join_population("a", "p"), "PUT", "/datasets/a/population", {"population": "p"}),
    (lambda c: c.plan({"dataset": "a"}), "POST", "/plans", {"dataset": "a"}),
    (lambda c: c.train({"dataset": "a"}), "POST", "/train", {"dataset": "a"}),
    (lambda c: c.job("jb_1"), "GET", "/jobs/jb_1", None),
    (lambda c: c.cancel_job("jb_1"), "DELETE", "/jobs/jb_1", None),
    (lambda c: c.model("md_1"), "GET", "/models/md_1", None),
    (lambda c: c.importances("md_1"), "GET", "/models/md_1/importances", None),
    (lambda c: c.tree("md_1", 2), "GET", "/models/md_1/trees/2", None),
    (lambda c: c.compare_models("a@b", "md_2"), "GET", "/models/a%40b/comparison?others=md_2", None),
    (lambda c: c.delete_model("md_1"), "DELETE", "/models/md_1", None),
    (lambda c: c.predict("md_1", {"rows": []}), "POST", "/models/md_1/predict", {"rows": []}),
    (lambda c: c.model("a@b"), "GET", "/models/a%40b", None),
    (lambda c: c.put_alias("a", "b", "md_1"), "PUT", "/datasets/a/aliases/b", {"model": "md_1"}),
    (lambda c: c.delete_alias("a", "b"), "DELETE", "/datasets/a/aliases/b", None),
    (lambda c: c.balance("a"), "GET", "/ledger/a", None),
    (lambda c: c.balance("a", scope={"s": [0]}), "GET", "/ledger/a?scope=%7B%22s%22%3A+%5B0%5D%7D", None),
    (lambda c: c.change_cap("a", "2", reason="r"), "POST", "/ledger/a/cap", {"cap": "2", "reason": "r"}),
    (
        lambda c: c.create_webhook("a", "https://h.test", ["job.ended"]),
        "POST", "/datasets/a/webhooks", {"url": "https://h.test", "events": ["job.ended"], "threshold": None},
    ),
    (lambda c: c.rotate_webhook("a", "wh_1"), "POST", "/datasets/a/webhooks/wh_1/secret", {}),
    (
        lambda c: c.rotate_webhook("a", "wh_1", overlap_s=0),
        "POST", "/datasets/a/webhooks/wh_1/secret", {"overlap_s": 0},
    ),
    (lambda c: c.test_webhook("a", "wh_1"), "POST", "/datasets/a/webhooks/wh_1/test", None),
    (lambda c: c.delete_webhook("a", "wh_1"), "DELETE", "/datasets/a/webhooks/wh_1", None),
    (lambda c: c.deployment("a"), "GET", "/ledger/a/deployment", None),
    (lambda c: c.inclusion("a", 3), "GET", "/ledger/a/proofs?sequence=3", None),
    (lambda c: c.inclusion("a", 3, size=9), "GET", "/ledger/a/proofs?sequence=3&size=9", None),
    (lambda c: c.consistency("a", 3, size=9), "GET", "/ledger/a/proofs?from_size=3&size=9", None),
    (lambda c: c.signer(), "GET", "/signer", None),
    (lambda c: c.quote_external("a", {"per": "row"}), "POST", "/ledger/a/quotes", {"per": "row"}),
    (lambda c: c.charge_external("a", {"per": "row"}), "POST", "/ledger/a/reservations", {"per": "row"}),
    (lambda c: c.reservation("a", "rs_1"), "GET", "/ledger/a/reservations/rs_1", None),
    (lambda c: c.create_key("n", ["admin"]), "POST", "/keys", {"name": "n", "roles": ["admin"], "expires_at": None}),
    (lambda c: c.rotate_key("key_b", expires_at="2027"), "POST", "/keys/key_b/secret", {"expires_at": "2027"}),
    (lambda c: c.revoke_key("key_b"), "DELETE", "/keys/key_b", None),
]  # fmt: skip


@pytest.mark.parametrize(("call", "method", "target", "body"), CALLS)
def test_each_method_calls_its_endpoint(
    call: Callable[[Client], object], method: str, target: str, body: object
) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"answer": 1})

    assert call(_client(handler)) == {"answer": 1}
    assert (seen[0].method, seen[0].url.raw_path.decode()) == (method, target)
    assert seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert (json.loads(seen[0].content) if seen[0].content else None) == body
    assert ("Idempotency-Key" in seen[0].headers) is (
        target
        in (
            "/datasets",
            "/train",
            "/populations",
            "/ledger/a/cap",
            "/ledger/a/reservations",
        )
    )


def test_an_answer_without_a_body_is_an_empty_object() -> None:
    assert _client(lambda _request: httpx.Response(204)).delete_dataset("a") == {}


def test_a_declaration_given_as_bytes_keeps_its_digits() -> None:
    seen: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.content)
        return httpx.Response(201, json={})

    _client(handler).declare_dataset(b'{"budget": {"epsilon": 0.10}}')
    assert seen == [b'{"budget": {"epsilon": 0.10}}']


def test_lists_follow_the_cursor_to_the_end() -> None:
    pages = {None: ([1, 2], "x"), "x": ([3], "y"), "y": ([], None)}

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.params["limit"] == str(limits.MAX_PAGE_SIZE)
        items, following = pages[request.url.params.get("cursor")]
        return httpx.Response(
            200, json={"entries": [{"n": n} for n in items], "next": following}
        )

    assert [entry["n"] for entry in _client(handler).entries("a")] == [1, 2, 3]


@pytest.mark.parametrize("compressed", [False, True])
def test_an_upload_is_streamed_and_gzip_is_passed_through(
    tmp_path: Path, compressed: bool
) -> None:
    text = b"age,income\n" + b"39,low\n" * 100_000
    file = tmp_path / "rows"
    file.write_bytes(gzip.compress(text) if compressed else text)
    sent: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        body = request.read()
        assert request.headers["Content-Type"] == "text/csv"
        assert request.headers["Content-Length"] == str(len(body))
        assert "Transfer-Encoding" not in request.headers
        assert request.headers.get("Content-Encoding") == (
            "gzip" if compressed else None
        )
        assert (gzip.decompress(body) if compressed else body) == text
        return httpx.Response(201, json={"epoch": "ep_1", "columns": []})

    assert (
        _client(handler).upload_rows("a", file, on_progress=sent.append)["epoch"]
        == "ep_1"
    )
    assert sent[0] == 0
    assert sent[-1] == file.stat().st_size
    assert all(0 < later - earlier <= 256 * 1024 for earlier, later in pairwise(sent))


def test_a_file_is_sent_as_what_it_is(tmp_path: Path) -> None:
    table = pa.table({"age": [39, None], "income": ["low", "high"]})
    file, sent = tmp_path / "rows", list[tuple[str, int]]()

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append((request.headers["Content-Type"], len(request.read())))
        return httpx.Response(201, json={"epoch": "ep_1", "columns": []})

    bodies = [body_of(table, form) for form in COLUMNAR]
    for body in bodies:
        file.write_bytes(body)
        Dataset(_client(handler), DATASET).upload(file)
    types = [
        f"application/vnd.apache.{name}"
        for name in ("parquet", "arrow.stream", "arrow.file")
    ]
    assert sent == list(zip(types, map(len, bodies), strict=True))


@pytest.mark.parametrize(
    "as_kind",
    [pa.Table.to_pandas, lambda table: table, lambda table: table.to_batches()[0]],
)
def test_a_table_is_sent_as_an_arrow_file_in_small_batches(
    as_kind: Callable[[pa.Table], Any],
) -> None:
    table = pa.table({"age": list(range(70_000)), "income": ["low"] * 70_000})

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["Content-Type"] == "application/vnd.apache.arrow.file"
        file = pa.ipc.open_file(request.read())
        assert file.read_all().cast(table.schema).equals(table)
        assert file.num_record_batches == 2
        return httpx.Response(201, json={"epoch": "ep_1", "columns": []})

    dataset = Dataset(_client(handler), DATASET)
    assert dataset.upload(as_kind(table))["epoch"] == "ep_1"
    for other in ([{"age": 39}], None):
        with pytest.raises(
            TypeError, match="a file, a DataFrame or an Arrow table, not"
        ):
            dataset.upload(other)


def test_bins_without_their_column_are_not_sent() -> None:
    dataset = Dataset(_client(lambda _request: httpx.Response(500)), DATASET)
    for ask in (dataset.count, partial(dataset.crosstab, "age", "income")):
        with pytest.raises(TypeError, match="several columns are a mapping by name"):
            ask(bins=5)


def test_an_upload_that_broke_off_starts_again_from_the_first_byte_with_the_same_key(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(b"x" * 600_000)
    bodies: list[bytes] = []
    keys: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        keys.append(request.headers["Idempotency-Key"])
        if len(bodies) == 1:
            raise httpx.WriteError("x")
        return httpx.Response(201, json={})

    _client(handler).upload_rows("a", file)
    assert bodies[0] == bodies[1] == file.read_bytes()
    assert keys[0] == keys[1]


def test_a_download_appears_whole_with_its_digest(tmp_path: Path) -> None:
    content = b"m" * 700_000
    file = tmp_path / "model.safetensors"
    digest = _client(
        lambda _request: httpx.Response(200, content=content)
    ).download_model("md_1", file)
    assert file.read_bytes() == content
    assert digest == hashlib.sha256(content).hexdigest()
    assert list(tmp_path.iterdir()) == [file]


def test_a_download_asks_for_a_read_out_only_where_one_is_named(tmp_path: Path) -> None:
    queries: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        queries.append(dict(request.url.params))
        return httpx.Response(200, content=b"model")

    _client(answer).download_model(
        "md_1", tmp_path / "one", artifact_format="onnx", read_out="ta"
    )
    _client(answer).download_model("md_1", tmp_path / "other", artifact_format="onnx")
    assert queries == [{"format": "onnx", "read_out": "ta"}, {"format": "onnx"}]


def test_a_download_that_breaks_off_or_is_refused_leaves_no_file(
    tmp_path: Path,
) -> None:
    def broken() -> Any:
        yield b"half"
        raise httpx.ReadError("x")

    file = tmp_path / "census.jsonl"
    with pytest.raises(Unreachable, match="broke off"):
        _client(lambda _request: httpx.Response(200, content=broken())).export_ledger(
            "a", file
        )
    with pytest.raises(ApiProblem):
        _client(lambda _request: httpx.Response(403)).export_ledger("a", file)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_finds_no_room_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "census.jsonl"
    client = _client(lambda _request: httpx.Response(200, content=b"x" * 100_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large") as full:
            client.export_ledger("a", file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert full.value.filename == str(file)
    assert list(tmp_path.iterdir()) == []


def test_only_other_export_formats_are_named_in_the_query(tmp_path: Path) -> None:
    seen: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, content=b"x")

    client = _client(handler)
    client.export_ledger("a", tmp_path / "a")
    client.export_ledger("a", tmp_path / "b", export_format="csv")
    assert seen == [
        "http://grove.test/ledger/a/export",
        "http://grove.test/ledger/a/export?format=csv",
    ]
