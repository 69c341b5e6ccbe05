"""Private values that are planted in every path, failures included, and the keys of
stored rows are found nowhere.

Searched are all answers, the logs and outputs of all processes, what the kernel shows
of the processes, the database, the home with artifacts and temporary files, and the
exports of ledgers.
"""

import base64
import errno
import gzip
import logging
import os
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pytest
from safetensors.numpy import load

from app.core import files, limits
from app.core.sealed_files import StorageKeys
from app.datasets import catalog, row_files
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.catalogue import BY_SLUG
from grovekeeper_forests.contract.algorithm import TwoDatasetAlgorithm
from grovekeeper_forests.privacy.events import Adjacency
from tests.support.canaries import Canaries
from tests.support.canary_search import Search
from tests.support.canary_walk import DECLARATION, HEADER, Walk
from tests.support.columnar import stream_of
from tests.support.forked_program import ForkedProgram
from tests.support.raw_requests import received
from tests.support.server import (
    CSV,
    Caller,
    Server,
    declaration,
    new_idempotency_key,
    training,
    worker,
)
from tests.support.waiting import wait_for

SHORT = ("rpf", "rdt-ta", "sspe-1")
OF_ROWS = [
    slug
    for slug, algorithm in BY_SLUG.items()
    if "pure" in algorithm.accountants
    and algorithm.adjacency is Adjacency.ADD_REMOVE_ONE
]
"""A label account publishes features, so canaries would be found."""


