"""Size limits: a request at a public limit is served, a larger one gets 413 in any
encoding and changes nothing.
"""

import gc
import gzip
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest

from app.core import limits
from app.core.files import Directory
from app.services import predict
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.errors import GrovekeeperError
from tests.support.columnar import stream_of
from tests.support.databases import on_one_server
from tests.support.server import (
    CSV,
    Server,
    csv_rows,
    declaration,
    new_idempotency_key,
    training,
)
from tests.support.set_limits import SetLimit

AS_JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    return str(server.trained(server.uploaded()["id"])["model_id"])


def _chunks(content: bytes) -> Iterator[bytes]:
    """Sends the body in chunks, without a Content-Length."""
    for start in range(0, len(content), 1_000):
        yield content[start : start + 1_000]


def _padded(body: dict[str, Any], size: int) -> bytes:
    return json.dumps(body).encode().ljust(size)


def _is_too_large(answer: httpx.Response, limit: int) -> bool:
    assert answer.status_code == 413, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["X-Request-Id"]
    assert (answer.json()["type"], answer.json()["limit"]) == ("too-large", limit)
    return True


@on_one_server
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_a_json_body_fits_its_limit_exactly(
    server: Server, set_limit: SetLimit, chunked: bool
) -> None:
    dataset = server.uploaded()["id"]
    for kind in ("JSON", "DECLARATION"):
        set_limit(f"MAX_{kind}_BODY_BYTES", 4_000)
    http = server.admin.http
    for path, body, accepted in (
        ("/plans", training(dataset), 200),
        ("/train", training(dataset), 202),
        ("/datasets", declaration(), 201),
        ("/keys", {"name": "x", "roles": []}, 201),
    ):
        before = server.footprint()
        over = _padded(body, 4_001)
        headers = AS_JSON | ({} if path == "/keys" else new_idempotency_key())
        assert _is_too_large(
            http.post(
                path, content=_chunks(over) if chunked else over, headers=headers
            ),
            4_000,
        )
        assert server.footprint() == before
        exact = _padded(body, 4_000)
        answer = http.post(
            path, content=_chunks(exact) if chunked else exact, headers=headers
        )
        assert answer.status_code == accepted, (
            "and the key of a refused request is free"
        )


@on_one_server
@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        (
            "/datasets",
            "DECLARATION",
            {"schema": {"features": [], "label": {"name": "y", "classes": []}}},
        ),
        ("/keys", "JSON", {"name": "x", "roles": []}),
        ("/models/{model}/predict", "PREDICTION", {"columns": {"age": []}}),
    ],
)
def test_a_body_of_too_many_values_is_refused_before_one_is_built(
    server: Server, model: str, path: str, kind: str, body: dict[str, Any]
) -> None:
    limit = (
        predict.max_nodes(3)
        if kind == "PREDICTION"
        else getattr(limits, f"MAX_{kind}_BODY_NODES")
    )
    before, started = server.footprint(), time.process_time()
    content = json.dumps(body).replace("[]", f"[{'1,' * limit}1]", 1)
    answer = server.admin.http.post(
        path.format(model=model), content=content, headers=AS_JSON
    )
    assert _is_too_large(answer, limit)
    assert server.footprint() == before
    assert time.process_time() - started < 20


@on_one_server
def test_an_answer_lists_at_most_a_hundred_problems(server: Server) -> None:
    feature = {"name": "", "type": "categorical", "categories": []}
    label = {"name": "y", "classes": ["a", "b"]}

    def problems(**changes: object) -> list[dict[str, str]]:
        wide = declaration(
            schema={"features": [feature | changes] * 2_000, "label": label}
        )
        answer = server.admin.http.post("/datasets", json=wide)
        assert answer.status_code == 422
        return list(answer.json()["errors"])

    assert len(problems()) == forest_limits.MAX_REPORTED_PROBLEMS
    of_first_items = problems(
        categories=[5] * 100, **{f"x{index}": 0 for index in range(60)}
    )
    assert len(of_first_items) <= forest_limits.MAX_REPORTED_PROBLEMS
    assert {"/".join(problem["at"].split("/")[:4]) for problem in of_first_items} == {
        "/schema/features/0",
        "/schema/features/1",
    }, "the others are not read"


@on_one_server
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_a_prediction_body_fits_its_limit_exactly(
    server: Server, model: str, set_limit: SetLimit, chunked: bool
) -> None:
    set_limit("MAX_PREDICTION_BODY_BYTES", 5_000)
    path = f"/models/{model}/predict"
    for size, status in ((5_000, 200), (5_001, 413)):
        content = _padded({"rows": [{"age": 1}]}, size)
        answer = server.admin.http.post(
            path, content=_chunks(content) if chunked else content, headers=AS_JSON
        )
        assert answer.status_code == status
    assert _is_too_large(answer, 5_000)


@on_one_server
def test_ten_thousand_rows_are_predicted_at_once(server: Server, model: str) -> None:
    for body in ({"rows": [{"age": 1}] * 10_000}, {"columns": {"age": [1] * 10_000}}):
        answer = server.admin.http.post(f"/models/{model}/predict", json=body)
        assert (answer.status_code, len(answer.json()["labels"])) == (200, 10_000)


