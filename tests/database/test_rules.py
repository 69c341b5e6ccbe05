"""Rules of datasets on both databases: what they refuse, and what a freeze stops."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.core import limits
from app.core.errors import BudgetExceeded, Frozen, InvalidRequest, QuotaExceeded
from app.jobs.states import JobState
from app.ledger import tables
from app.services.dataset_rules import show_rules
from app.services.datasets.membership import join_population
from app.services.execution import charge, run_job
from app.services.jobs import show_jobs
from app.services.jobs.show_jobs import cancel_job
from app.services.jobs.task import JobTask
from app.services.keys import create_key, put_grant
from app.services.ledger import balances
from app.services.models import list_models
from app.services.pagination import PageRequest
from app.wire.keys import KeyIn
from app.wire.training import PlanIn, PlanOut, TrainIn
from tests.support import job_kinds
from tests.support.asking import show_plan, submit_training
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import claimed, run_here
from tests.support.ruled import SECOND, grant, set_rules
from tests.support.sweeping import expired_at
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract


def _quota(cap: str, *keys: str) -> dict[str, Any]:
    return {"keys": list(keys), "cap": cap}


def _fits(scene: Scene, epsilon: str, **request: Any) -> str:
    """What a refusal says would fit; the same number is admitted afterwards, and the
    quote said it before.
    """
    with pytest.raises(QuotaExceeded) as refused:
        scene.submit(key=f"over {epsilon}", epsilon=epsilon, **request)
    return refused.value.largest_that_fits


def _quote(scene: Scene, epsilon: str) -> PlanOut:
    body = PlanIn.model_validate(
        {"dataset": scene.dataset_id, "algorithm": "rdt-ta", "epsilon": epsilon}
    )
    return show_plan(scene.installation, OWNER, body)


def _evaluate(scene: Scene) -> None:
    (model,) = list_models(scene.installation, OWNER, PageRequest()).models
    job_kinds.evaluation(scene, model.id)


def _submit_both_parts(scene: Scene, epsilon: str, of_second: str) -> str:
    """Submits a job that reads two cells of one dataset; returns its state."""
    body = TrainIn.model_validate(
        {
            "dataset": scene.dataset_id,
            "algorithm": "sspe-1",
            "epsilon": epsilon,
            "scope": {"shard": [0]},
            "parameters": {"n_estimators": 2, "max_depth": 2},
            "unlabelled": {
                "dataset": scene.dataset_id,
                "epsilon": of_second,
                "scope": {"shard": [1]},
            },
        }
    )
    request = job_kinds.request("POST /train", f"{epsilon} {of_second}")
    answer = submit_training(scene.installation, OWNER, body, request=request)
    return str(json.loads(answer.body)["state"])


def test_a_job_above_the_largest_job_is_refused_whatever_its_scope(
    scene: Scene,
) -> None:
    set_rules(scene, largest_job="0.5")
    assert _fits(scene, "0.500000001", scope={"shard": [0]}) == "0.5"
    quote = _quote(scene, "0.6")
    assert (quote.fits, quote.largest_that_fits, quote.population) == (
        False,
        "0.5",
        None,
    )
    assert (quote.limited_by, quote.left_afterwards) == ("largest_job", "0")
    scene.submit(key="k", epsilon="0.5")
    assert scene.verified().tightest.load == 5 * 10**8


@pytest.mark.parametrize(
    "spend",
    [
        job_kinds.profile,
        lambda scene: scene.charge_external(key="e"),
        lambda scene: _evaluate(scene),
    ],
)
def test_every_kind_of_spending_counts_and_is_refused(
    scene: Scene, spend: Callable[[Scene], object]
) -> None:
    """Each spends ε = 0.5."""
    job_kinds.model(scene, "m")  # costs 0.01
    set_rules(scene, quotas=[_quota("0.21", OWNER.key_id)])
    n_entries = len(scene.entries())
    with pytest.raises(QuotaExceeded) as refused:
        spend(scene)
    assert refused.value.largest_that_fits == "0.2"
    assert len(scene.entries()) == n_entries
    set_rules(scene, by=ADMIN, quotas=[_quota("0.6", OWNER.key_id)])
    spend(scene)
    assert _fits(scene, "0.1") == "0.09"


def test_jobs_on_disjoint_cells_add_up_in_a_quota_and_a_void_job_does_not_count(
    scene: Scene,
) -> None:
    set_rules(scene, quotas=[_quota("0.5", OWNER.key_id)])
    first = scene.submit_job(key="a", epsilon="0.3", scope={"shard": [0]})
    assert _fits(scene, "0.3", scope={"shard": [1]}) == "0.2"
    cancel_job(scene.installation, OWNER, first)
    scene.submit(key="b", epsilon="0.3", scope={"shard": [1]})
    charge.charge_claimed(scene.installation, claimed(scene.installation))
    assert _fits(scene, "0.3", scope={"shard": [2]}) == "0.2", "a charge counts"


def test_keys_of_a_quota_add_up_and_other_keys_do_not(scene: Scene) -> None:
    grant(scene, "analyst")
    grant(scene, "analyst", to=ADMIN)
    set_rules(
        scene,
        quotas=[
            _quota("0.5", OWNER.key_id, SECOND.key_id),
            _quota("0.4", SECOND.key_id),
        ],
    )
    scene.submit(key="a", epsilon="0.2", by=SECOND)
    assert _fits(scene, "0.3", by=SECOND) == "0.2", "of its own quota"
    scene.submit(key="b", epsilon="0.25")
    assert _fits(scene, "0.1", by=SECOND) == "0.05", "of the common quota"
    assert _fits(scene, "0.1") == "0.05"
    scene.submit(key="c", epsilon="1", by=ADMIN)
    shown = show_rules(scene.installation, OWNER, scene.dataset_id)
    assert [(quota.keys, quota.cap, quota.spent) for quota in shown.quotas] == [
        (sorted([OWNER.key_id, SECOND.key_id]), "0.5", "0.45"),
        ([SECOND.key_id], "0.4", "0.2"),
    ]


def test_a_key_of_several_quotas_adds_up_with_the_keys_of_each(scene: Scene) -> None:
    grant(scene, "analyst")
    set_rules(
        scene,
        quotas=[
            _quota("0.4", OWNER.key_id),
            _quota("0.5", OWNER.key_id, SECOND.key_id),
        ],
    )
    scene.submit(key="a", epsilon="0.45", by=SECOND)
    assert _fits(scene, "0.1") == "0.05", (
        "of the quota that is not the first of the key"
    )


def test_what_fits_is_the_least_of_budget_and_rules(scene: Scene) -> None:
    set_rules(scene, largest_job="2.5", quotas=[_quota("2.8", OWNER.key_id)])
    scene.submit(key="a", epsilon="1")
    with pytest.raises(QuotaExceeded) as refused:
        scene.submit(key="b", epsilon="2.6")
    assert (
        refused.value.largest_that_fits
        == _quote(scene, "2.6").largest_that_fits
        == "1.8"
    )
    scene.lower_cap("1.5", key="c")
    with pytest.raises(BudgetExceeded) as exceeded:
        scene.submit(key="d", epsilon="0.7")
    balance = balances.show_balance(
        scene.installation, OWNER, scene.dataset_id, scope={}
    )
    assert exceeded.value.largest_that_fits == balance.largest_that_fits == "0.5"
    set_rules(scene, largest_job="0.3", quotas=[_quota("2.8", OWNER.key_id)])
    balance = balances.show_balance(
        scene.installation, OWNER, scene.dataset_id, scope={}
    )
    assert (balance.remaining, balance.available, balance.largest_that_fits) == (
        "0.5",
        "0.3",
        "0.3",
    )


@pytest.mark.parametrize(
    ("quota", "after"), [("3", "0.5"), ("1", "0.5"), ("0.9", "0.4"), ("0.5", "0")]
)
def test_what_fits_after_a_job_is_what_fits_then(
    scene: Scene, quota: str, after: str
) -> None:
    """A largest job is the same after any job; a quota and the budget are not."""
    set_rules(scene, largest_job="0.5", quotas=[_quota(quota, OWNER.key_id)])
    assert _quote(scene, "0.5").left_afterwards == after
    scene.submit(key="a", epsilon="0.5")
    assert _quote(scene, "0.1").largest_that_fits == after


def test_a_refusal_shows_neither_rules_nor_other_keys(scene: Scene) -> None:
    set_rules(
        scene, largest_job="0.5", quotas=[_quota("0.7", OWNER.key_id, SECOND.key_id)]
    )
    with pytest.raises(QuotaExceeded) as refused:
        scene.submit(key="k", epsilon="0.6")
    assert set(vars(refused.value)) == {
        "dataset",
        "dataset_name",
        "accountant",
        "unit",
        "requested",
        "what_fits",
    }
    assert SECOND.key_id not in str(refused.value)
    assert "0.7" not in str(refused.value)


def test_both_accounts_of_a_job_obey_their_rules(scene: Scene) -> None:
    pair = Pair.beside(scene)
    set_rules(pair.second, quotas=[_quota("0.05", OWNER.key_id)])
    pair.submit(key="a", of_second="0.02")
    with pytest.raises(QuotaExceeded) as refused:
        pair.submit(key="b", of_second="0.04")
    assert (refused.value.dataset, refused.value.largest_that_fits) == (
        pair.second.dataset_id,
        "0.03",
    )
    pair.swapped.submit(key="c", epsilon="0.03")
    with pytest.raises(QuotaExceeded):
        pair.submit(key="d", of_second="0.001")
    pair.verify()


def test_both_parts_of_a_job_on_one_dataset_add_up(scene: Scene) -> None:
    """No row is in both parts, but a job counts whole."""
    set_rules(scene, largest_job="0.5", quotas=[_quota("0.7", OWNER.key_id)])
    with pytest.raises(QuotaExceeded) as refused:
        _submit_both_parts(scene, "0.3", "0.3")
    assert refused.value.largest_that_fits == "0.2"
    _submit_both_parts(scene, "0.3", "0.2")
    with pytest.raises(QuotaExceeded):
        _submit_both_parts(scene, "0.15", "0.15")


@on_one_database
def test_both_parts_of_a_job_on_one_dataset_need_an_approval_together(
    scene: Scene,
) -> None:
    set_rules(scene, approval_above="0.5")
    assert _submit_both_parts(scene, "0.3", "0.3") == "waiting"


def test_what_fits_is_the_least_of_population_and_rules(scene: Scene) -> None:
    pair = Pair.beside(scene)
    for place in (pair.first, pair.second):
        join_population(
            scene.installation, OWNER, place.dataset_id, population="people"
        )
    set_rules(pair.first, largest_job="2.5")
    pair.second.submit(key="a", epsilon="1")
    assert _fits(pair.first, "2.6") == "2", "of the population"
    pair.second.submit(key="b", epsilon="1.5")
    set_rules(pair.first, largest_job="0.2")
    assert _fits(pair.first, "0.3") == "0.2", "of the rules"


def test_a_replay_answers_as_before_after_the_rules_were_tightened(
    scene: Scene,
) -> None:
    first = scene.submit(key="k", epsilon="0.5")
    charged = scene.charge_external(key="e", epsilon="0.5")
    set_rules(
        scene, largest_job="0.1", quotas=[_quota("0.1", OWNER.key_id)], frozen=True
    )
    assert scene.submit(key="k", epsilon="0.5") == first
    assert scene.charge_external(key="e", epsilon="0.5") == charged


def test_a_frozen_dataset_admits_nothing_and_starts_no_job(scene: Scene) -> None:
    queued = scene.submit_job(key="a")
    begun = scene.submit_job(key="b")
    claim = claimed(scene.installation)
    charge.charge_claimed(scene.installation, claim)
    set_rules(scene, frozen=True)
    with pytest.raises(Frozen):
        scene.submit(key="c")
    with pytest.raises(Frozen):
        scene.charge_external(key="d")
    quote = _quote(scene, "0.1")
    assert (quote.fits, quote.largest_that_fits) == (False, "0")
    assert any("frozen" in warning for warning in quote.warnings)
    assert run_job.claim_next(scene.installation) is None
    charged, waiting = (queued, begun) if claim.job_id == queued else (begun, queued)
    assert (scene.job(charged).state, scene.job(waiting).state) == (
        "running",
        "queued",
    ), "a charged job goes on"
    set_rules(scene, by=ADMIN)
    assert claimed(scene.installation).job_id == waiting


def test_a_job_that_was_claimed_before_a_freeze_returns_to_the_queue(
    scene: Scene,
) -> None:
    job_id = scene.submit_job(key="a")
    claim = claimed(scene.installation)
    set_rules(scene, frozen=True)

    def must_not_run(_: JobTask) -> None:
        raise AssertionError("rows would be read")

    run_here(scene.installation, claim, must_not_run)
    assert scene.end(job_id) == ("queued", None, ["reserve"])
    scene.assert_no_orphans()


def test_a_freeze_that_commits_before_the_charge_has_its_locks_stops_the_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock that a charge waits for is that of a change of rules."""
    job_id = scene.submit_job(key="a")
    claim = claimed(scene.installation)
    frozen = set[str]()
    honest = charge.reservations.charge_job

    def waits(*of_job: Any, **named: Any) -> None:
        frozen.add(scene.dataset_id)
        honest(*of_job, **named)

    monkeypatch.setattr(charge.reservations, "charge_job", waits)
    monkeypatch.setattr(charge.rules, "closed_accounts", lambda *_, **__: frozen)
    with pytest.raises(Frozen):
        charge.charge_claimed(scene.installation, claim)
    assert scene.end(job_id) == ("running", None, ["reserve"])


