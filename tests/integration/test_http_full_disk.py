"""A disk that is full or fails is 503 with ``Retry-After``: nothing of an upload is stored, and it can be repeated."""

import errno
import os
import shutil
from collections import namedtuple
from typing import Any, NoReturn

import pytest

from app.core import durable, limits
from tests.support.server import CSV, Server, csv_rows

_Usage = namedtuple("_Usage", "total used free")


_RECEIVED, _STORED = (os, "fdopen"), (durable, "new_file")


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
    assert server.admin.http.post(rows, content=csv_rows(3), headers=CSV).status_code == 201


@pytest.mark.parametrize(("more", "status"), [(-1, 503), (0, 200)])
def test_a_process_without_disk_is_not_ready(
    server: Server, monkeypatch: pytest.MonkeyPatch, more: int, status: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1, 1, limits.MIN_FREE_DISK_BYTES + more))
    assert server.client(None).get("/readyz").status_code == status
    assert server.admin.http.get("/ledger").status_code == 200, "what needs no space is answered"
