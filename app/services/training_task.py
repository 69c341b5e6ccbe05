"""What crosses from a worker to its child: everything the child needs, and no key, address or secret of the service."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrainingTask:
    """One charged job, ready to grow.

    Attributes:
        job_id: for the folder's name and the artifact.
        folder: where the child writes ``artifact.safetensors``; exists.
        schema: public declaration, JSON form.
        plan: what was priced, JSON form.
        row_files: files of the epochs in scope.
        partition: ``{"name", "cells"}`` of the declared hash partition, or ``None``.
        cells: the hash cells in scope, or ``None`` for all.
        metadata: public facts that the artifact carries beside schema and plan.
    """

    job_id: str
    folder: Path
    schema: dict[str, Any]
    plan: dict[str, Any]
    row_files: tuple[Path, ...]
    partition: dict[str, Any] | None
    cells: tuple[int, ...] | None
    metadata: dict[str, Any]

    @property
    def artifact_path(self) -> Path:
        return self.folder / "artifact.safetensors"

    @property
    def n_trees(self) -> int:
        return int(self.plan["n_trees"])

    def to_text(self) -> str:
        """One line of JSON, for the child's standard input."""
        return json.dumps(
            {
                **self.__dict__,
                "folder": str(self.folder),
                "row_files": [str(path) for path in self.row_files],
                "cells": None if self.cells is None else list(self.cells),
            }
        )

    @classmethod
    def from_text(cls, text: str) -> "TrainingTask":
        """Inverse of :meth:`to_text`."""
        value = json.loads(text)
        cells = value["cells"]
        return cls(
            **{
                **value,
                "folder": Path(value["folder"]),
                "row_files": tuple(Path(path) for path in value["row_files"]),
                "cells": None if cells is None else tuple(cells),
            }
        )
