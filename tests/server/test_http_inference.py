"""The Open Inference Protocol over HTTP: the same answers, permissions and limits as
``/models/{id}/predict``.
"""

import json
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.core import limits
from tests.support.columnar import stream_of
from tests.support.databases import on_one_server
from tests.support.environments import environment, version_in
from tests.support.server import Caller, Server

pytestmark = on_one_server

_SCHEMA = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 100},
        {"name": "hours", "type": "numeric", "lower": 0, "upper": 60, "missing": True},
        {
            "name": "sex",
            "type": "categorical",
            "categories": ["Female", "Male"],
            "missing": True,
        },
    ],
    "label": {"name": "income", "classes": ["low", "high"]},
}
_ROWS = {
    "age": [39, 70, 101],
    "hours": [40.5, None, 2.0],
    "sex": ["Male", None, "else"],
}
_HEADER = "Inference-Header-Content-Length"
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Served:
    """A model behind an alias, and a key that may predict with it."""

    server: Server
    name: str
    model: str
    predictor: Caller

    def infer(
        self, body: bytes | dict[str, Any], *, path: str = "", **headers: str
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.predictor.http.post(
            f"/v2/models/{self.name}{path}/infer", content=content, headers=headers
        )


@pytest.fixture(scope="module")
def served(server: Server) -> Served:
    dataset = server.declared(schema=_SCHEMA)
    lines = (
        f"{age},{age % 60},{('Female', 'Male')[age % 2]},{('low', 'high')[age > 50]}"
        for age in range(100)
    )
    rows = "\n".join(("age,hours,sex,income", *lines))
    uploaded = server.admin.http.post(
        f"/datasets/{dataset['id']}/rows",
        content=rows,
        headers={"Content-Type": "text/csv"},
    )
    assert uploaded.is_success, uploaded.text
    model = server.trained(dataset["id"])["model_id"]
    named = server.admin.http.put(
        f"/datasets/{dataset['id']}/aliases/production", json={"model": model}
    )
    assert named.is_success, named.text
    return Served(
        server,
        f"{dataset['name']}@production",
        model,
        server.granted(dataset["id"], "predictor"),
    )


def _tensors(**changes: Any) -> dict[str, Any]:
    datatypes = {"age": "INT64", "hours": "FP64", "sex": "BYTES"}
    inputs = [
        {"name": name, "datatype": datatypes[name], "shape": [3], "data": cells}
        for name, cells in (_ROWS | changes).items()
    ]
    return {"inputs": inputs}


def _predicted(
    served: Served, *, columns: dict[str, Any] = _ROWS, **options: str
) -> dict[str, Any]:
    path = f"/models/{served.model}/predict"
    return dict(
        served.predictor.http.post(path, json={"columns": columns, **options}).json()
    )


def test_metadata_names_a_tensor_for_each_column(served: Served) -> None:
    card = served.predictor.http.get(f"/v2/models/{served.name}").json()
    assert card == {
        "name": served.name,
        "versions": [served.model],
        "platform": "grovekeeper",
        "inputs": [
            {"name": "age", "datatype": "INT64", "shape": [-1]},
            {"name": "hours", "datatype": "FP64", "shape": [-1]},
            {"name": "sex", "datatype": "BYTES", "shape": [-1]},
        ],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "probabilities", "datatype": "FP64", "shape": [-1, 2]},
        ],
        "classes": ["low", "high"],
    }
    get = served.predictor.http.get
    assert (
        get(f"/v2/models/{served.model}/versions/{served.model}").json()["inputs"]
        == card["inputs"]
    )
    assert get(f"/v2/models/{served.name}/ready").json() == {
        "name": served.name,
        "ready": True,
    }
    assert get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert (get("/v2/health/live").json(), get("/v2/health/ready").json()) == (
        {"live": True},
        {"ready": True},
    )


def test_tensors_in_json_are_answered_as_predict_does(served: Served) -> None:
    answer = served.infer({**_tensors(), "id": "x"})
    expected = _predicted(served)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "model_name": served.name,
        "model_version": served.model,
        "id": "x",
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [3], "data": expected["labels"]},
            {
                "name": "probabilities", "datatype": "FP64", "shape": [3, 2],
                "data": [share for row in expected["probabilities"] for share in row],
            },
        ],
    }  # fmt: skip
    absent = {
        "inputs": [tensor for tensor in _tensors()["inputs"] if tensor["name"] == "age"]
    }
    assert served.infer(absent).is_success, "columns that may be missing may be absent"