def _uploads(walk: Walk, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads that are stored, refused, cut off and repeated."""
    it, row = walk.canaries, f"5,1.5,red,{walk.canaries.text('patient x')},EU,low\n"
    walk.upload(dataset, "rows", walk.rows("rows").encode(), 201)
    packed = gzip.compress(walk.rows("packed").encode())
    walk.upload(dataset, "packed", packed, 201, **{"Content-Encoding": "gzip"})
    key, repeated = new_idempotency_key(), (HEADER + "\n" + row).encode()
    walk.upload(dataset, "one row", repeated, 201, **key)
    walk.upload(dataset, "one row", repeated, 201, **key)
    walk.upload(dataset, "another body", repeated + row.encode(), 422, **key)
    name = it.text("column name")
    refused = {
        "unknown column": f"{HEADER},{name}\n{row}",
        "no header": row,
        "duplicate column": f"{HEADER},amount\n{row.strip()},{it.integer('duplicate amount')}\n",
        "missing column": f"amount,{name}\n5,{it.text('cell')}\n",
        "no number": f"{HEADER}\n{row}{it.text('no number')},1.5,red,p,EU,low\n",
        "no integer": f"{HEADER}\n{it.number('no integer')},1.5,red,p,EU,low\n",
        "ragged": f"{HEADER}\n{row}{it.text('ragged')}\n{it.text('ragged')},{it.text('cell')}\n",
        "quote": f'{HEADER}\n{row}5,1.5,"{it.text("open quote")},p,EU,low\n',
        "control": f"{HEADER}\n{it.text('before a NUL')}\0,1.5,red,p,EU,low\n",
        "long line": f"{HEADER}\n{it.text('long line') * 100_000},1.5,red,p,EU,low\n",
    }  # fmt: skip
    for kind, refused_body in refused.items():
        walk.upload(dataset, kind, refused_body.encode(), 413, 422)
    walk.upload(
        dataset,
        "encoding",
        f"{HEADER}\n{it.text('encoding')}".encode() + b"\xff\xfe,1.5,red,p,EU,low\n",
        422,
    )
    walk.upload(
        dataset, "broken gzip", packed[:-9], 400, **{"Content-Encoding": "x-gzip"}
    )
    walk.upload(dataset, "no gzip", row.encode(), 400, **{"Content-Encoding": "gzip"})
    walk.upload(
        dataset,
        "media type",
        row.encode(),
        415,
        **{"Content-Type": f"text/{it.text('media type')}"},
    )
    walk.upload(
        dataset,
        "malformed key",
        row.encode(),
        422,
        **{"Idempotency-Key": it.text("key") + " x"},
    )
    with monkeypatch.context() as limited:
        limited.setattr(forest_limits, "MAX_ROWS_PER_DATASET", 50)
        walk.upload(dataset, "too many rows", walk.rows("many").encode(), 413)
    with monkeypatch.context() as limited:
        limited.setattr(limits, "MAX_UPLOAD_BODY_BYTES", 500)
        walk.upload(dataset, "too many bytes", walk.rows("large").encode(), 413)
    steps: list[tuple[Any, str]] = [(tempfile, "TemporaryFile"), (files, "new_file")]
    for step in steps:
        with monkeypatch.context() as filled:
            filled.setattr(*step, _full)
            walk.upload(
                dataset, f"full disk at {step[1]}", walk.rows("full").encode(), 503
            )
    _aborted_upload(walk, dataset)
    for unit, status in (("patient rows 3", 200), ("patient nowhere", 404)):
        walk.ask(
            walk.owner,
            "POST",
            f"/datasets/{dataset}/erasures",
            status,
            json={"unit": it.text(unit)},
        )
    walk.ask(
        walk.owner,
        "POST",
        f"/datasets/{dataset}/erasures",
        422,
        json={it.text("field"): it.text("unit")},
    )


def _full(*_arguments: Any, **_options: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _aborted_upload(walk: Walk, dataset: str) -> None:
    """Sends the head and half of the body, then goes away."""
    body = walk.rows("aborted", 10_000).encode()
    head = (
        f"POST /datasets/{dataset}/rows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {walk.owner.key}\r\n"
        f"Content-Type: text/csv\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(walk.server.url).port or 0), timeout=60
    ) as connection:
        connection.sendall(head.encode() + body[: len(body) // 2])
        wait_for("the text is spooled", lambda: any(walk.server.sizes_of_spools()))


def _requests(walk: Walk, caller: Caller, dataset: str, model: str) -> None:
    """Requests with canaries in every place of a request that is not for names."""
    it = walk.canaries
    odd, large, http = it.text("request"), it.integer("requested amount"), caller.http
    for path in (
        f"/{odd}", f"/datasets/{odd}", f"/jobs/{odd}", f"/jobs/{odd}/events", f"/models/{odd}",
        f"/models/{odd}/artifact",
        f"/models/{model}/artifact?format={odd}", f"/datasets?cursor={odd}", f"/datasets?limit={odd}", f"/ledger/{odd}",
        f"/ledger/{dataset}?scope={odd}", f'/ledger/{dataset}?scope={{"{odd}":["{odd}"]}}', f"/profiles/{odd}",
        f'/ledger/{dataset}?scope={{"region":["{odd}"]}}', f"/evaluations/{odd}", f"/jobs?cursor={odd}&{odd}={odd}",
        f"/ledger/{dataset}/entries?cursor={odd}", f"/ledger/{dataset}/proofs?sequence={odd}",
    ):  # fmt: skip
        walk.ask(http, "GET", path)
        walk.ask(http, "DELETE", path)
    for headers in (
        {"Authorization": f"Bearer {odd}"}, {"Authorization": f"Bearer {odd}.{odd * 3}"}, {"Authorization": odd},
        {"X-Request-Id": odd}, {"Cookie": f"{odd}={odd}"}, {"User-Agent": odd}, {"Accept": odd}, {odd: odd},
        {"Content-Type": odd}, {"Content-Encoding": odd}, {"Idempotency-Key": odd * 20},
    ):  # fmt: skip
        walk.ask(http, "GET", "/datasets", headers=headers)
        walk.ask(http, "POST", "/plans", headers=headers, json=training(dataset))
    bodies: list[dict[str, Any]] = [
        {odd: odd}, training(odd), training(dataset, algorithm=odd), training(dataset, epsilon=odd),
        training(dataset, parameters={odd: 1}), training(dataset, parameters={"n_estimators": odd}),
        training(dataset, scope={odd: [odd]}), training(dataset, scope={"region": [odd]}),
        training(dataset, profile=odd),
        training(dataset, delta=odd), training(dataset, unlabelled={"dataset": odd, "epsilon": "1"}),
        training(dataset, epsilon="1000", name=None),
    ]  # fmt: skip
    for path in (
        "/plans",
        "/train",
        f"/datasets/{dataset}/profiles",
        f"/models/{model}/evaluations",
        "/evaluations",
    ):
        for body in bodies:
            walk.ask(http, "POST", path, json=body, headers=new_idempotency_key())
        for content in (
            f'{{"{odd}": ',
            f'["{odd}"]',
            f'{{"epsilon": {large}1e999}}',
            f'"{odd}"',
        ):
            walk.ask(
                http,
                "POST",
                path,
                content=content,
                headers=CSV | {"Content-Type": "application/json"},
            )
    wrong = DECLARATION["schema"] | {
        "features": [{"name": "a", "type": odd}, {"name": "b", "lower": odd}]
    }
    walk.ask(walk.owner, "POST", "/datasets", 422, json=declaration(schema=wrong))
    walk.ask(
        walk.owner,
        "POST",
        "/datasets",
        422,
        json=declaration(budget={"accountant": odd, odd: odd}),
    )
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(walk.server.url).port or 0), timeout=60
    ) as connection:
        connection.sendall(f"{odd} {odd}\r\n{odd}\r\n\r\n".encode())
        walk.answers.append(("malformed head", received(connection)))


def _predictions(walk: Walk, caller: Caller, model: str) -> None:
    """Predictions on canaries, accepted and refused."""
    it, path = walk.canaries, f"/models/{model}/predict"
    row = {
        "amount": it.integer("predicted amount"),
        "height": it.number("predicted height"),
        "colour": "red",
    }
    odd = it.text("prediction")
    for rows in (
        [row], [{**row, "colour": odd}], [{**row, "amount": it.integer("large") * 1000}],
        [{**row, "amuont": it.integer("misnamed")}],
        [{**row, "height": odd}], [{**row, "amount": it.number("no integer")}], [{"colour": odd}], [odd], odd,
    ):  # fmt: skip
        walk.ask(caller, "POST", path, json={"rows": rows})
    for body in (
        {"columns": {"amount": [row["amount"]], "amuont": [odd]}},
        {odd: odd},
        {"rows": [row], "read_out": odd},
        {},
    ):
        walk.ask(caller, "POST", path, json=body)
    many = {"rows": [row] * (forest_limits.MAX_PREDICTION_ROWS + 1)}
    walk.ask(caller, "POST", path, 413, json=many)
    walk.ask(
        caller, "POST", path, 415, content=odd, headers={"Content-Type": f"text/{odd}"}
    )
    arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
    for content in (
        odd.encode(),
        *(
            stream_of(pa.Table.from_pylist([cells]))
            for cells in (row, {**row, "amuont": odd})
        ),
    ):
        walk.ask(caller, "POST", path, 200, 400, 422, content=content, headers=arrow)
    walk.ask(caller, "POST", path, 400, content=f'{{"rows": [{{"amount": {odd}')


LONG = {"parameters": {"n_estimators": 512, "max_depth": 8}}
"""A job that most often is still running when the test looks for its child."""


@contextmanager
def _stopped_child(
    walk: Walk, dataset: str, process: ForkedProgram
) -> Iterator[tuple[str, psutil.Process]]:
    """Submits jobs until the child of a charged one is stopped, and yields both; the
    child goes on at the end, if it still exists.
    """
    deadline = time.monotonic() + 240
    while True:
        job = walk.submitted("/train", training(dataset, **LONG))
        while not walk.owner.http.get(f"/jobs/{job}").json()["charged"]:
            assert time.monotonic() < deadline, "the job is charged"
            time.sleep(0.002)
        # that of an ended job may be the child of the next one
        with suppress(IndexError, psutil.NoSuchProcess):
            child = psutil.Process(process.pid).children()[0]
            child.suspend()
            if walk.owner.http.get(f"/jobs/{job}").json()["state"] == "running":
                break
            child.resume()
    yield job, child
    with suppress(psutil.NoSuchProcess):
        child.resume()


def _jobs(
    walk: Walk, dataset: str, second: str, algorithms: tuple[str, ...]
) -> list[str]:
    """Runs jobs of every kind; returns ids of models."""
    path, models = f"/datasets/{dataset}/profiles", list[str]()
    walk.ask(walk.owner, "POST", f"{path}/quote", 200, json={"epsilon": "1"})
    assert walk.ended(walk.submitted(path, {"epsilon": "1"}))["state"] == "succeeded"
    for algorithm in algorithms:
        parameters = (
            {"n_estimators": 2}
            if "n_estimators" in [each.name for each in BY_SLUG[algorithm].parameters]
            else {}
        )
        body = training(
            dataset, algorithm=algorithm, parameters=parameters, scope={"shard": [0]}
        )
        if isinstance(BY_SLUG[algorithm], TwoDatasetAlgorithm):
            body["unlabelled"] = {"dataset": second, "epsilon": "1"}
        walk.ask(walk.owner, "POST", "/plans", 200, json=body)
        job = walk.ended(walk.submitted("/train", body))
        assert job["state"] == "succeeded", (algorithm, job)
        models.append(job["model_id"])
    fields = {"epsilon": "1", "scope": {"shard": [1]}}
    evaluated = [
        (
            f"/models/{models[0]}/evaluations",
            {**fields, "metrics": ["accuracy", "auroc", "confusion"]},
        ),
        ("/evaluations", {**fields, "models": models[:2]}),
    ]
    for path, body in evaluated:
        job = walk.ended(walk.submitted(path, body))
        assert job["state"] == "succeeded", job
        walk.ask(walk.owner, "GET", f"/evaluations/{job['evaluation_id']}", 200)
    return models


def _numbers(walk: Walk) -> str:
    """Releases of each kind about a label that is a number; returns the id of a model."""
    schema = DECLARATION["schema"] | {
        "label": {"name": "income", "type": "number", "lower": 0, "upper": 3}
    }
    dataset = walk.declared(schema=schema)
    path = f"/datasets/{dataset}"
    walk.upload(dataset, "numbers", walk.rows_of_numbers().encode(), 201)
    spending = {"epsilon": "1", "scope": {"shard": [0]}}
    profile = walk.ended(walk.submitted(f"{path}/profiles", spending))
    walk.ask(walk.owner, "GET", f"/profiles/{profile['profile_id']}", 200)
    body = training(dataset, algorithm="rpf", **spending)
    body["profile"] = profile["profile_id"]
    jobs = [walk.ended(walk.submitted("/train", body)) for _ in range(2)]
    model, other = (str(job["model_id"]) for job in jobs)
    row = {"amount": 5, "height": 1.5, "colour": "red"}
    walk.ask(walk.owner, "POST", f"/models/{model}/predict", 200, json={"rows": [row]})
    for sent, body in (
        (f"/models/{model}/evaluations", {"metrics": ["mae", "rmse", "r2"]}),
        ("/evaluations", {"models": [model, other], "winner_accuracy": True}),
    ):
        job = walk.ended(walk.submitted(sent, spending | body))
        walk.ask(walk.owner, "GET", f"/evaluations/{job['evaluation_id']}", 200)
    for shown in ("", "/artifact", "/artifact?format=onnx"):
        walk.ask(walk.owner, "GET", f"/models/{model}{shown}", 200)
    return model


def _failures(walk: Walk, search: Search, process: ForkedProgram, dataset: str) -> None:
    """Jobs that end in every way but well, while their rows are in memory."""
    with _stopped_child(walk, dataset, process) as (job, child):
        search.processes(os.getpid(), process.pid, child.pid)
        search.files()
        assert resource.prlimit(child.pid, resource.RLIMIT_CORE) == (0, 0), (
            "no core dump with rows"
        )
        child.kill()
    assert walk.ended(job)["reason"] == "failed"
    with _stopped_child(walk, dataset, process) as (job, child):
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (10, 10))  # the disk is full
    assert walk.ended(job)["reason"] == "failed"
    with _stopped_child(walk, dataset, process) as (job, child):
        walk.ask(walk.owner, "DELETE", f"/jobs/{job}", 200)
        child.wait(timeout=240)
    home = walk.server.settings.home
    (file,) = (home / row_files.ROWS_FOLDER / dataset).glob("*.parquet")
    content = file.read_bytes()
    torn = (
        content[: len(content) // 3]
        + walk.canaries.text("damaged").encode()
        + content[len(content) // 3 :]
    )
    for damaged in (walk.canaries.text("no rows").encode(), torn):
        file.write_bytes(damaged)
        assert (
            walk.ended(walk.submitted("/train", training(dataset)))["reason"]
            == "damaged"
        )
        walk.ask(
            walk.owner,
            "POST",
            f"/datasets/{dataset}/erasures",
            json={"unit": walk.canaries.text("patient x")},
        )
        walk.ask(walk.owner, "GET", f"/datasets/{dataset}/overlaps")
    file.write_bytes(content)
    with _stopped_child(walk, dataset, process) as (job, child):
        walk.ask(walk.owner, "DELETE", f"/datasets/{dataset}", 204)
        child.wait(timeout=240)
    walk.ended(job)


def _exports(walk: Walk, dataset: str, models: list[str]) -> None:
    """Everything that any role may read."""
    callers = [
        walk.server.admin,
        *(
            walk.server.granted(dataset, role)
            for role in ("auditor", "analyst", "predictor")
        ),
    ]
    of_dataset = ("", "/grants", "/profiles", "/overlaps")
    of_ledger = (
        "",
        "/entries",
        "/export",
        "/export?format=csv",
        "/checkpoint",
        "/deployment",
        "/proofs?sequence=1",
    )
    of_model = ("", "/evaluations", "/artifact", "/artifact?format=onnx")
    paths = [
        *(f"/datasets/{dataset}{path}" for path in of_dataset),
        *(f"/ledger/{dataset}{path}" for path in of_ledger),
        *(f"/models/{model}{path}" for model in models for path in of_model),
        "/datasets", "/jobs", "/models", "/ledger", "/audit", "/audit/export", "/audit/checkpoint", "/keys", "/signer",
        "/healthz", "/readyz", "/openapi.json", "/metrics",
    ]  # fmt: skip
    for caller in callers:
        for path in paths:
            walk.ask(caller, "GET", path)


def _tensors(walk: Walk, models: list[str]) -> list[np.ndarray[Any, Any]]:
    files = [
        walk.ask(walk.owner, "GET", f"/models/{model}/artifact", 200).content
        for model in models
    ]
    return [tensor for file in files for tensor in load(file).values()]


def _plant_keys(walk: Walk, *datasets: str) -> None:
    """Makes the storage key and the data keys of datasets canaries."""
    text = (walk.server.settings.home / "storage.key").read_text()
    walk.canaries.key("storage key", base64.b64decode(text))
    with walk.server.database.read() as session:
        for dataset in datasets:
            data_key = catalog.find(session, dataset).data_key(
                StorageKeys.from_text(text)
            )
            walk.canaries.key(f"data key of {dataset}", data_key.secret)


@contextmanager
def _temporary_files_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    folder.mkdir()
    with monkeypatch.context() as changed:
        changed.setenv("TMPDIR", str(folder))
        changed.setattr(tempfile, "tempdir", None)
        yield
    tempfile.tempdir = None


@pytest.mark.parametrize(
    "idle_server",
    [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"],
    indirect=True,
)
@pytest.mark.parametrize(
    "algorithms",
    [SHORT, pytest.param(OF_ROWS, marks=pytest.mark.long)],
    ids=["some algorithms", "every algorithm"],
)
def test_no_private_value_leaves_the_files_of_rows(
    idle_server: Server,
    algorithms: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    walk = Walk(idle_server, Canaries())
    search = Search(idle_server, walk.canaries, folder=tmp_path)
    log = tmp_path / "worker.log"
    with _temporary_files_in(tmp_path / "tmp", monkeypatch):
        first, second, third = (walk.declared() for _ in range(3))
        _plant_keys(walk, first, second, third)
        _uploads(walk, first, monkeypatch)
        walk.upload(second, "second rows", walk.rows("second").encode(), 201)
        walk.upload(third, "third rows", walk.rows("third").encode(), 201)
        walk.ask(walk.owner, "GET", f"/datasets/{first}/overlaps", 200)
        with worker(idle_server.settings, log=log) as process:
            models = _jobs(walk, first, second, algorithms)
            of_numbers = _numbers(walk)
            _failures(walk, search, process, third)
        _requests(walk, walk.owner, first, models[0])
        _predictions(walk, idle_server.granted(first, "predictor"), models[0])
        _exports(walk, first, models)
        walk.ask(walk.owner, "DELETE", f"/models/{models.pop()}", 204)
        for name, answer in walk.answers:
            search.look(name, answer)
        search.files()
        search.database()
        search.processes(os.getpid())
    search.look("log of the server", idle_server.log().encode())
    search.look("output of this process", "".join(capfd.readouterr()).encode())
    assert logging.getLogger().isEnabledFor(logging.DEBUG)
    assert "job ended" in log.read_text()
    assert search.found == {}, (
        f"{len(walk.canaries)} planted, {search.n_places} places, {search.n_bytes} bytes"
    )
    assert (len(walk.canaries) > 400, search.n_places > 700) == (True, True), (
        "the search is not void"
    )
    numbers = walk.canaries.numbers()
    assert not any(
        np.isin(tensor, numbers).any()
        for tensor in _tensors(walk, [*models, of_numbers])
    )
    assert not list((tmp_path / "tmp").iterdir())
