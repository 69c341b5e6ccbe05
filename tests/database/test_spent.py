"""Charges added up by key, purpose, kind, month and cell, compared with sums over the
entries themselves.
"""

import json
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest
from sqlalchemy import event as events

from app.access.grants import Principal
from app.core.errors import InvalidRequest, NotFound, RoleMissing
from app.ledger.tables import EntryKind
from app.services.jobs.show_jobs import cancel_job
from app.services.keys import create_key, put_grant
from app.services.ledger.balances import show_balance
from app.services.ledger.history import Search, list_entries, search_entries
from app.services.ledger.spent import show_spent
from app.services.pagination import PageRequest
from app.wire.keys import KeyIn
from app.wire.ledger import SpentGroup, SpentOut
from app.wire.training import TrainIn
from tests.support.asking import submit_training
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene
from tests.support.job_kinds import profile, request, run
from tests.support.set_limits import SetLimit

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]


def analyst(scene: Scene, name: str = "Ann Analyst") -> Principal:
    """A key that was granted the role of an analyst."""
    key = create_key(scene.installation, ADMIN, KeyIn(name=name, roles=[]))
    put_grant(scene.installation, OWNER, scene.dataset_id, key.id, role="analyst")
    return Principal(key.id, name=name)


def submit(scene: Scene, by: Principal, epsilon: str, **fields: Any) -> str:
    """Submits a training and returns its job."""
    body = TrainIn(
        dataset=scene.dataset_id,
        algorithm="rdt-ta",
        epsilon=epsilon,  # type: ignore[arg-type]  # as it comes over the wire
        parameters={"n_estimators": 2, "max_depth": 2},
        **fields,
    )
    key = request("POST /train", f"{by.key_id}{epsilon}{fields}")
    answer = submit_training(scene.installation, by, body, request=key)
    return str(json.loads(answer.body)["job_id"])


@pytest.fixture
def ann(scene: Scene) -> Principal:
    """An analyst beside an owner, on an account with charges of both, a cancelled job
    and a queued job.
    """
    ann = analyst(scene)
    for by, epsilon, fields in (
        (OWNER, "0.25", {"purpose": "a pilot", "scope": {"shard": [0]}}),
        (ann, "0.5", {"purpose": "a pilot", "scope": {"shard": [1, 2]}}),
        (ann, "0.125", {"scope": {"shard": [2]}}),
    ):
        submit(scene, by, epsilon, **fields)
        run(scene)
    profile(scene)
    run(scene)
    scene.charge_external(key="x", epsilon="1")
    cancel_job(scene.installation, ann, submit(scene, ann, "0.0625", purpose="none"))
    submit(scene, OWNER, "0.03125", purpose="it waits")
    return ann


def spent(scene: Scene, by: Any, caller: Principal = ADMIN, **only: Any) -> SpentOut:
    only = {"actor": None, **only}
    return show_spent(scene.installation, caller, scene.dataset_id, by=by, **only)


def sums(groups: Iterable[SpentGroup]) -> dict[str | None, tuple[str, int | None]]:
    return {group.group: (group.charged, group.charges) for group in groups}


def test_charges_add_up_by_key_purpose_kind_and_month(
    scene: Scene, ann: Principal
) -> None:
    by_key = spent(scene, "key")
    assert sums(by_key.groups) == {
        OWNER.key_id: ("1.75", 3),
        ann.key_id: ("0.625", 2),
    }
    assert [group.name for group in by_key.groups][1] == "Ann Analyst"
    assert sums(spent(scene, "purpose").groups) == {
        None: ("1.625", 3),
        "a pilot": ("0.75", 2),
    }
    both = spent(scene, "key,purpose").groups
    assert [(it.name, it.group, it.purpose, it.charged, it.charges) for it in both] == [
        ("test", OWNER.key_id, None, "1.5", 2),
        ("Ann Analyst", ann.key_id, "a pilot", "0.5", 1),
        ("test", OWNER.key_id, "a pilot", "0.25", 1),
        ("Ann Analyst", ann.key_id, None, "0.125", 1),
    ]
    assert sums(spent(scene, "kind").groups) == {
        "external": ("1", 1),
        "train": ("0.875", 3),
        "profile": ("0.5", 1),
    }
    by_month = Counter[str]()
    for entry in scene.entries():
        if entry.kind == "charge":
            by_month[entry.at[:7]] += entry.amount
    months = spent(scene, "month").groups
    assert [group.group for group in months] == sorted(by_month, reverse=True)
    assert sum(group.share for group in months) == pytest.approx(1)
    assert by_key.charged == "2.375"
    assert by_key.groups[0].share == pytest.approx(1.75 / 2.375)


