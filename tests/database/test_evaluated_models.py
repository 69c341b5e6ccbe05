"""Quotes and submissions of evaluations keep one artifact in memory, and read it while
no transaction writes.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cachetools import LRUCache
from sqlalchemy.orm import Session

from app.core.errors import Unavailable
from app.registry import store
from app.registry.store import ArtifactLost, ArtifactStore
from app.services import models
from app.wire.evaluations import EvaluationQuoteOut, SelectionIn
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.read import Artifact
from tests.support.asking import show_evaluation_quote
from tests.support.crash_scene import OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import evaluation, model
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

_KEYS = ("a", "b", "c")


@pytest.fixture
def small_cache(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, set_limit: SetLimit
) -> None:
    """The cache keeps one artifact."""
    set_limit("MAX_CACHED_ARTIFACT_BYTES", 1)
    monkeypatch.setattr(
        scene.installation.cache, "_loaded", LRUCache(1, getsizeof=store._size)
    )


def _quote(scene: Scene, *addresses: str) -> EvaluationQuoteOut:
    body = SelectionIn.model_validate(
        {"models": list(addresses), "epsilon": "0.5", "scope": {"shard": [1, 2]}}
    )
    return show_evaluation_quote(scene.installation, OWNER, addresses, body)


@on_one_database
@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize("ask", [_quote, evaluation], ids=["quote", "submission"])
def test_one_artifact_beside_the_cached_one_is_in_memory(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., object]
) -> None:
    addresses = [model(scene, key) for key in _KEYS]
    loads, loaded, most = released_forest.loads, list[weakref.ref[Artifact]](), 0

    def counted(content: bytes) -> Artifact:
        nonlocal most
        artifact = loads(content)
        loaded.append(weakref.ref(artifact))
        most = max(most, sum(reference() is not None for reference in loaded))
        return artifact

    monkeypatch.setattr(released_forest, "loads", counted)
    ask(scene, *addresses)
    assert len(loaded) == len(addresses), "each is read once"
    assert most == 2
    assert sum(reference() is not None for reference in loaded) == 1


@on_one_database
@pytest.mark.usefixtures("small_cache")
def test_no_artifact_is_read_in_a_transaction_that_writes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [model(scene, key) for key in _KEYS]
    write, get, n_open, seen = (
        scene.installation.database.write,
        ArtifactStore.get,
        0,
        list[int](),
    )

    @contextmanager
    def counted() -> Iterator[Session]:
        nonlocal n_open
        with write() as session:
            n_open += 1
            try:
                yield session
            finally:
                n_open -= 1

    def watched(*of: Any) -> bytes:
        seen.append(n_open)
        return get(*of)

    monkeypatch.setattr(scene.installation.database, "write", counted)
    monkeypatch.setattr(ArtifactStore, "get", watched)
    job_id = evaluation(scene, *addresses)
    assert seen == [0] * len(addresses)
    assert [
        named["id"] for named in scene.job(job_id).task["work"]["models"]
    ] == addresses
    assert evaluation(scene, *addresses) == job_id
    assert set(seen) == {0}


@pytest.mark.usefixtures("small_cache")
def test_an_alias_that_moves_while_an_artifact_is_read_names_its_present_model(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = (model(scene, key) for key in _KEYS)
    models.put_alias(scene.installation, OWNER, scene.dataset_id, "best", model=first)
    get, moves = ArtifactStore.get, [second]

    def moved(*of: Any) -> bytes:
        while moves:
            models.put_alias(
                scene.installation, OWNER, scene.dataset_id, "best", model=moves.pop()
            )
        return get(*of)

    monkeypatch.setattr(ArtifactStore, "get", moved)
    before = scene.export()
    with pytest.raises(Unavailable, match="nothing was charged"):
        evaluation(scene, f"{scene.dataset_id}@best", other)
    assert scene.export() == before
    job_id = evaluation(scene, f"{scene.dataset_id}@best", other)
    named = scene.job(job_id).task["work"]["models"]
    assert [entry["id"] for entry in named] == [second, other]
    assert scene.kinds_of(job_id) == ["reserve"]


@on_one_database
@pytest.mark.usefixtures("small_cache")
def test_a_lost_artifact_refuses_new_requests_and_no_repetition(scene: Scene) -> None:
    addresses = [model(scene, key) for key in _KEYS]
    job_id, before = evaluation(scene, *addresses), scene.export()
    folder: Path = scene.installation.home / "artifacts"
    folder.rename(folder.with_name("away"))
    for ask in (_quote, lambda *of: evaluation(*of, key="another")):
        with pytest.raises(ArtifactLost):
            ask(scene, *addresses)
    assert evaluation(scene, *addresses) == job_id
    assert scene.export() == before


@on_one_database
def test_names_of_models_are_read_without_artifacts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, deleted = model(scene, "a"), model(scene, "b")
    models.delete_model(scene.installation, OWNER, deleted)
    monkeypatch.setattr(
        type(scene.installation.cache),
        "get",
        lambda *_: pytest.fail("an artifact is read"),
    )
    asked = [first, deleted, "md_none"]
    assert models.names_of_models(scene.installation, OWNER, asked) == {first: first}
    assert models.names_of_models(scene.installation, STRANGER, asked) == {}
