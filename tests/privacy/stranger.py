"""Answers questions from artifacts in a process that cannot import what reads rows or a
database.

Each line of standard input is an artifact in hexadecimal digits, as JSON; the line of
the answer holds the digests of four repeated answers.
"""

import hashlib
import json
import sys

import numpy as np

from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.releases.forest import read as released_forest

N_QUESTIONS = 250_000
"""They are repeated four times: a million predictions of each model."""

_FORBIDDEN = (
    "app.datasets",
    "app.ledger",
    "app.services",
    "app.db",
    "sqlalchemy",
    "sqlite3",
    "psycopg",
    "httpx",
)


def questions() -> SanitisedColumns:
    """The same rows in every process: a number in [0, 1] and one of four categories."""
    generator = np.random.default_rng(5)
    columns = (
        generator.random(N_QUESTIONS),
        generator.integers(0, 4, N_QUESTIONS).astype(np.int32),
    )
    return SanitisedColumns(columns, N_QUESTIONS)


def digest(artifact: released_forest.Artifact) -> str:
    """SHA-256 of the probabilities that an artifact's forest gives for
    :func:`questions`.
    """
    answers = artifact.predictor.probabilities(questions())
    return hashlib.sha256(answers.tobytes()).hexdigest()


class _NoData:
    """Refuses to import forbidden modules."""

    def find_spec(self, name: str, *_: object) -> None:
        if any(
            name == module or name.startswith(f"{module}.") for module in _FORBIDDEN
        ):
            raise AssertionError(name)


def _main() -> None:
    loaded = [name for name in sys.modules if name in _FORBIDDEN]
    if loaded:
        raise AssertionError(loaded)
    sys.meta_path.insert(0, _NoData())
    for line in sys.stdin:
        artifact = released_forest.loads(bytes.fromhex(json.loads(line)))
        print(*(digest(artifact) for _ in range(4)), flush=True)


if __name__ == "__main__":
    _main()
