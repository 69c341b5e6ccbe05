"""What a charge hands to the process that draws: the facts of its own kind of release,
the label that was paid for, and the cluster that its declared size allows.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.datasets import catalog
from app.jobs.tables import JobPart
from app.services.execution import charge
from app.services.jobs.task import PartRows
from app.services.releases import kinds
from grovekeeper_forests.privacy.scope import Scope

CLUSTER = object()
KEY = object()
none: Any = None


class Kind:
    """A kind of release that may need rows on this machine."""

    def __init__(self, name: str, *, needs_sums: bool) -> None:
        self.name, self.needs_sums = name, needs_sums

    def needs_sums_alone(self, algorithm: str) -> bool:
        return self.needs_sums and algorithm != "reads values"

    def public_facts(self, session: Any, row: Any) -> dict[str, str]:
        return {"kind": self.name, "job": row.id}


@pytest.fixture
def dataset(monkeypatch: pytest.MonkeyPatch) -> Any:
    stored = SimpleNamespace(public_size=1000, schema={"a": 1}, partitions=[{"b": 2}])
    found = SimpleNamespace(row=stored, data_key=lambda _: KEY)
    monkeypatch.setattr(catalog, "find", lambda _, name: found)
    by_name = {
        name: Kind(name, needs_sums=name != "whole") for name in ("whole", "sums")
    }
    monkeypatch.setattr(kinds, "KINDS", by_name)
    return stored


@pytest.fixture
def installation(tmp_path: Path) -> Any:
    settings = SimpleNamespace(dask_cluster=CLUSTER, dask_rows=1000)
    folder = tmp_path.joinpath
    return SimpleNamespace(settings=settings, job_folder=folder, storage_keys=none)


def job(kind: str = "sums", algorithm: str = "rpf", *parts: JobPart) -> Any:
    task = {"work": {"plan": 3}}
    return SimpleNamespace(
        id="job_1",
        kind=kind,
        algorithm=algorithm,
        dataset_id="ds_1",
        task=task,
        n_trees=5,
        parts=list(parts),
    )


def test_the_cluster_reads_sums_of_large_datasets_alone(
    dataset: Any, installation: Any
) -> None:
    for size, expected in ((1000, CLUSTER), (1001, CLUSTER), (999, None), (None, None)):
        dataset.public_size = size
        assert charge.cluster_of(installation, none, job()) is expected
    dataset.public_size = 10**9
    assert charge.cluster_of(installation, none, job("whole")) is None
    assert charge.cluster_of(installation, none, job("sums", "reads values")) is None


def test_a_dataset_without_a_size_goes_to_a_cluster_that_reads_all(
    dataset: Any, installation: Any
) -> None:
    installation.settings.dask_rows = 0
    for size in (None, 0, 1):
        dataset.public_size = size
        assert charge.cluster_of(installation, none, job()) is CLUSTER
    installation.settings.dask_rows = 1
    dataset.public_size = None
    assert charge.cluster_of(installation, none, job()) is None


@pytest.mark.parametrize("label", [None, "days"])
@pytest.mark.parametrize("kind", ["whole", "sums"])
def test_a_task_has_its_facts_and_its_label(
    dataset: Any, installation: Any, kind: str, label: str | None
) -> None:
    part = JobPart("ds_1", "a name", {"b": [1]}, ["ep_1"], {}, "res_1", label)
    task = charge._task(installation, none, job(kind, "rpf", part, part))
    assert (task.kind, task.job_id, task.work, task.n_trees) == (
        kind,
        "job_1",
        {"plan": 3},
        5,
    )
    assert task.folder == installation.job_folder("job_1")
    assert task.metadata == {"kind": kind, "job": "job_1"}
    assert task.cluster is (CLUSTER if kind == "sums" else None)
    [file] = charge.row_file_names(part)
    read = PartRows({"a": 1}, (Path(file),), [{"b": 2}], Scope({"b": [1]}), KEY, label)  # type: ignore[arg-type]
    assert task.parts == (read, read)


def test_a_part_reads_its_uploads_as_they_were_when_it_was_reserved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uploads = ["ep_1", "ep_2", "ep_3"]
    monkeypatch.setattr(catalog, "upload_ids", lambda *_: uploads)

    def paid(partition: object) -> Any:
        dataset: Any = SimpleNamespace(
            id="ds_1",
            partitions=SimpleNamespace(epoch_partition=partition),
            uploads_in=lambda scope, ids: ids if scope == "all" else ids[1:],
        )
        return [
            charge._paid_uploads(none, dataset, scope, n_uploads=1)  # type: ignore[arg-type]
            for scope in ("all", "some")
        ]

    assert paid(None) == [["ep_1"], ["ep_2"]], "later uploads are not read"
    assert paid(object()) == [uploads, uploads[1:]], "the scope names them"
