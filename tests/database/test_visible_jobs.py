"""Beside releases, a key sees the jobs of those datasets alone where it may see jobs."""

from app.access import grants
from app.access.grants import Role
from app.services.jobs import show_jobs
from tests.support.crash_scene import OWNER, STRANGER, Scene
from tests.support.two_datasets import Pair


def test_a_job_of_a_dataset_where_the_key_predicts_is_not_shown_beside_one_where_it_trains(
    scene: Scene,
) -> None:
    pair = Pair.beside(scene)
    hidden, visible = pair.submit(key="a"), pair.swapped.submit(key="b")
    roles = (pair.first, Role.PREDICTOR), (pair.second, Role.ANALYST)
    with scene.installation.database.write() as session:
        for of_dataset, role in roles:
            grants.put(
                session,
                dataset_id=of_dataset.dataset_id,
                key_id=STRANGER.key_id,
                role=role,
                by=OWNER.key_id,
                at=scene.installation.database.now(session),
            )
    seen = show_jobs.jobs_of(scene.installation, STRANGER, [hidden, visible])
    assert list(seen) == [visible]
