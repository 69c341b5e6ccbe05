"""An API process loads what its first requests need once a dataset exists, and nothing before."""

import sys

import pytest

from app.services import preparation
from app.services.installation import Installation
from tests.support.crash_scene import Scene

_LOADED = "app.services.spending.training"


@pytest.fixture(autouse=True)
def _not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_PLANS_JOBS", (_LOADED,))
    monkeypatch.delitem(sys.modules, _LOADED, raising=False)


def test_an_installation_without_datasets_loads_nothing(installation: Installation) -> None:
    preparation.prepare(installation)
    assert _LOADED not in sys.modules


def test_a_dataset_is_reason_to_load_the_code_that_plans_jobs(scene: Scene) -> None:
    preparation.prepare(scene.installation)
    assert _LOADED in sys.modules
