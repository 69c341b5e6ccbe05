"""What the process of a job cannot use, such as the room for the output, is found by
that process before the charge.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest

from app.core.errors import Unavailable
from app.core.files import Directory
from app.core.processes import Stop, scrubbed_environment
from app.jobs import queue
from app.jobs.states import JobState
from app.services.execution import run_job
from app.services.jobs.show_jobs import show_job
from app.worker import supervise
from app.worker.supervise import Children, Supervisor
from tests.support.crash_scene import OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import (
    claimed,
    evaluation,
    model,
    must_not_run,
    perform_here,
    profile,
    run_here,
)

pytestmark = [pytest.mark.contract, on_one_database]

ROOM_FOR_ONE = """
taken = set()

def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

def take(descriptor, *_):
    if any(is_open(other) for other in taken - {descriptor}):
        refused()
    taken.add(descriptor)

os.posix_fallocate = take
"""
"""A child that has room for one of two files: the output, and its copy in the store."""

LIMITS = {
    "room": ROOM_FOR_ONE,
    "size of a file": "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))",
    "memory": "mmap.mmap = refused",
    "encoding of paths": "os.chdir = refused",
    "account": "pathlib.Path.open = refused",
}
"""What a child meets that its worker did not meet, in Python."""

CHILD = """
import mmap, os, pathlib, resource
from app.worker import child

def refused(*_, **__):
    raise OSError("canary")

child._NEEDED = ("app.datasets.private_rows", "app.services.jobs.task")
{limit}
child.main(os.getppid())
"""


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[Children]:
    """Those of this process, without the code of forests."""
    monkeypatch.setattr(supervise, "CHILDREN", children := Children())
    limit_to(monkeypatch, "")
    yield children
    children.stop()


def limit_to(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Starts children under a limit from now on."""
    command = [sys.executable, "-c", CHILD.format(limit=limit)]
    environment = scrubbed_environment()
    monkeypatch.setattr(
        supervise.CHILDREN,
        "start",
        lambda: subprocess.Popen(command, stdin=PIPE, stdout=PIPE, env=environment),
    )


