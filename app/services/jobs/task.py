"""What crosses from a worker to its child: everything the child needs, and no key, address or secret of the service."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.privacy.composition import Scope

OUTPUT = {"train": "artifact.safetensors", "profile": "profile.json", "evaluation": "evaluation.json"}
"""What the child of each kind of job leaves in the job's folder."""


def input_path(folder: Path, digest: str) -> Path:
    """Where an artifact that a job reads is laid into its folder."""
    return folder / "inputs" / digest


@dataclass(frozen=True)
class OtherRows:
    """Rows of a second dataset; attributes as those of :class:`JobTask`."""

    schema: dict[str, Any]
    row_files: tuple[Path, ...]
    partitions: list[dict[str, Any]]
    scope: Scope

    def to_json(self) -> dict[str, Any]:
        """For the child's standard input."""
        return {**self.__dict__, "row_files": [str(path) for path in self.row_files]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "OtherRows":
        """Inverse of :meth:`to_json`."""
        return cls(**{**value, "row_files": _paths(value["row_files"]), "scope": _scope(value["scope"])})


@dataclass(frozen=True)
class JobTask:
    """One charged job, ready to run.

    Attributes:
        kind: a key of :data:`OUTPUT`.
        job_id: for the folder's name and the output.
        folder: where the child writes its output; exists.
        schema: public declaration, JSON form.
        work: what was priced and is to be done, JSON form; its members depend on the kind.
        n_trees: trees to grow, the unit of progress; 0 for kinds that grow none.
        row_files: files of the epochs in scope.
        partitions: how the dataset is cut, JSON form.
        scope: the box that was charged; the epochs in it are those of ``row_files``.
        metadata: public facts that the output carries beside what was released.
        unlabelled: the rows of a second dataset that was charged too, if there is one.
    """

    kind: str
    job_id: str
    folder: Path
    schema: dict[str, Any]
    work: dict[str, Any]
    n_trees: int
    row_files: tuple[Path, ...]
    partitions: list[dict[str, Any]]
    scope: Scope
    metadata: dict[str, Any]
    unlabelled: OtherRows | None = None

    @property
    def output_path(self) -> Path:
        """Where the child leaves what it released: there, whole, or absent."""
        return self.folder / OUTPUT[self.kind]

    def input_path(self, digest: str) -> Path:
        """Where an artifact that the job reads stands since before its charge."""
        return input_path(self.folder, digest)

    def to_text(self) -> str:
        """One line of JSON, for the child's standard input."""
        return json.dumps(
            {
                **self.__dict__,
                "folder": str(self.folder),
                "row_files": [str(path) for path in self.row_files],
                "unlabelled": None if self.unlabelled is None else self.unlabelled.to_json(),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> "JobTask":
        """Inverse of :meth:`to_text`."""
        value = json.loads(text)
        return cls(
            **{
                **value,
                "folder": Path(value["folder"]),
                "row_files": _paths(value["row_files"]),
                "scope": _scope(value["scope"]),
                "unlabelled": None if value["unlabelled"] is None else OtherRows.from_json(value["unlabelled"]),
            }
        )


def _paths(values: list[str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in values)


def _scope(value: dict[str, Any]) -> Scope:
    return {name: tuple(cells) for name, cells in value.items()}
