"""The bound on rows covers all uploads of a dataset together; jobs read them all, and the proofs rely on it."""

import pytest

from app.core import limits
from app.core.errors import TooLarge
from app.datasets import catalog, row_files
from tests.support.crash_scene import Scene

ROWS_OF_AN_UPLOAD = 40


def test_no_number_of_uploads_passes_the_bound_on_rows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ROWS_PER_DATASET", 2 * ROWS_OF_AN_UPLOAD)
    scene.upload()
    with pytest.raises(TooLarge):
        scene.upload()
    home = scene.installation.home
    with scene.installation.database.read() as session:
        epochs = [epoch.id for epoch in catalog.epochs(session, scene.dataset_id)]
    assert len(epochs) == 2
    assert row_files.count_rows(home, scene.dataset_id, epochs) == 2 * ROWS_OF_AN_UPLOAD
    assert {file.stem for file in (home / "rows").glob("*/*")} == set(epochs), "the refused rows are gone"