def test_what_is_spent_is_that_of_the_balance_and_cells_are_their_loads(
    scene: Scene, ann: Principal
) -> None:
    """Charges on disjoint cells do not add up. What waits is not charged."""
    balance = show_balance(scene.installation, ADMIN, scene.dataset_id, scope={})
    by_cell = spent(scene, "cell")
    assert by_cell.spent == balance.charged == "2"
    assert Fraction(by_cell.charged) > Fraction(by_cell.spent)
    assert {name: charged for name, (charged, _) in sums(by_cell.groups).items()} == {
        f"shard={cell.cell}": cell.charged for cell in balance.partitions[0].cells
    }
    assert [group.group for group in by_cell.groups] == [
        "shard=1", "shard=2", "shard=0", "shard=3",
    ]  # fmt: skip
    of_ann = spent(scene, "cell", actor="Ann Analyst")
    assert sums(of_ann.groups) == {
        "shard=2": ("0.625", None),
        "shard=1": ("0.5", None),
        "shard=0": ("0", None),
        "shard=3": ("0", None),
    }


def test_an_analyst_reads_the_own_charges_and_no_others(
    scene: Scene, ann: Principal
) -> None:
    for by in ("key", "purpose", "key,purpose", "kind", "month", "cell"):
        own = spent(scene, by, ann)
        assert own.charged == "0.625"
        named = (None, ann.key_id, "Ann Analyst")
        assert all(spent(scene, by, ann, actor=it) == own for it in named)
        assert own.groups == spent(scene, by, actor=ann.key_id).groups
    with pytest.raises(RoleMissing):
        spent(scene, "key", ann, actor=OWNER.key_id)
    with pytest.raises(RoleMissing):
        spent(scene, "key", ann, actor="nobody")
    bob = analyst(scene, "Bob")
    assert spent(scene, "purpose", bob).groups == []
    with pytest.raises(NotFound):
        spent(scene, "key", STRANGER)
    with pytest.raises(InvalidRequest):
        spent(scene, "key", actor="nobody")


def test_an_account_without_charges_has_no_groups(scene: Scene) -> None:
    for by in ("key", "purpose", "kind", "month"):
        answer = spent(scene, by)
        assert (answer.charged, answer.spent, answer.groups) == ("0", "0", [])
    assert {group.charged for group in spent(scene, "cell").groups} == {"0"}


def test_the_largest_groups_are_listed_and_all_are_counted(
    scene: Scene, ann: Principal, set_limit: SetLimit
) -> None:
    set_limit("MAX_SPENT_GROUPS", 2)
    by_kind = spent(scene, "kind")
    assert list(sums(by_kind.groups)) == ["external", "train"]
    assert by_kind.n_groups == 3


def test_one_statement_reads_the_charges_and_nothing_is_locked(
    scene: Scene, ann: Principal
) -> None:
    database, statements = scene.installation.database, list[str]()

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    events.listen(database.engine, "before_cursor_execute", note)
    spent(scene, "purpose")
    events.remove(database.engine, "before_cursor_execute", note)
    assert sum("sum(" in statement for statement in statements) == 1
    assert not any("FOR UPDATE" in statement for statement in statements)


def test_the_ledger_lists_the_entries_of_exactly_one_purpose(
    scene: Scene, ann: Principal
) -> None:
    run(scene)  # the job that waits
    others = ("A Pilot", "a pilot é", 'as "purpose":"a pilot"', "100 %")
    for purpose in others:
        submit(scene, ann, "0.01", purpose=purpose)
        run(scene)

    def found(purpose: str, **only: Any) -> list[tuple[str, str | None]]:
        """Kind and purpose of the entries, in both orders."""
        search = Search(purpose=purpose, **only)
        where = (scene.installation, ADMIN, scene.dataset_id)
        entries = list_entries(*where, PageRequest(), search).entries
        newest = search_entries(*where, search, PageRequest()).entries
        shown = [entry.model_dump() for entry in entries]
        assert shown == [item.entry.model_dump() for item in newest][::-1]
        return [
            (entry["kind"], entry.get("details", {}).get("purpose")) for entry in shown
        ]

    pilot = [("reserve", "a pilot"), ("charge", "a pilot")]
    assert sorted(found("a pilot")) == sorted(2 * pilot)
    for purpose in others:
        assert found(purpose) == [("reserve", purpose), ("charge", purpose)]
    # a reservation that ended without a charge, with its end
    assert [kind for kind, _ in found("none")] == ["reserve", "void"]
    assert found("a pilot", kinds=[EntryKind.CHARGE]) == 2 * pilot[1:]
    for nothing in ("a pilo", "a%t", 'it waits"}'):
        assert found(nothing) == []