def test_one_frozen_dataset_of_two_keeps_a_job_in_the_queue(scene: Scene) -> None:
    pair = Pair.beside(scene)
    both = pair.submit(key="a")
    set_rules(pair.second, frozen=True)
    alone = scene.submit_job(key="b")
    assert claimed(scene.installation).job_id == alone
    assert run_job.claim_next(scene.installation) is None
    assert scene.job(both).state == JobState.QUEUED


def _held_by(scene: Scene, job_id: str) -> list[str | None]:
    """Why a job is not started, as its answer, the list and its followers see it."""
    (listed,) = [
        job
        for job in show_jobs.list_jobs(scene.installation, OWNER, PageRequest()).jobs
        if job.id == job_id
    ]
    followed = (OWNER, job_id)
    seen = [show_jobs.show_job(scene.installation, OWNER, job_id), listed]
    return [
        job.held_by
        for job in (*seen, show_jobs.look_at(scene.installation, [followed])[followed])
    ]


def test_a_queued_job_of_a_frozen_dataset_says_so(scene: Scene) -> None:
    pair = Pair.beside(scene)
    begun = scene.submit_job(key="a")
    claim = claimed(scene.installation)
    charge.charge_claimed(scene.installation, claim)
    queued = pair.submit(key="b")
    assert _held_by(scene, queued) == [None] * 3
    for place in (pair.second, scene):
        set_rules(place, frozen=True)
        assert _held_by(scene, queued) == ["frozen"] * 3
    assert _held_by(scene, begun) == [None] * 3, "a charged job goes on"
    for place in (pair.second, scene):
        set_rules(place, by=ADMIN)
    assert _held_by(scene, queued) == [None] * 3
    assert cancel_job(scene.installation, OWNER, queued).held_by is None