@pytest.mark.parametrize("limit", LIMITS)
def test_a_job_whose_process_cannot_use_what_it_needs_waits_uncharged(
    scene: Scene,
    children: Children,
    limit: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first, second = (scene.submit_job(key=key) for key in "ab")
    planned = run_job.planned_bytes
    monkeypatch.setattr(
        run_job, "planned_bytes", lambda *of_job: planned(*of_job) + 2**21
    )
    load = Supervisor(interval_s=0, stop=Stop()).load
    with monkeypatch.context() as limited:
        limit_to(limited, LIMITS[limit])
        with pytest.raises(
            Unavailable, match="the process of a job cannot use what the job needs"
        ):
            run_job.run_job(
                scene.installation, claimed(scene.installation), must_not_run, load=load
            )
    assert (
        "a job waits, uncharged: its process cannot use the folder, the room, the models or the rows"
        in caplog.text
    )
    log = capfd.readouterr().err
    assert "the process of a job cannot use what the job needs" in log
    assert "OSError" in log
    assert "canary" not in log
    assert scene.end(first) == (JobState.QUEUED, "cannot-load", ["reserve"])
    run_job.run_job(
        scene.installation, claimed(scene.installation), perform_here, load=load
    )
    assert scene.end(second) == (JobState.SUCCEEDED, None, ["reserve", "charge"])


HARD_LIMIT = """
lower = resource.setrlimit
resource.setrlimit = lambda kind, pair: (
    refused() if kind == resource.RLIMIT_CPU else lower(kind, pair)
)
"""
"""A child that may not lift its limit."""

SOFT_LIMIT = """
resource.setrlimit(resource.RLIMIT_CPU, (60, resource.RLIM_INFINITY))
told = os.write

def tell(*message):
    assert resource.getrlimit(resource.RLIMIT_CPU)[0] == resource.RLIM_INFINITY
    return told(*message)

os.write = tell
"""
"""A child that may lift its limit, and answers only if it did."""

LIFTED_HARD_LIMIT = """
limits = {resource.RLIMIT_CPU: (60, 60)}
resource.getrlimit, resource.setrlimit = limits.get, limits.__setitem__
told = os.write

def tell(*message):
    assert limits[resource.RLIMIT_CPU] == (resource.RLIM_INFINITY,) * 2
    return told(*message)

os.write = tell
"""
"""A child of an account that may lift hard limits, too, and answers only if it did."""


def test_a_limit_of_processor_time_is_no_fact_that_a_paid_job_learns(
    scene: Scene,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The kernel ends the process of a job at the limit, whatever the job is."""
    job_id = scene.submit_job(key="a")
    load = Supervisor(interval_s=0, stop=Stop()).load
    with monkeypatch.context() as limited:
        limit_to(limited, HARD_LIMIT)
        with pytest.raises(run_job.CodeNotLoaded):
            run_job.run_job(
                scene.installation, claimed(scene.installation), must_not_run, load=load
            )
    assert "_lift_limit_of_processor_time" in capfd.readouterr().err
    assert scene.end(job_id) == (JobState.QUEUED, "cannot-load", ["reserve"])
    assert show_job(scene.installation, OWNER, job_id).held_by == "cannot-load"
    for limit in (SOFT_LIMIT, LIFTED_HARD_LIMIT):
        limit_to(monkeypatch, limit)
        children.stop()
        run_job.run_job(
            scene.installation, claimed(scene.installation), perform_here, load=load
        )
        assert scene.end(job_id) == (JobState.SUCCEEDED, None, ["reserve", "charge"])
        job_id = scene.submit_job(key="b")


def test_a_model_of_a_later_version_is_evaluated_by_another_worker_or_not_paid_for(
    scene: Scene,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    model_id = model(scene, "m")
    first, second = (evaluation(scene, model_id, key=key) for key in "ab")
    load = Supervisor(interval_s=0, stop=Stop()).load
    with monkeypatch.context() as limited:
        limit_to(
            limited,
            "from grovekeeper_forests.releases.forest import read; read.FORMAT = 'of an earlier version'",
        )
        with pytest.raises(Unavailable):
            run_job.run_job(
                scene.installation, claimed(scene.installation), must_not_run, load=load
            )
    assert "ArtifactInvalid" in capfd.readouterr().err
    assert scene.end(first) == (JobState.QUEUED, "cannot-load", ["reserve"])
    run_job.run_job(
        scene.installation, claimed(scene.installation), perform_here, load=load
    )
    assert scene.end(second) == (JobState.SUCCEEDED, None, ["reserve", "charge"])


MEMORY_FOR_ONE = """
import weakref
from grovekeeper_forests.releases.forest import read as released_forest
read, living = released_forest.loads, weakref.WeakSet()

def loads(data):
    if len(living) == 1:
        raise MemoryError
    artifact = read(data)
    living.add(artifact.forest)
    return artifact

released_forest.loads = loads
"""
"""A child that has memory for one model at a time."""


def test_the_models_of_a_choice_are_in_memory_together_before_the_charge_too(
    scene: Scene,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    models = [model(scene, key) for key in "mn"]
    jobs = [evaluation(scene, *models, key=key) for key in "ab"]
    load = Supervisor(interval_s=0, stop=Stop()).load
    with monkeypatch.context() as limited:
        limit_to(limited, MEMORY_FOR_ONE)
        with pytest.raises(Unavailable):
            run_job.run_job(
                scene.installation, claimed(scene.installation), must_not_run, load=load
            )
    assert "MemoryError" in capfd.readouterr().err
    assert scene.end(jobs[0]) == (JobState.QUEUED, "cannot-load", ["reserve"])
    run_job.run_job(
        scene.installation, claimed(scene.installation), perform_here, load=load
    )
    assert scene.end(jobs[1]) == (JobState.SUCCEEDED, None, ["reserve", "charge"])


def test_a_child_that_waits_looks_at_what_each_job_needs(
    scene: Scene, children: Children
) -> None:
    """A job that is not charged after its look leaves the child to the next job."""
    jobs, load = (
        [profile(scene, key) for key in "pq"],
        Supervisor(interval_s=0, stop=Stop()).load,
    )
    looked = list[object]()

    def freeze(lease: run_job.Lease, needs: run_job.Needs) -> None:
        load(lease, needs)
        looked.append(children._waiting)
        assert needs.files
        if len(looked) == 1:
            raise run_job.Stopped

    for _ in range(2):
        run_job.run_job(
            scene.installation, claimed(scene.installation), perform_here, load=freeze
        )
    assert looked[0] is looked[1] is not None
    assert scene.end(jobs[0]) == (JobState.SUCCEEDED, None, ["reserve", "charge"])


def test_a_job_is_put_back_after_its_folder_is_removed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker may charge the job right after, and its child is in the folder."""
    job_id, states = profile(scene), list[str]()

    def note(_: Path, *, ignore_errors: bool) -> None:
        with scene.installation.database.read() as session:
            states.append(queue.job(session, job_id).state)

    def stop(_: run_job.Lease, __: run_job.Needs) -> None:
        raise run_job.Stopped

    monkeypatch.setattr(run_job.shutil, "rmtree", note)
    run_job.run_job(
        scene.installation, claimed(scene.installation), must_not_run, load=stop
    )
    assert states == [JobState.RUNNING]
    assert scene.end(job_id) == (JobState.QUEUED, None, ["reserve"])


def test_rows_that_are_copied_later_need_a_cache_that_takes_files(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile stores no file, and with public times its rows are copied after the
    charge.
    """

    class Elsewhere(Directory):
        """A store that is no folder of the home."""

    store = Elsewhere(scene.installation.home)
    monkeypatch.setattr(run_job, "Directory", type("OfTheHome", (), {}))
    job_id = profile(scene)
    installation = replace(scene.installation, files=store)
    (scene.installation.home / "cache").write_text("in the way")
    with pytest.raises(Unavailable):
        run_here(installation, claimed(installation), must_not_run)
    assert scene.end(job_id) == (JobState.QUEUED, "no-room", ["reserve"])
