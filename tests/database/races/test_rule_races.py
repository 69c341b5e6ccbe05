"""Tests rules and approvals under concurrent processes, on both databases."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from app.access import keys
from app.access.grants import Principal
from app.core import stamps
from app.services.ledger.audit import list_acts
from app.services.pagination import PageRequest
from tests.database.races.conftest import Race
from tests.support.crash_scene import ADMIN, OWNER, Scene, opened
from tests.support.job_kinds import claimed
from tests.support.ruled import SECOND, grant, set_rules


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with opened(
        database_url, tmp_path / "home", epsilon="100", lease_ttl_s=600
    ) as scene:
        grant(scene, "analyst")
        yield scene


def test_a_quota_holds_at_once_and_is_filled(race: Race, scene: Scene) -> None:
    own, together = Fraction("1.2"), Fraction(2)
    quotas = [
        {"keys": [OWNER.key_id], "cap": "1.2"},
        {"keys": [OWNER.key_id, SECOND.key_id], "cap": "2"},
    ]
    set_rules(scene, quotas=quotas)
    results = race(
        scene.installation,
        "submit_ruled",
        dataset=scene.dataset_id,
        rounds=6,
        n_processes=4,
    )
    spent: Counter[str] = Counter()
    for key, epsilon in (accepted for result in results for accepted in result):
        spent[key] += Fraction(epsilon)  # type: ignore[assignment]  # exact
    assert spent[OWNER.key_id] <= own
    assert together - Fraction("0.1") < sum(spent.values()) <= together, (
        "the quota is filled"
    )
    assert Fraction(scene.verified().tightest.load, 10**9) == sum(spent.values())


def test_a_waiting_job_has_one_end(race: Race, scene: Scene) -> None:
    """Two owners decide, a third cancels, and the sweeper expires, all at once. On a busy
    machine one of them may be the first everywhere, so the race is run again.
    """
    set_rules(scene, approval_above="0.001")
    analysts = [Principal(f"key_analyst{number}") for number in range(2)]
    for analyst in analysts:
        with scene.installation.database.write() as session:
            keys.add(
                session, key_id=analyst.key_id, secret="s" * 43, name="test", roles=[]
            )
        grant(scene, "analyst", to=analyst)
    kinds = set[str]()
    for turn in range(9):
        kinds |= _ended_at_once(race, scene, analysts, turn)
        if len(kinds) > 1:
            break
    assert len(kinds) > 1, "several kinds of ends took part"
    assert scene.verified().tightest.load == 0


def _ended_at_once(
    race: Race, scene: Scene, analysts: Sequence[Principal], turn: int
) -> set[str]:
    """Ends six waiting jobs in five processes, and returns the kinds of ends."""
    jobs = [
        scene.submit_job(key=f"{turn}-{number}", by=analyst)
        for analyst in analysts
        for number in range(3)
    ]
    results = race(
        scene.installation,
        "end_waiting_jobs",
        dataset=scene.dataset_id,
        jobs=jobs,
        n_processes=5,
    )
    succeeded = [event for result in results for event in result]
    for job_id in jobs:
        ends = [
            event.removesuffix(job_id).strip()
            for event in succeeded
            if event.endswith(job_id)
        ]
        approvals = [end for end in ends if end.startswith("approve")]
        (last,) = [end for end in ends if not end.startswith("approve")]
        assert len(approvals) <= 1
        assert not approvals or last != "reject", (
            "an approved job is in the queue, where it can end, too"
        )
        assert scene.kinds_of(job_id) == [
            "reserve",
            "expire" if last == "expire" else "void",
        ]
    return {event.split()[0] for event in succeeded}


def test_no_job_is_charged_after_the_answer_to_a_freeze(
    race: Race, scene: Scene
) -> None:
    claims = []
    for number in range(12):
        scene.submit(key=f"k{number}")
        claim = claimed(scene.installation)
        claims.append([claim.job_id, claim.token])
    after_freeze, *_ = race(
        scene.installation,
        "charge_or_freeze",
        dataset=scene.dataset_id,
        claims=claims,
        n_processes=4,
    )
    assert sum(entry.kind == "charge" for entry in scene.entries()) == after_freeze
    scene.verified()


def test_a_due_dataset_is_erased_once(race: Race, scene: Scene) -> None:
    """By one of many sweepers, or by its owner at the same moment."""
    job_id = scene.submit_job(key="k")
    at = stamps.to_text(stamps.now() + timedelta(days=1))
    set_rules(scene, erase_rows_at=at)
    results = race(
        scene.installation,
        "erase_due_dataset",
        dataset=scene.dataset_id,
        at=at,
        n_processes=4,
    )
    assert sum(map(len, results)) <= 1
    assert scene.end(job_id) == ("cancelled", "dataset-erased", ["reserve", "void"])
    acts = list_acts(scene.installation, ADMIN, PageRequest(limit=500)).acts
    assert sum(act.kind == "dataset-deleted" for act in acts) == 1
    scene.verified()
