"""Defines the task that a worker sends to its child process, with no keys but those of
the rows that the job reads.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from app.core.dask_cluster import DaskCluster
from app.core.sealed_files import DataKey, SealedFile
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.scope import Scope

OUTPUT = "output"
"""The file that the child of a job leaves in the job's folder."""


def input_path(folder: Path, digest: str) -> Path:
    """The path of an artifact that a job reads, in the job's folder."""
    return folder / "inputs" / digest


def input_paths(folder: Path) -> list[Path]:
    """The artifacts that a job reads, in the job's folder."""
    return sorted(input_path(folder, "").glob("*"))


@dataclass(frozen=True)
class Needs:
    """What a job will use of the machines that run it: public, and looked at before the
    charge.

    Attributes:
        folder: of the job; exists.
        output_bytes: planned size of the file that the child writes.
        files: of rows that the child opens, or the workers of the cluster; without
            those that are copied later.
        cluster: reads the rows; ``None`` if the child does.
    """

    folder: Path
    output_bytes: int
    files: tuple[str, ...]
    cluster: DaskCluster | None

    def to_text(self) -> str:
        """One line of JSON, for the child's standard input: what the child itself uses."""
        needs = {
            "folder": str(self.folder),
            "output_bytes": self.output_bytes,
            # workers of a cluster read the files, which this machine may not have
            "files": () if self.cluster else self.files,
        }
        return json.dumps(needs)

    @classmethod
    def from_text(cls, text: str) -> "Needs":
        """What :meth:`to_text` names."""
        value = json.loads(text)
        return cls(
            Path(value["folder"]), value["output_bytes"], tuple(value["files"]), None
        )


@dataclass(frozen=True)
class PartRows:
    """The rows of one part of a job.

    Attributes:
        schema: the dataset's public declaration, JSON form.
        row_files: encrypted files of the uploads in the scope: names in the store;
            paths for a child that reads rows, and for a cluster whose machines have
            them at the same paths.
        partitions: how the dataset is cut, JSON form.
        scope: the scope that was charged; ``row_files`` holds its uploads.
        label: the label that is read, where the dataset declares several.
    """

    schema: JsonObject
    row_files: tuple[Path, ...]
    partitions: list[JsonObject]
    scope: Scope
    data_key: DataKey = field(repr=False)
    label: str | None = None

    @property
    def columns(self) -> Schema:
        """The declared columns, of the labels with the one that is read."""
        return Schema.from_json(self.schema).with_label(self.label)

    @property
    def files(self) -> list[SealedFile]:
        """The files with their key."""
        return [SealedFile.at(path, self.data_key) for path in self.row_files]

    def to_json(self) -> JsonObject:
        """For the child's standard input."""
        row_files = list(map(str, self.row_files))
        scope = self.scope.to_json()
        return {
            **vars(self),
            "row_files": row_files,
            "scope": scope,
            "data_key": self.data_key.secret.hex(),
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "PartRows":
        """Inverse of :meth:`to_json`."""
        scope = Scope(value["scope"])
        row_files = tuple(map(Path, value["row_files"]))
        key = DataKey(bytes.fromhex(value["data_key"]))
        return cls(**{**value, "row_files": row_files, "scope": scope, "data_key": key})


@dataclass(frozen=True)
class JobTask:
    """One charged job, ready to run: its stored task, with the files and keys of its rows.

    Attributes:
        kind: what the job releases.
        job_id: for the folder's name and the output.
        folder: where the child writes its output; exists.
        work: the priced work in JSON form; its members depend on the kind.
        n_trees: trees to grow, the unit of progress; 0 for kinds that grow no tree.
        parts: the rows that were paid for, in the order in which ``work`` names them.
        metadata: public facts that the output carries beside the release.
        cluster: reads and counts the rows, by their names where machines share a store;
            ``None`` if the child does.
    """

    kind: str
    job_id: str
    folder: Path
    work: JsonObject
    n_trees: int
    parts: tuple[PartRows, ...]
    metadata: JsonObject
    cluster: DaskCluster | None = None

    @property
    def output_path(self) -> Path:
        """The path of the child's release; the file is complete or absent."""
        return self.folder / OUTPUT

    def to_text(self) -> str:
        """One line of JSON, for the child's standard input."""
        task = {
            **vars(self),
            "folder": str(self.folder),
            "parts": [part.to_json() for part in self.parts],
            "cluster": self.cluster and self.cluster.to_json(),
        }
        return json.dumps(task)

    @classmethod
    def from_text(cls, text: str) -> "JobTask":
        """Inverse of :meth:`to_text`."""
        value = json.loads(text)
        value["folder"] = Path(value["folder"])
        value["parts"] = tuple(map(PartRows.from_json, value["parts"]))
        value["cluster"] = value["cluster"] and DaskCluster.from_json(value["cluster"])
        return cls(**value)
