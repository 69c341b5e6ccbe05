"""Exported ONNX models, run as the analyst's guide says, predict as the service does."""

import csv
import json
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import psutil
import pytest

from app.core import processes
from grovekeeper_forests import catalogue
from grovekeeper_forests.contract.algorithm import TwoDatasetAlgorithm
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest.onnx import model as onnx_model
from tests.support.databases import on_one_server
from tests.support.server import Server

pytestmark = on_one_server
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "analyst.md"
ROOMY = {"accountant": "gdp", "epsilon": "3", "delta": "1e-6"}
ROWS: list[dict[str, Any]] = [
    {"age": 20, "height": 1.5, "sex": "Female"},
    {"age": 90, "height": None, "sex": "other"},
    {"age": -5, "height": 99.0, "sex": None},
    {"age": 50.5, "height": 0.5, "sex": "Male"},
]


def inputs(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {
        "age": np.array([[float(row["age"])] for row in rows]),
        "height": np.array(
            [[np.nan if row["height"] is None else row["height"]] for row in rows]
        ),
        "sex": np.array([[row["sex"] or ""] for row in rows], dtype=object),
    }


def taken(server: Server, model: str) -> bytes:
    answer = server.admin.http.get(
        f"/models/{model}/artifact", params={"format": "onnx"}
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    return answer.content


def metadata(session: onnxruntime.InferenceSession) -> Mapping[str, str]:
    facts: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
    return facts


def trained(server: Server, algorithm: str) -> dict[str, Any]:
    """A model of any algorithm, trained on one or two accounts that can pay for it."""
    mechanism = catalogue.algorithm(algorithm)
    budget = {} if mechanism.accountants[0] == "pure" else {"budget": ROOMY}
    protects = {"protects": "label"} if mechanism.adjacency is Adjacency.LABEL else {}
    second = {}
    if isinstance(mechanism, TwoDatasetAlgorithm):
        second = {"unlabelled": {"dataset": server.uploaded(400)["id"], "epsilon": "2"}}
    delta = {"delta": ROOMY["delta"]} if budget else {}
    body = {
        "algorithm": algorithm,
        "epsilon": "2",
        "parameters": {"n_estimators": 5},
        **delta,
        **second,
    }
    return server.trained(server.uploaded(400, **budget, **protects)["id"], **body)


@pytest.mark.parametrize("algorithm", sorted(catalogue.BY_SLUG))
def test_an_exported_model_predicts_as_the_service_does(
    server: Server, algorithm: str
) -> None:
    job = trained(server, algorithm)
    before = server.footprint()
    session = onnxruntime.InferenceSession(taken(server, job["model_id"]))
    *labels, probabilities = session.run(None, inputs(ROWS))
    answer = server.admin.http.post(
        f"/models/{job['model_id']}/predict", json={"rows": ROWS}
    ).json()

    assert probabilities == pytest.approx(np.array(answer["probabilities"]), abs=1e-12)
    # For algorithms that draw labels the file gives probabilities alone: each caller
    # draws its labels.
    assert [label.tolist() for label in labels] == (
        [] if algorithm == "rdt-pa" else [answer["labels"]]
    )
    assert server.footprint() == before, (
        "an export costs nothing and leaves nothing behind"
    )


def test_each_read_out_has_a_file_of_its_own(server: Server) -> None:
    model = trained(server, "rdt-mv")["model_id"]
    path = f"/models/{model}/artifact"
    answered = {}
    for read_out in ("mv", "ta", "pa"):
        answer = server.admin.http.get(
            path, params={"format": "onnx", "read_out": read_out}
        )
        session = onnxruntime.InferenceSession(answer.content)
        assert metadata(session)["read_out"] == read_out
        answered[read_out] = session.run(["probabilities"], inputs(ROWS))[0]
        body = {"rows": ROWS, "read_out": read_out}
        reported = server.admin.http.post(f"/models/{model}/predict", json=body).json()[
            "probabilities"
        ]
        assert answered[read_out] == pytest.approx(np.array(reported), abs=1e-12)

    assert answered["mv"] != pytest.approx(answered["ta"])
    assert (
        taken(server, model)
        == server.admin.http.get(
            path, params={"format": "onnx", "read_out": "mv"}
        ).content
    )
    for wrong, problem in (
        (
            {"format": "onnx", "read_out": "log"},
            {"problem": "unknown-choice", "accepted": ["mv", "ta", "pa"]},
        ),
        ({"read_out": "ta"}, {"problem": "not-with-safetensors"}),
    ):
        refused = server.admin.http.get(path, params=wrong)
        assert (refused.status_code, refused.json()["errors"]) == (
            422,
            [{"at": "/read_out", **problem}],
        )


def test_the_card_travels_with_the_model(server: Server) -> None:
    job = server.trained(server.uploaded()["id"])
    facts = metadata(onnxruntime.InferenceSession(taken(server, job["model_id"])))
    card = server.admin.http.get(f"/models/{job['model_id']}").json()

    assert facts["artifact_sha256"] == card["digest"]
    assert facts["receipt"] == card["receipt"]
    assert json.loads(facts["guarantee"]) == card["guarantee"]
    assert json.loads(facts["schema"]) == card["schema"]
    assert json.loads(facts["ledger"]) == card["ledger"]
    assert taken(server, job["model_id"]) == taken(server, job["model_id"])


def test_a_predictor_cannot_download_onnx(server: Server) -> None:
    dataset = server.uploaded()
    job = server.trained(dataset["id"])
    path = f"/models/{job['model_id']}/artifact?format=onnx"
    predictor = server.granted(dataset["id"], "predictor")

    assert predictor.http.get(path).json()["type"] == "role-missing"
    assert server.caller().http.get(path).status_code == 404
    assert (
        server.admin.http.get(
            f"/models/{job['model_id']}/artifact?format=pickle"
        ).status_code
        == 422
    )


def test_the_guides_program_predicts_with_a_downloaded_model(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line downloads the file, and the guide's program runs unchanged."""
    monkeypatch.chdir(tmp_path)
    job = server.trained(server.uploaded()["id"], algorithm="mrf", epsilon="20")
    download = [
        "models",
        "download",
        job["model_id"],
        "forest.onnx",
        "--format",
        "onnx",
    ]
    done = subprocess.run(
        processes.module_command("app.cli", *download),
        env=processes.module_environment(
            os.environ
            | {
                "GROVEKEEPER_URL": server.url,
                "GROVEKEEPER_API_KEY": server.admin.key,
                "NO_PROXY": "*",
            }
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path("forest.onnx").read_bytes() == taken(server, job["model_id"])

    with Path("new-rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["sex", "age", "height"])
        writer.writeheader()
        writer.writerows(ROWS)
    (program,) = re.findall(
        r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(compile(program, "analyst.md", "exec"), names)
    answer = server.admin.http.post(
        f"/models/{job['model_id']}/predict", json={"rows": ROWS}
    ).json()
    assert names["labels"].tolist() == answer["labels"]
    assert names["probabilities"] == pytest.approx(
        np.array(answer["probabilities"]), abs=1e-12
    )


def test_a_client_that_reads_slowly_holds_no_copy_of_the_file(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, size = server.trained(server.uploaded()["id"])["model_id"], 64 * 2**20
    monkeypatch.setattr(onnx_model, "dumps", lambda *_, **__: b"x" * size)
    process = psutil.Process()  # the server runs in this process
    before = process.memory_info().rss
    with ExitStack() as clients:
        for _ in range(4):
            stream = server.admin.http.stream(
                "GET", f"/models/{model}/artifact", params={"format": "onnx"}
            )
            answer = clients.enter_context(stream)
            assert answer.headers["content-length"] == str(size)
        assert process.memory_info().rss - before < 2 * size
        assert sum(len(piece) for piece in answer.iter_bytes()) == size