def test_queued_jobs_survive_a_long_freeze(scene: Scene) -> None:
    job_id = scene.submit_job(key="a")
    submitted_at = scene.job(job_id).submitted_at
    set_rules(scene, frozen=True)
    late = submitted_at + timedelta(seconds=5 * limits.MAX_QUEUE_S)
    assert expired_at(scene.installation, late) == 0
    with scene.installation.database.write() as session:  # the freeze began long ago
        session.merge(scene.job(job_id)).waits_since = submitted_at - timedelta(
            seconds=2 * limits.MAX_QUEUE_S
        )
    set_rules(scene, by=ADMIN)
    assert expired_at(scene.installation, submitted_at + timedelta(seconds=60)) == 0, (
        "its time begins anew"
    )
    assert scene.end(job_id) == ("queued", None, ["reserve"])


@pytest.mark.parametrize(
    ("rules", "at", "problem"),
    [
        ({"largest_job": "0.0000000001"}, "/largest_job", "too-small"),
        ({"largest_job": "1e15"}, "/largest_job", "too-large"),
        ({"quotas": [_quota("1e15", OWNER.key_id)]}, "/quotas/0/cap", "too-large"),
        ({"quotas": [_quota("1", "key_nobody")]}, "/quotas/0/keys", "unknown-key"),
        ({"quotas": [_quota("1", "a\x00")]}, "/quotas/0/keys", "unknown-key"),
        ({"quotas": [_quota("1", "nobody at all")]}, "/quotas/0/keys", "unknown-key"),
        (
            {"quotas": [_quota("1", OWNER.key_id), _quota("1", "a", "b")]},
            "/quotas/1/keys",
            "unknown-key",
        ),
        (
            {"quotas": [_quota("1", OWNER.key_id), _quota("1", *[OWNER.key_id] * 2)]},
            "/quotas/1/keys",
            "not-distinct",
        ),
    ],
)
def test_rules_that_limit_nothing_are_rejected(
    scene: Scene, rules: dict[str, Any], at: str, problem: str
) -> None:
    with pytest.raises(InvalidRequest) as rejected:
        set_rules(scene, **rules)
    assert [(error.at, error.problem) for error in rejected.value.errors] == [
        (at, problem)
    ]