@on_one_server
def test_a_refused_body_is_freed_with_its_answer(server: Server, model: str) -> None:
    """An error in a cycle would keep its traceback, whose frames have the body, until a
    search for cyclic garbage.
    """
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for text in (
            '{"rows": [{"age": "x"}]}',
            '{"rows": [{}, 3]}',
            '{"rows": [' + ",".join(["{}"] * 10_001) + "]}",
        ):
            answer = server.admin.http.post(
                f"/models/{model}/predict", content=text, headers=AS_JSON
            )
            assert answer.status_code in (413, 422)
        gc.collect()
        kept = [
            it
            for it in gc.garbage
            if isinstance(it, GrovekeeperError | msgspec.MsgspecError)
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert kept == []


@on_one_server
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "chunked"])
def test_an_upload_fits_its_limit_exactly(
    server: Server, set_limit: SetLimit, chunked: bool
) -> None:
    rows = f"/datasets/{server.declared()['id']}/rows"
    content = csv_rows(300).encode()
    set_limit("MAX_UPLOAD_BODY_BYTES", len(content))
    before = server.footprint()
    over = content + b"\n"
    answer = server.admin.http.post(
        rows, content=_chunks(over) if chunked else over, headers=CSV
    )
    assert _is_too_large(answer, len(content))
    assert server.footprint() == before, "no epoch, no file"
    answer = server.admin.http.post(
        rows, content=_chunks(content) if chunked else content, headers=CSV
    )
    assert answer.status_code == 201


@on_one_server
def test_uploads_of_a_dataset_end_at_the_limit_of_their_files(
    server: Server, set_limit: SetLimit
) -> None:
    full, other, rows = server.uploaded()["id"], server.declared()["id"], csv_rows(200)
    store = Directory(server.settings.home)
    limit = (
        sum(
            file.size_bytes
            for kind in ("rows", "prints")
            for file in store.files(f"{kind}/{full}")
        )
        * 3
        // 2
    )
    set_limit("MAX_DATASET_BYTES", limit)
    before = server.footprint()
    assert _is_too_large(
        server.admin.http.post(
            f"/datasets/{full}/rows?again=true", content=rows, headers=CSV
        ),
        limit,
    )
    assert server.footprint() == before
    assert (
        server.admin.http.post(
            f"/datasets/{other}/rows", content=rows, headers=CSV
        ).status_code
        == 201
    )


@on_one_server
def test_a_gzip_bomb_ends_at_the_limit_of_what_it_unpacks_to(
    server: Server, set_limit: SetLimit
) -> None:
    rows = f"/datasets/{server.declared()['id']}/rows"
    fits = b"age,height,sex,income\n" + b"1,1,Male,<=50K\n" * 60_000
    set_limit("MAX_UPLOAD_CSV_BYTES", len(fits))
    headers = CSV | {"Content-Encoding": "gzip"}
    before = server.footprint()
    for bomb in (fits + b"\n", fits * 50):
        packed = gzip.compress(bomb)
        assert len(packed) < len(fits) / 4
        assert _is_too_large(
            server.admin.http.post(rows, content=packed, headers=headers), len(fits)
        )
    assert server.footprint() == before
    assert (
        server.admin.http.post(
            rows, content=gzip.compress(fits), headers=headers
        ).status_code
        == 201
    )


@on_one_server
def test_a_forest_that_would_take_hours_is_refused_with_the_number_of_trees_that_would_not(
    server: Server,
) -> None:
    features = [
        {"name": f"x{index}", "type": "numeric", "lower": 0, "upper": 1}
        for index in range(64)
    ]
    schema = {"features": features, "label": {"name": "kind", "classes": ["a", "b"]}}
    dataset = server.declared(schema=schema)["id"]
    header = ",".join(feature["name"] for feature in features)
    rows = f"{header},kind\n{','.join(['0.5'] * 64)},a\n"
    assert (
        server.admin.http.post(
            f"/datasets/{dataset}/rows", content=rows, headers=CSV
        ).status_code
        == 201
    )
    before, http = server.footprint(), server.admin.http

    def refused(path: str, n_trees: int) -> httpx.Response:
        asked = {"n_estimators": n_trees, "max_depth": 10, "at_once": 2}
        body = training(dataset, algorithm="rpf", parameters=asked)
        return http.post(path, json=body, headers=new_idempotency_key())

    quoted, asked = refused("/plans", 1_024), refused("/train", 1_024)
    assert (quoted.status_code, asked.status_code) == (422, 422)
    (problem,) = asked.json()["errors"]
    assert quoted.json()["errors"] == [problem]
    assert (problem["at"], problem["problem"]) == (
        "/parameters/n_estimators",
        "too-large",
    )
    assert server.footprint() == before, "nothing was reserved"
    assert refused("/plans", problem["limit"]).status_code == 200