def test_tensors_in_bytes_are_answered_in_bytes(served: Served) -> None:
    strings = ["Male", "", "else"]
    contents = [
        struct.pack("<3q", *_ROWS["age"]),
        struct.pack("<3d", 40.5, float("nan"), 2.0),
        b"".join(struct.pack("<I", len(text)) + text.encode() for text in strings),
    ]
    body = {**_tensors(), "parameters": {"binary_data_output": True}}
    for tensor, content in zip(body["inputs"], contents, strict=True):
        del tensor["data"]
        tensor["parameters"] = {"binary_data_size": len(content)}
    head = json.dumps(body).encode()
    answer = served.infer(
        b"".join((head, *contents)),
        path=f"/versions/{served.model}",
        **{_HEADER: str(len(head)), "Content-Type": "application/octet-stream"},
    )
    assert answer.headers["content-type"] == "application/octet-stream"
    length = int(answer.headers[_HEADER])
    label, probabilities = json.loads(answer.content[:length])["outputs"]
    expected, rest = _predicted(served), answer.content[length:]
    size = label["parameters"]["binary_data_size"]
    assert rest[:size] == b"".join(
        struct.pack("<I", len(text)) + text.encode() for text in expected["labels"]
    )
    assert probabilities["parameters"]["binary_data_size"] == len(rest) - size == 48
    shares = [share for row in expected["probabilities"] for share in row]
    assert list(struct.unpack("<6d", rest[size:])) == shares


def test_the_server_describes_itself_without_a_key_and_its_models_do_not(
    served: Served,
) -> None:
    nobody = served.server.client(None)
    paths = (
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
        f"/v2/models/{served.model}/ready",
        "/v2/models/md_x",
    )
    assert [nobody.get(path).status_code for path in paths] == [200, 200, 200, 401, 401]
    assert nobody.get("/v2").json().keys() == {"name", "version", "extensions"}


def test_members_of_other_programs_change_no_answer(served: Served) -> None:
    plain, foreign = (
        _tensors(),
        _tensors()
        | {"model_name": "x", "parameters": {"content_type": "pd", "priority": 1}},
    )
    for tensor in foreign["inputs"]:
        tensor["parameters"] = {"content_type": "np"}
    assert served.infer(foreign).json() == served.infer(plain).json()


@pytest.mark.parametrize("n_rows", [1, 100])
def test_requests_of_any_size_are_answered_alike(served: Served, n_rows: int) -> None:
    """On the event loop if they are small, in a thread otherwise; with a version that
    is wrong, neither.
    """
    columns: dict[str, list[Any]] = {
        name: cells[:1] * n_rows for name, cells in _ROWS.items()
    }
    body = _tensors(**columns)
    for tensor in body["inputs"]:
        tensor["shape"] = [n_rows]
    for _ in range(2):  # the first has no authority in the cache yet
        answered = served.infer(body).json()["outputs"][0]["data"]
        assert answered == _predicted(served, columns=columns)["labels"]
        refused = served.infer(body, path="/versions/md_x")
        assert refused.status_code == 404
        assert f"no such version; the only one is {served.model}" in refused.text
        assert served.infer(body, path=f"/versions/{served.model}").is_success


def test_outputs_and_the_read_out_are_chosen(served: Served) -> None:
    chosen = {"outputs": [{"name": "probabilities"}], "parameters": {"read_out": "mv"}}
    (only,) = served.infer(_tensors() | chosen).json()["outputs"]
    shares = _predicted(served, read_out="mv")["probabilities"]
    assert only["data"] == [share for row in shares for share in row]
    for wrong in (
        {"outputs": [{"name": "x"}]},
        {"outputs": [{"name": "label"}] * 2},
        {"parameters": {"read_out": "x"}},
    ):
        assert served.infer(_tensors() | wrong).status_code == 422


