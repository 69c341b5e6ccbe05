"""The last uses of keys: noted without a write, written in batches, and never moved
back.
"""

from datetime import timedelta

import pytest

from app.access import keys
from app.core import limits, stamps
from app.services.keys import list_keys, record_uses
from app.services.pagination import PageRequest
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene

pytestmark = pytest.mark.contract


def _shown(scene: Scene) -> dict[str, str | None]:
    listed = list_keys(
        scene.installation, ADMIN, PageRequest(limit=limits.MAX_PAGE_SIZE)
    ).keys
    return {key.id: key.last_used_at for key in listed}


def test_a_use_is_shown_by_its_hour_once_it_is_written(scene: Scene) -> None:
    at = stamps.from_text("2026-11-22T21:59:59.999999Z")
    uses = scene.installation.last_uses
    uses.note(OWNER.key_id, at=at)
    assert _shown(scene)[OWNER.key_id] is None
    record_uses(scene.installation)
    shown = {key_id: used for key_id, used in _shown(scene).items() if used is not None}
    assert shown == {OWNER.key_id: "2026-11-22T21:00:00.000000Z"}
    assert uses.take() == {}, "a written use is not written again"
    uses.note(OWNER.key_id, at=at)
    assert uses.take() == {}, "nor is another use in the same hour"
    uses.note(OWNER.key_id, at=at + timedelta(seconds=1))
    assert list(uses.take()) == [OWNER.key_id]


def test_a_later_use_that_another_process_wrote_stays(scene: Scene) -> None:
    later = stamps.from_text("2026-11-22T22:00:00.000000Z")
    with scene.installation.database.write() as session:
        keys.find(session, STRANGER.key_id).last_used_at = later
    scene.installation.last_uses.note(STRANGER.key_id, at=later - timedelta(hours=1))
    record_uses(scene.installation)
    assert _shown(scene)[STRANGER.key_id] == stamps.to_text(later)


def test_a_process_notes_more_uses_than_one_transaction_writes(scene: Scene) -> None:
    uses = scene.installation.last_uses
    for number in range(limits.MAX_PAGE_SIZE + 1):
        uses.note(f"key_{number}", at=stamps.now())
    record_uses(scene.installation)
    assert len(uses.take()) == 1