@on_one_server
@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/train", 256 * 1024),
        ("/datasets", 16 * 1024 * 1024),
        ("/models/md_x/predict", 16 * 1024 * 1024),
        ("/datasets/ds_x/rows", 4 * 1024**3),
    ],
)
def test_a_declared_length_over_the_real_limit_is_refused_before_a_byte_of_it(
    server: Server, path: str, limit: int
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin.key}\r\nContent-Length: {limit + 1}"
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(server.url).port or 0), timeout=60
    ) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n")
        answer = connection.recv(65_536)
        while b"}" not in answer:
            answer += connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["limit"] == limit


@on_one_server
def test_the_largest_declaration_is_accepted_and_priced(server: Server) -> None:
    categories = [f"c{index}" for index in range(255)]
    features: list[dict[str, Any]] = [
        {"name": f"x{index}", "type": "categorical", "categories": ["a", "b"]}
        for index in range(1_997)
    ]
    features += [
        {
            "name": "n" * 128,
            "type": "categorical",
            "categories": categories,
            "missing": True,
        },
        {
            "name": "ordered",
            "type": "categorical",
            "categories": ["x" * 256, "y"],
            "ordered": True,
        },
        {"name": "number", "type": "numeric", "lower": -1e308, "upper": 1e308},
    ]
    schema = {
        "features": features,
        "label": {"name": "y", "classes": [str(index) for index in range(1_000)]},
    }
    dataset = server.declared(
        schema=schema, name=f"{'n' * 52}{new_idempotency_key()['Idempotency-Key'][:12]}"
    )
    assert len(dataset["schema"]["features"]) == 2_000
    for algorithm in ("rdt-ta", "mrf"):
        quote = server.admin.http.post(
            "/plans", json=training(dataset["id"], algorithm=algorithm, parameters={})
        )
        assert quote.status_code == 200, quote.text


@on_one_server
@pytest.mark.parametrize("path", ["/datasets", "/ledger"])
def test_a_page_of_large_declarations_is_short(
    server: Server, set_limit: SetLimit, path: str
) -> None:
    owner = server.caller("owner").http
    names = {
        owner.post("/datasets", json=declaration()).json()["name"] for _ in range(2)
    }
    set_limit("MAX_PAGE_BYTES", 1)
    first = owner.get(path).json()
    second = owner.get(path, params={"cursor": first["next"]}).json()
    pages = [
        [dataset.get("name") or dataset["dataset_name"] for dataset in page["datasets"]]
        for page in (first, second)
    ]
    assert [len(page) for page in pages] == [1, 1]
    assert {name for page in pages for name in page} == names
    assert second["next"] is None


@on_one_server
def test_sixty_four_requests_at_once_from_one_key_are_all_served(
    server: Server,
) -> None:
    body = training(server.uploaded()["id"])
    with ThreadPoolExecutor(64) as pool:
        statuses = list(
            pool.map(
                lambda _: server.admin.http.post("/plans", json=body).status_code,
                range(64),
            )
        )
    assert statuses == [200] * 64


@on_one_server
def test_excess_concurrent_requests_get_a_retry_after(
    server: Server, set_limit: SetLimit
) -> None:
    set_limit("MAX_REQUESTS_IN_FLIGHT", 0)
    answer = server.admin.http.get("/ledger")
    assert (
        answer.status_code,
        answer.json()["type"],
        answer.headers["Retry-After"],
    ) == (429, "too-many-requests", "1")
    assert server.client(None).get("/healthz").status_code == 200, (
        "health is answered however busy"
    )


@on_one_server
def test_every_form_of_a_prediction_counts_rows_times_classes(server: Server) -> None:
    schema = {
        "features": [{"name": "x", "type": "numeric", "lower": 0, "upper": 1}],
        "label": {"name": "kind", "classes": [f"c{number}" for number in range(1_000)]},
    }
    dataset = server.declared(schema=schema)["id"]
    rows = "x,kind\n" + "".join(f"0.5,c{number}\n" for number in range(1_000))
    assert (
        server.admin.http.post(
            f"/datasets/{dataset}/rows", content=rows, headers=CSV
        ).status_code
        == 201
    )
    parameters = {"n_estimators": 1, "max_depth": 1}
    model = server.trained(dataset, algorithm="rdt-ta", parameters=parameters)[
        "model_id"
    ]
    path = f"/models/{model}/predict"
    for n_rows in (1_000, 1_001, 10_000):
        cells = [1] * n_rows
        tensor = {"name": "x", "datatype": "FP64", "shape": [n_rows], "data": cells}
        arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
        answers = [
            server.admin.http.post(path, json={"rows": [{"x": 1}] * n_rows}),
            server.admin.http.post(path, json={"columns": {"x": cells}}),
            server.admin.http.post(
                path, content=stream_of(pa.table({"x": cells})), headers=arrow
            ),
            server.admin.http.post(
                f"/v2/models/{model}/infer", json={"inputs": [tensor]}
            ),
        ]
        for answer in answers:
            assert (
                answer.status_code == 200
                if n_rows == 1_000
                else _is_too_large(answer, 1_000)
            )
