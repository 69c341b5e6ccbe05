"""Beside releases, in streams and in ledgers, a key sees the jobs of those datasets
alone where it may see jobs, the names of their submitters where it sees grants, and the
entries of its own jobs where it reads no ledger.
"""

from app.access import grants
from app.access.grants import Role
from app.services.jobs import show_jobs
from app.services.ledger import history
from app.services.pagination import PageRequest
from tests.support.crash_scene import OWNER, STRANGER, Scene
from tests.support.two_datasets import Pair


def _grant(scene: Scene, role: Role) -> None:
    with scene.installation.database.write() as session:
        grants.put(
            session,
            dataset_id=scene.dataset_id,
            key_id=STRANGER.key_id,
            role=role,
            by=OWNER.key_id,
            at=scene.installation.database.now(session),
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
    scene.submit_job(key="a")
    _grant(scene, Role.ANALYST)
    found = history.search_entries(
        scene.installation,
        STRANGER,
        scene.dataset_id,
        history.EVERY_ENTRY,
        PageRequest(),
    )
    assert found.entries == []