def test_errors_have_the_member_of_the_protocol_and_are_problems(
    served: Served,
) -> None:
    http = served.predictor.http
    nobody = served.server.client(None).get(f"/v2/models/{served.name}")
    foreign = served.server.granted(served.server.declared()["id"], "owner").http.get(
        f"/v2/models/{served.name}"
    )
    lying = served.infer(json.dumps(_tensors()).encode(), **{_HEADER: "99999"})
    wrong = served.infer(_tensors(age=[1, None, 3]))
    long = served.infer(b" " * (limits.MAX_PREDICTION_BODY_BYTES + 1))
    places = [
        served.infer(body).json()["errors"][0]["at"]
        for body in (_tensors(hours="x"), {"inputs": [{}]}, {})
    ]
    assert places == ["/inputs/1/data", "/inputs/0/name", "/inputs"]
    assert (
        served.infer(_tensors() | {"parameters": {"read_out": "x"}}).json()["errors"][
            0
        ]["at"]
        == "/parameters/read_out"
    )
    answers = [
        (nobody, 401), (foreign, 404), (http.get(f"/v2/models/{served.name}/versions/md_x"), 404), (lying, 400),
        (wrong, 422), (long, 413), (http.get("/v2/nothing"), 404), (http.put("/v2"), 405), (http.get("/v2?a=1"), 422),
    ]  # fmt: skip
    for answer, status in answers:
        problem = answer.json()
        assert (answer.status_code, problem["status"]) == (status, status), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["error"].startswith(problem["detail"])
    assert "/inputs/age" in wrong.json()["error"]
    tensor = _tensors()["inputs"][0]
    unknown = served.infer({"inputs": [tensor | {"name": "ages", "shape": [2, 2, 2]}]})
    assert unknown.json()["error"].endswith(": /inputs unknown-column ages")
    assert "error" not in http.get("/models/md_x").json()


@pytest.mark.long
def test_tritonclient_predicts_with_json_and_with_binary_tensors(
    served: Served, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    python = environment("inference", tmp_path / "venv")
    record_property("version", version_in(python, "tritonclient"))
    program = _ROOT / "docs" / "examples" / "inference_client.py"
    arguments = (served.server.url, served.predictor.key, served.name)
    done = subprocess.run(
        [python, program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines.pop(0) == ["ready", "True"]
    for form, hours in (("binary", _ROWS["hours"]), ("json", [40.5, 0.0, 2.0])):
        expected = _predicted(served, columns=_ROWS | {"hours": hours})
        assert lines.pop(0) == [form, *expected["labels"]]
        assert [
            [float(share) for share in lines.pop(0)] for _ in expected["labels"]
        ] == expected["probabilities"]
    assert not lines


def test_cells_that_the_model_does_not_see_as_they_are_are_counted(
    served: Served,
) -> None:
    path, http = f"/models/{served.model}/predict", served.predictor.http
    columns = {
        "age": [39, 1_000, -1],
        "hours": [40.5, None, 2.0],
        "sex": ["Male", "else", ""],
    }
    rows = [
        dict(zip(columns, cells, strict=True))
        for cells in zip(*columns.values(), strict=True)
    ]
    expected = {"clamped": {"age": 2}, "unseen": {"sex": 1}}
    before = _changed(served)
    for body in ({"columns": columns}, {"rows": rows}):
        assert (
            http.post(path, json=body | {"counts": True}).json()["counts"] == expected
        )
        assert http.post(path, json=body | {"counts": False}).json()["counts"] is None
        assert http.post(path, json=body).json()["counts"] is None
    assert http.post(path, json={"rows": rows[:1], "counts": True}).json()[
        "counts"
    ] == {"clamped": {}, "unseen": {}}
    table = pa.table(columns).replace_schema_metadata({"counts": "true"})
    answer = http.post(
        path,
        content=stream_of(table),
        headers={"Content-Type": "application/vnd.apache.arrow.stream"},
    )
    assert (
        json.loads(pa.ipc.open_stream(answer.content).schema.metadata[b"counts"])
        == expected
    )
    assert served.infer(_tensors(**columns)).is_success
    assert _changed(served) - before == {"clamped": 16, "unseen": 8}, (
        "of eight requests"
    )
    assert http.post(path, json={"rows": rows, "counts": "yes"}).status_code == 422


def _changed(served: Served) -> Counter[str]:
    families = text_string_to_metric_families(
        served.server.admin.http.get("/metrics").text
    )
    samples = [
        sample
        for family in families
        for sample in family.samples
        if sample.name.startswith(_CHANGED_CELLS)
    ]
    assert all(sample.labels.keys() == {"change"} for sample in samples), (
        "no name of a column"
    )
    return Counter({sample.labels["change"]: int(sample.value) for sample in samples})


_CHANGED_CELLS = "grovekeeper_changed_cells"