def test_the_sum_of_huge_amounts_on_disjoint_cells_is_exact(scene: Scene) -> None:
    """Each amount fits 64 bits, their sum does not."""
    set_rules(scene, quotas=[_quota("4e9", OWNER.key_id)])
    body = json.loads(scene.submit(key="a", epsilon="1").body)
    with scene.installation.database.write() as session:
        for reservation in tables.reservations_of(session, [body["job_id"]]):
            reservation.amount = 2**62
    with scene.installation.database.write() as session:
        for number in range(3):
            for reservation in tables.reservations_of(session, [body["job_id"]]):
                twin = {
                    column.key: getattr(reservation, column.key)
                    for column in reservation.__table__.columns
                }
                session.add(
                    type(reservation)(
                        **twin | {"id": f"rs_{number}", "job_id": f"jb_{number}"}
                    )
                )
            session.flush()
    shown = show_rules(scene.installation, OWNER, scene.dataset_id)
    assert shown.quotas[0].spent == str(2**64 // 10**9) + "." + str(
        2**64 % 10**9
    ).rjust(9, "0")


def _made(scene: Scene, name: str, *, role: str | None = None) -> str:
    body = KeyIn(name=name, roles=[])
    key_id = create_key(scene.installation, ADMIN, body).id
    if role is not None:
        put_grant(scene.installation, OWNER, scene.dataset_id, key_id, role=role)
    return key_id


def test_a_quota_names_a_key_by_a_name_that_the_owner_may_know(scene: Scene) -> None:
    ben, stranger = _made(scene, "ben b.", role="analyst"), _made(scene, "carl")
    shown = set_rules(scene, quotas=[_quota("1", "ben b.", OWNER.key_id)])
    (quota,) = shown.quotas
    assert set(quota.keys) == {ben, OWNER.key_id}
    for names, problem in (
        (["carl"], "unknown-key"),
        (["ben b.", ben], "not-distinct"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            set_rules(scene, quotas=[_quota("1", *names)])
        assert refused.value.errors[0].problem == problem
    (quota,) = set_rules(
        scene, quotas=[_quota("0.5", stranger, ben, OWNER.key_id)]
    ).quotas
    assert stranger in quota.keys, "by id, as before"


def test_a_name_of_several_keys_is_refused_with_their_ids(scene: Scene) -> None:
    ids = sorted(_made(scene, "ann", role="analyst") for _ in range(2))
    with pytest.raises(InvalidRequest) as refused:
        set_rules(scene, quotas=[_quota("1", "ann")])
    (problem,) = refused.value.errors
    assert (problem.problem, list(problem.accepted)) == ("ambiguous", ids)
