"""kill -9 between an entry of a member and what its population says of it: both are there, or neither."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.conftest import Launcher
from tests.support.crash_scene import Scene
from tests.support.member_scene import MemberScene

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def member(own_launcher: Launcher) -> MemberScene:
    return MemberScene.joined(own_launcher.scene)


def _kill_at(point: str, scene: Scene) -> None:
    settings = scene.installation.settings
    where = [settings.database_url, str(settings.home), scene.dataset_id]
    command = [sys.executable, "-m", "tests.support.crash", "request", point, *where]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, b"")


@pytest.mark.parametrize("point", ["member-entry-written", "load-written"])
def test_a_reservation_and_its_load_are_one(member: MemberScene, point: str) -> None:
    _kill_at(point, member.scene)
    assert member.scene.verified().kinds == {"open": 1}
    assert member.verified().kinds == {"open": 1, "join": 1}
    member.scene.submit(key=point, epsilon="3")
    assert member.verified().kinds == {"open": 1, "join": 1, "load": 1}
    assert member.verified().together == 3 * 10**9


@pytest.mark.parametrize("point", ["void-written", "void-load-written"])
def test_what_was_given_back_and_its_load_are_one(member: MemberScene, point: str) -> None:
    member.scene.submit(key="k", epsilon="3")
    _kill_at(point, member.scene)
    assert member.scene.verified().kinds == {"open": 1, "reserve": 1}
    assert member.verified().together == 3 * 10**9
    member.cancel_newest_job()
    assert member.scene.verified().kinds == {"open": 1, "reserve": 1, "void": 1}
    assert member.verified().together == 0


@pytest.mark.parametrize(("point", "n_changes"), [("population-cap-written", 0), ("population-cap-answered", 1)])
def test_a_cap_of_a_population_is_changed_once_or_not_at_all(member: MemberScene, point: str, n_changes: int) -> None:
    _kill_at(point, member.scene)
    assert member.verified().kinds.get("cap", 0) == n_changes
    member.lower_cap("1", key=point)
    found = member.verified()
    assert (found.cap, found.kinds["cap"]) == (10**9, 1)
