"""Beside releases, in streams and in ledgers, a key sees the jobs of those datasets
alone where it may see jobs, the names of their submitters where it sees grants, and the
entries of its own jobs where it reads no ledger. Names of keys are told beside the
datasets alone whose grants it sees.
"""

import inspect
from collections.abc import Callable, Mapping

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.access.tables import KeyRow
from app.ledger import accounts
from app.ledger.tables import EntryKind
from app.services.jobs import show_jobs
from app.services.ledger import history
from app.services.pagination import PageRequest
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.two_datasets import Pair


def _grant(scene: Scene, role: Role, to: Principal = STRANGER) -> None:
    with scene.installation.database.write() as session:
        grants.put(
            session,
            dataset_id=scene.dataset_id,
            key_id=to.key_id,
            role=role,
            by=OWNER.key_id,
        )


def test_a_job_of_a_dataset_where_the_key_predicts_is_not_shown_beside_one_where_it_trains(
    scene: Scene,
) -> None:
    pair = Pair.beside(scene)
    hidden, visible = pair.submit(key="a"), pair.swapped.submit(key="b")
    _grant(pair.first, Role.PREDICTOR)
    _grant(pair.second, Role.ANALYST)
    seen = show_jobs.jobs_of(scene.installation, STRANGER, [hidden, visible])
    assert list(seen) == [visible]


def test_a_submitter_has_a_name_beside_jobs_of_datasets_whose_grants_the_key_sees(
    scene: Scene,
) -> None:
    pair = Pair.beside(scene)
    unnamed, named = pair.submit(key="a"), pair.swapped.submit(key="b")
    _grant(pair.first, Role.ANALYST)
    _grant(pair.second, Role.AUDITOR)
    seen = show_jobs.jobs_of(scene.installation, STRANGER, [unnamed, named])
    assert seen[unnamed].submitted_by_name is None
    assert seen[named].submitted_by_name


def test_a_follower_sees_no_job_because_another_one_does(scene: Scene) -> None:
    job = Pair.beside(scene).submit(key="a")
    _grant(scene, Role.PREDICTOR)
    followed = [(OWNER, job), (STRANGER, job)]
    assert list(show_jobs.look_at(scene.installation, followed)) == followed[:1]


def test_who_reads_no_ledger_finds_the_entries_of_the_own_jobs_alone(
    scene: Scene,
) -> None:
    """What the key did to the whole account, as when it had another role, is none."""
    scene.submit_job(key="a")
    with scene.installation.database.write() as session:
        accounts.change_cap(
            session, scene.dataset_id, 10**9, reason="less", actor=STRANGER.key_id
        )
    _grant(scene, Role.ANALYST)
    for kinds in (None, [EntryKind.CAP]):
        found = history.search_entries(
            scene.installation,
            STRANGER,
            scene.dataset_id,
            history.Search(kinds=kinds),
            PageRequest(),
        )
        assert found.entries == []


def _of_name(session: Session, dataset: str, key: KeyRow) -> bool:
    found = grants.keys_of_name(
        session, STRANGER, dataset, key.name, among=select(KeyRow.id)
    )
    return key.id in found


TELLS: Mapping[str, Callable[[Session, str, KeyRow], bool]] = {
    "names_of_keys": lambda session, dataset, key: bool(
        grants.names_of_keys(session, STRANGER, dataset, [key.id])
    ),
    "names_on_datasets": lambda session, dataset, key: bool(
        grants.names_on_datasets(session, STRANGER, [(dataset, key.id)])
    ),
    "keys_of_name": _of_name,
    "keys_meant": lambda session, _, key: (
        key.id in grants.keys_meant(session, STRANGER, key.name)
    ),
    "key_named": lambda session, dataset, key: (
        grants.key_named(session, STRANGER, dataset, key.name, at="/key") == key.id
    ),
}
"""Whether a function tells which key has which name, beside a dataset."""


@on_one_database
@pytest.mark.parametrize("tells", TELLS.values(), ids=TELLS)
def test_a_name_of_a_key_of_another_dataset_is_not_told(
    scene: Scene, tells: Callable[[Session, str, KeyRow], bool]
) -> None:
    pair = Pair.beside(scene)
    _grant(pair.first, Role.AUDITOR)
    _grant(pair.second, Role.ANALYST, to=ADMIN)
    with scene.installation.database.write() as session:
        for key in (OWNER, ADMIN, STRANGER):
            session.get_one(KeyRow, key.key_id).name = f"name of {key.key_id}"
    with scene.installation.database.read() as session:
        here, elsewhere = (
            session.get_one(KeyRow, key.key_id) for key in (OWNER, ADMIN)
        )
        here_is_told, elsewhere_is_told = (
            tells(session, pair.first.dataset_id, key) for key in (here, elsewhere)
        )
    assert here_is_told
    assert not elsewhere_is_told


def test_every_function_that_tells_names_of_keys_is_asked() -> None:
    telling = {
        name
        for name, function in inspect.getmembers(grants, inspect.isfunction)
        if "KeyRow.name" in inspect.getsource(function)
        or "_known(" in inspect.getsource(function)
    }
    assert telling | {"key_named"} == TELLS.keys() | {"_known"}
