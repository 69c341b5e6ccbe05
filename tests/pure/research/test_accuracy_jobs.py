"""The accuracy benchmark in several processes, on a small generated table."""

import csv
import gzip
import json
from pathlib import Path

from research import accuracy, runs
from research.runs import Run, Task


def test_several_processes_find_the_same_tasks(tmp_path: Path) -> None:
    """Every run is returned exactly once and complete, whichever process ran it."""
    declaration = {
        "features": [{"name": "size", "type": "integer", "lower": 0, "upper": 39}],
        "label": {"name": "kind", "classes": ["small", "large"]},
    }
    (tmp_path / "toy.json").write_text(json.dumps(declaration))
    with gzip.open(tmp_path / "toy.csv.gz", "wt", newline="") as file:
        rows = [(index, ("small", "large")[index >= 20]) for index in range(40)]
        csv.writer(file).writerows([("size", "kind"), *rows])
    tasks = [
        Task("toy", "rdt-ta:n_estimators=1,max_depth=1", "1", "1e-6", repeat)
        for repeat in range(4)
    ]

    assert accuracy.complete(tmp_path, tasks, tmp_path / "runs.csv", n_jobs=2) == []
    assert sorted(each.task for each in runs.load(tmp_path / "runs.csv", Run)) == tasks
