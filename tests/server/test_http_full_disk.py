"""A disk that is full or fails is 503 with ``Retry-After``: nothing of an upload is
stored, and it can be repeated.
"""

import errno
import os
import tempfile
from typing import Any, NoReturn

import pytest

from app.cli import serve
from app.core import files, limits
from tests.support.databases import on_one_server
from tests.support.disks import free_bytes
from tests.support.server import CSV, Server, csv_rows

_RECEIVED, _STORED = (tempfile, "TemporaryFile"), (files, "new_file")


@on_one_server
@pytest.mark.parametrize(
    ("step", "code"),
    [
        (_RECEIVED, errno.ENOSPC), (_STORED, errno.ENOSPC), (_STORED, errno.EFBIG), (_STORED, errno.EROFS),
        (_RECEIVED, errno.EIO), (_STORED, errno.EIO), (_STORED, errno.ENOTDIR), (_RECEIVED, errno.EMFILE),
        (_STORED, errno.ENOENT),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else errno.errorcode[value],
)  # fmt: skip
def test_an_upload_to_a_full_disk_can_be_repeated(
    server: Server, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], code: int
) -> None:
    def fail(*_arguments: Any, **_options: Any) -> NoReturn:
        raise OSError(code, os.strerror(code))

    rows = f"/datasets/{server.declared()['id']}/rows"
    before = server.footprint()
    with monkeypatch.context() as broken:
        broken.setattr(*step, fail)
        answer = server.admin.http.post(rows, content=csv_rows(3), headers=CSV)
    assert (answer.status_code, answer.json()["type"]) == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) > 1
    assert server.footprint() == before
    assert (
        server.admin.http.post(rows, content=csv_rows(3), headers=CSV).status_code
        == 201
    )


@on_one_server
@pytest.mark.parametrize("content", [None, b"other bytes"])
def test_a_model_whose_file_is_lost_or_damaged_is_not_gone(
    server: Server, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    # it would load the newest model into the cache
    monkeypatch.setattr(serve, "prepare_newest", lambda _: None)
    model_id = server.trained(server.uploaded()["id"])["model_id"]
    (digest,) = (
        item["digest"]
        for item in server.admin.http.get("/models").json()["models"]
        if item["id"] == model_id
    )
    file = server.settings.home / "artifacts" / digest[:2] / f"{digest}.safetensors"
    file.rename(file.with_suffix(".away"))
    if content is not None:
        file.write_bytes(content)
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", f"/models/{model_id}", {}),
        ("GET", f"/models/{model_id}/artifact", {}),
        ("GET", f"/models/{model_id}/artifact?format=onnx", {}),
        ("POST", f"/models/{model_id}/predict", {"json": {"rows": [{"age": 30}]}}),
        ("POST", f"/models/{model_id}/evaluations/quote", {"json": {"epsilon": "0.1"}}),
    ]
    for method, path, options in calls:
        answer = server.admin.http.request(method, path, **options)
        assert (answer.status_code, answer.json()["type"]) == (503, "unavailable"), path
        assert int(answer.headers["Retry-After"]) > 1
    file.with_suffix(".away").replace(file)
    for method, path, options in calls:
        assert server.admin.http.request(method, path, **options).status_code == 200, (
            path
        )


@pytest.mark.parametrize(("more", "status"), [(-1, 503), (0, 200)])
def test_a_process_without_disk_is_not_ready(
    server: Server, more: int, status: int
) -> None:
    with free_bytes(limits.MIN_FREE_DISK_BYTES + more):
        assert server.client(None).get("/readyz").status_code == status
        assert server.admin.http.get("/ledger").status_code == 200, (
            "what needs no space is answered"
        )
