"""The bounds on rows and bytes cover all uploads of a dataset together; jobs read all
rows.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from app.core import limits
from app.core.errors import TooLarge, Unavailable
from app.core.files import StoredFile
from app.datasets import admission, catalog, row_files, row_layout
from app.datasets.upload_bodies import BodyForm
from tests.support import people
from tests.support.columnar import body_of
from tests.support.crash_scene import Scene
from tests.support.databases import on_one_database
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

ROWS_OF_AN_UPLOAD = 40


def test_no_number_of_uploads_passes_the_bound_on_rows(
    scene: Scene, set_limit: SetLimit
) -> None:
    set_limit("MAX_ROWS_PER_DATASET", 2 * ROWS_OF_AN_UPLOAD)
    scene.upload()
    with pytest.raises(TooLarge):
        scene.upload()
    store = scene.installation.files
    with scene.installation.database.read() as session:
        epochs = [epoch.id for epoch in catalog.epochs(session, scene.dataset_id)]
    assert len(epochs) == 2
    key = people.data_key(scene.installation, scene.dataset_id)
    stored = row_layout.stored_uploads(store, scene.dataset_id, epochs, key=key)
    assert sum(upload.n_rows for upload in stored.values()) == 2 * ROWS_OF_AN_UPLOAD
    assert {
        file.stem for file in (scene.installation.home / "rows").glob("*/*")
    } == set(epochs), "the refused rows are gone"


def test_no_number_of_uploads_passes_the_bound_on_bytes(
    scene: Scene, set_limit: SetLimit
) -> None:
    set_limit("MAX_DATASET_BYTES", _size_bytes(scene) + 100)
    with pytest.raises(TooLarge):
        scene.upload()
    assert _is_within_the_bound(scene, n_uploads=1)
    set_limit("MAX_DATASET_BYTES", limits.MAX_DATASET_BYTES * 3 + 500)
    scene.upload()
    scene.upload()
    with pytest.raises(TooLarge):
        scene.upload()
    assert _is_within_the_bound(scene, n_uploads=3)


def test_of_two_uploads_at_once_only_those_that_fit_are_stored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    """The second upload begins and ends after the first one has written its rows, and
    before it is committed.
    """
    set_limit("MAX_DATASET_BYTES", 2 * _size_bytes(scene) + 500)
    sizes, bytes_beside = list[int](), row_files.bytes_beside

    def with_another(file: StoredFile) -> int:
        sizes.append(bytes_beside(file))
        # two folders before the rows are written, and two afterwards
        if len(sizes) == 4:
            with pytest.raises(TooLarge):
                scene.upload()
        return sizes[-1] if len(sizes) < 4 else bytes_beside(file)

    monkeypatch.setattr(row_files, "bytes_beside", with_another)
    scene.upload()
    monkeypatch.setattr(row_files, "bytes_beside", bytes_beside)
    assert _is_within_the_bound(scene, n_uploads=2)


def _size_bytes(scene: Scene) -> int:
    files = scene.installation.files
    return sum(
        file.size_bytes
        for kind in ("rows", "prints")
        for file in files.files(f"{kind}/{scene.dataset_id}")
    )


def _epochs(scene: Scene) -> list[str]:
    with scene.installation.database.read() as session:
        return [epoch.id for epoch in catalog.epochs(session, scene.dataset_id)]


def _is_within_the_bound(scene: Scene, *, n_uploads: int) -> bool:
    """Whether exactly the files of so many uploads are on the disk, and within the
    bound.
    """
    home, epochs = scene.installation.home, _epochs(scene)
    files = [
        file
        for kind in ("rows", "prints")
        for file in (home / kind / scene.dataset_id).iterdir()
    ]
    names = {file.stem for file in files}
    return (
        len(epochs) == n_uploads
        and names == set(epochs)
        and _size_bytes(scene) <= limits.MAX_DATASET_BYTES
    )


@on_one_database
def test_decoders_of_all_processes_of_a_machine_have_one_bound(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each decodes in up to a gigabyte of memory. CSV needs no decoder."""
    installation, body = scene.installation, b"age,income\n1,low\n"
    table = body_of(pa.table({"age": [2], "income": ["low"]}), BodyForm.PARQUET)
    dataset = people.declared(installation)["id"]
    monkeypatch.setattr(admission, "WAIT_S", 0.3)
    with ExitStack() as elsewhere:
        for _ in range(limits.MAX_DECODERS):
            elsewhere.enter_context(holder_of_a_seat(installation.home))
        with pytest.raises(Unavailable) as refused:
            people.upload(installation, dataset, table, form=BodyForm.PARQUET)
        assert refused.value.retry_after_s == admission.RETRY_AFTER_S
        assert people.upload(installation, dataset, body)["rows"] == 1
    assert (
        people.upload(installation, dataset, table, form=BodyForm.PARQUET)["rows"] == 1
    ), "a process that died"


@contextmanager
def holder_of_a_seat(home: Path) -> Iterator[None]:
    """Another process with a seat, which is killed when the block ends."""
    program = (
        "import sys, time; from pathlib import Path; from app.datasets.admission import decoder_seat\n"
        "with decoder_seat(Path(sys.argv[1])): print('seated', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "seated\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_an_upload_waits_for_a_seat(tmp_path: Path, set_limit: SetLimit) -> None:
    set_limit("MAX_DECODERS", 1)
    order: list[str] = []

    def second() -> None:
        with admission.decoder_seat(tmp_path):
            order.append("second")

    with admission.decoder_seat(tmp_path):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.3)
        order.append("first")
    waiting.join(60)
    assert order == ["first", "second"]
