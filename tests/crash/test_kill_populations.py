"""Tests kill -9 between an entry of a member and the population's entry: both are
committed, or neither.
"""

import pytest

from tests.crash.conftest import KillRequest, Launcher
from tests.support.member_scene import MemberScene


@pytest.fixture
def member(own_launcher: Launcher) -> MemberScene:
    return MemberScene.joined(own_launcher.scene)


@pytest.mark.parametrize("point", ["member-entry-written", "load-written"])
def test_a_reservation_and_its_load_are_committed_together(
    member: MemberScene, point: str, kill_request: KillRequest
) -> None:
    kill_request(point, member.scene)
    assert member.scene.verified().kinds == {"open": 1}
    assert member.verified().kinds == {"open": 1, "join": 1}
    member.scene.submit(key=point, epsilon="3")
    assert member.verified().kinds == {"open": 1, "join": 1, "load": 1}
    assert member.verified().together == 3 * 10**9


@pytest.mark.parametrize("point", ["void-written", "void-load-written"])
def test_a_void_and_its_load_are_committed_together(
    member: MemberScene, point: str, kill_request: KillRequest
) -> None:
    member.scene.submit(key="k", epsilon="3")
    kill_request(point, member.scene)
    assert member.scene.verified().kinds == {"open": 1, "reserve": 1}
    assert member.verified().together == 3 * 10**9
    member.cancel_newest_job()
    assert member.scene.verified().kinds == {"open": 1, "reserve": 1, "void": 1}
    assert member.verified().together == 0


@pytest.mark.parametrize(
    ("point", "n_changes"),
    [("population-cap-written", 0), ("population-cap-answered", 1)],
)
def test_a_population_cap_is_changed_once_or_not_at_all(
    member: MemberScene, point: str, n_changes: int, kill_request: KillRequest
) -> None:
    kill_request(point, member.scene)
    assert member.verified().kinds.get("cap", 0) == n_changes
    member.lower_cap("1", key=point)
    summary = member.verified()
    assert (summary.cap, summary.kinds["cap"]) == (10**9, 1)
