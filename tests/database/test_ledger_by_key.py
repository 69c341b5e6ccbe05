"""A ledger filtered by a key shows what the key spent, also where a worker charged for
it; names stand for keys.
"""

import pytest

from app.access import keys
from app.core.errors import InvalidRequest
from app.ledger import accounts, statements
from app.ledger.tables import EntryKind
from app.services.keys import create_key
from app.services.ledger.history import (
    EVERY_ENTRY,
    Search,
    list_entries,
    search_entries,
)
from app.services.pagination import PageRequest
from app.wire.keys import KeyIn
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.job_kinds import run
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

PAGE = PageRequest()


def listed(scene: Scene, **search: object) -> list[tuple[str, str]]:
    """Kind and actor of the entries of a search, in both orders."""
    chosen = Search(**search)  # type: ignore[arg-type]
    in_order = list_entries(
        scene.installation, ADMIN, scene.dataset_id, PAGE, chosen
    ).entries
    newest = search_entries(
        scene.installation, ADMIN, scene.dataset_id, chosen, PAGE
    ).entries
    assert [entry.sequence for entry in in_order] == [
        it.entry.sequence for it in reversed(newest)
    ]
    return [(entry.kind, entry.actor) for entry in in_order]


def problem(scene: Scene, actor: str) -> tuple[str, str, tuple[str, ...]]:
    with pytest.raises(InvalidRequest) as refused:
        listed(scene, actor=actor)
    (error,) = refused.value.errors
    return error.at, error.problem, tuple(error.accepted)


def test_what_a_worker_charged_for_a_key_is_an_entry_of_the_key(scene: Scene) -> None:
    scene.submit_job(key="a")
    run(scene)
    assert ("charge", "worker") in listed(scene, actor=OWNER.key_id)
    assert listed(scene, actor=OWNER.key_id, kinds=[EntryKind.CHARGE]) == [
        ("charge", "worker")
    ]
    assert listed(scene, actor="worker") == [("charge", "worker")]
    everything = search_entries(
        scene.installation, ADMIN, scene.dataset_id, EVERY_ENTRY, PAGE
    ).entries
    assert everything[0].charged is not None, "the running balance stays"


def test_a_name_stands_for_the_key_that_submitted_something(scene: Scene) -> None:
    made = [
        create_key(
            scene.installation, ADMIN, KeyIn(name="Ann Analyst", roles=["owner"])
        )
        for _ in range(2)
    ]
    assert problem(scene, "Ann Analyst") == ("/actor", "without-entries", ())
    assert problem(scene, made[0].id) == ("/actor", "without-entries", ())
    assert problem(scene, "nobody") == ("/actor", "without-entries", ())
    with scene.installation.database.read() as session:
        name = keys.find(session, OWNER.key_id).name
    scene.submit_job(key="a")
    assert listed(scene, actor=name) == listed(scene, actor=OWNER.key_id) != []


def test_keys_of_a_name_that_submitted_nothing_hide_no_key_that_did(
    scene: Scene, set_limit: SetLimit
) -> None:
    """Whichever comes first: the keys without entries do not count for the limit."""
    set_limit("MAX_KEYS_OF_A_NAME", 2)
    made = sorted(
        create_key(scene.installation, ADMIN, KeyIn(name="Ann", roles=["admin"])).id
        for _ in range(4)
    )
    lower_cap(scene, made[2])
    assert listed(scene, actor="Ann") == [("cap", made[2])]
    lower_cap(scene, made[3])
    assert problem(scene, "Ann") == ("/actor", "ambiguous", tuple(made[2:]))


def lower_cap(scene: Scene, key_id: str) -> None:
    with scene.installation.database.write() as session:
        cap = statements.balance(session, scene.dataset_id).cap
        accounts.change_cap(
            session, scene.dataset_id, cap - 1, reason="less", actor=key_id
        )
