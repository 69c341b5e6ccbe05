"""Every use case that touches the ledger locks in one order: keys, datasets, jobs,
accounts, webhooks, each by id, and the control chain last.

The tests run on PostgreSQL only, because a SQLite write transaction excludes every
other one. The two datasets belong to two populations whose ids are in the opposite
order, so that locking in order of use would differ from the rule.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select

from app.core import stamps
from app.jobs import outbox
from app.ledger import accounts, control, populations, reservations
from app.ledger import reservations as ledger
from app.services.datasets.declare import register_dataset
from app.services.datasets.erase import delete_dataset, end_jobs, mark_deleted
from app.services.datasets.membership import join_population
from app.services.datasets.show import show_dataset
from app.services.execution import charge
from app.services.jobs import show_jobs
from app.services.keys import remove_grant
from app.services.ledger.balances import change_cap
from app.services.webhooks import (
    create_webhook,
    delete_webhook,
    rotate_webhook,
    send_test,
)
from app.wire.datasets import DatasetIn
from app.wire.ledger import CapIn
from app.wire.webhooks import WebhookIn, WebhookRotationIn
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support import reserving, settling
from tests.support.crash_scene import ADMIN, EVENT, OWNER, Scene, opened
from tests.support.job_kinds import claimed
from tests.support.locks import Lock, assert_locks_in_order
from tests.support.ruled import decided, set_rules
from tests.support.sweeping import expired_at
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

POPULATIONS = ["pop_a", "pop_b"]


@pytest.fixture
def pair(postgresql_database_url: str, tmp_path: Path) -> Iterator[Pair]:
    """The first dataset in order of ids belongs to the second population, and the
    second one to the first.
    """
    with opened(postgresql_database_url, tmp_path / "home") as scene:
        result = Pair.beside(scene)
        with scene.installation.database.write() as session:
            for population in POPULATIONS:
                new_population = populations.NewPopulation(
                    population, population, "pure", 10**10, None, OWNER.key_id
                )
                populations.open_population(session, new_population, at=stamps.now())
        with scene.installation.database.write() as session:
            for account, population in zip(
                _ids(result), reversed(POPULATIONS), strict=True
            ):
                populations.join(
                    session, population, account, actor=OWNER.key_id, at=stamps.now()
                )
        yield result


def _ids(pair: Pair) -> list[str]:
    return sorted(scene.dataset_id for scene in (pair.first, pair.second))


KEYS: list[Lock] = [("keys", OWNER.key_id)]
"""Locked by every transaction that acts on the key's authority."""


def _datasets(*ids: str) -> list[Lock]:
    return [("datasets", each) for each in ids]


def _jobs(*ids: str) -> list[Lock]:
    return [("jobs", each) for each in sorted(ids)]


def _accounts(*ids: str) -> list[Lock]:
    return [("accounts", each) for each in ids]


def _populations(*ids: str) -> list[Lock]:
    """A population is locked by the row of its account."""
    return [("accounts", each) for each in ids]


CHAIN: list[Lock] = [("accounts", control.CHAIN)]


def _webhooks(*scenes: Scene) -> list[Lock]:
    """Registers a webhook of each scene that watches the budget; the locks of the
    webhooks are in the order of ids.
    """
    body = WebhookIn.model_validate(
        {"url": "https://hooks.invalid/", "events": ["budget.low"], "threshold": "0.5"}
    )
    made = [
        create_webhook(scene.installation, OWNER, scene.dataset_id, body).id
        for scene in scenes
    ]
    return [("webhooks", each) for each in sorted(made)]


def _delivery(pair: Pair, webhook: Lock) -> Lock:
    """An event that waits for a webhook; its lock."""
    with pair.first.installation.database.write() as session:
        outbox.put(
            session,
            session.get_one(outbox.WebhookRow, webhook[1]),
            "budget.low",
            {},
            at=stamps.now(),
        )
        return "webhook_deliveries", session.execute(
            select(outbox.DeliveryRow.id)
        ).scalar_one()


def _assert_order(
    pair: Pair, use_case: Callable[[], object], locks: list[Lock]
) -> None:
    assert_locks_in_order(pair.first.installation.database.engine, use_case, locks)


def _holding(scene: Scene, account_id: str) -> str:
    """A reservation without a row of a job."""
    with scene.installation.database.write() as session:
        part = ledger.NewReservation(account_id, 5, WHOLE, EVENT, "jb_alone")
        return reserving.reserve(session, [part], actor="key_a")[0]


@pytest.mark.parametrize("is_crossed", [False, True])
def test_the_lock_order_of_a_submission_on_two_datasets(
    pair: Pair, is_crossed: bool
) -> None:
    mine = pair.swapped if is_crossed else pair
    _assert_order(
        pair,
        lambda: mine.submit(key="k"),
        KEYS
        + _datasets(*_ids(pair))
        + _accounts(*_ids(pair))
        + _populations(*POPULATIONS),
    )


@pytest.mark.parametrize("is_crossed", [False, True])
def test_the_lock_order_of_reservations_on_two_accounts(
    pair: Pair, is_crossed: bool
) -> None:
    """The ledger locks accounts in order of id, whatever the caller locked before."""
    reservations = [
        ledger.NewReservation(each, 5, WHOLE, EVENT, "jb_1")
        for each in sorted(_ids(pair), reverse=is_crossed)
    ]

    def reserve() -> None:
        with pair.first.installation.database.write() as session:
            reserving.reserve(session, reservations, actor="key_a")

    _assert_order(pair, reserve, _accounts(*_ids(pair)) + _populations(*POPULATIONS))


def test_the_lock_order_of_an_external_charge(pair: Pair) -> None:
    one = _ids(pair)[0]

    def charge() -> None:
        with pair.first.installation.database.write() as session:
            reservations.charge_external(
                session,
                ledger.NewReservation(one, 5, WHOLE, EVENT, None),
                actor="key_a",
            )

    _assert_order(pair, charge, _accounts(one) + _populations("pop_b"))
    scene = pair.first
    population = {_ids(pair)[0]: "pop_b", _ids(pair)[1]: "pop_a"}[scene.dataset_id]
    _assert_order(
        pair,
        lambda: scene.charge_external(key="k"),
        KEYS
        + _datasets(scene.dataset_id)
        + _accounts(scene.dataset_id)
        + _populations(population),
    )


def test_the_lock_order_of_a_declaration_that_continues_an_account(pair: Pair) -> None:
    scene, installation = pair.first, pair.first.installation
    scene.charge_external(key="k")
    erased = show_dataset(installation, OWNER, scene.dataset_id)
    population = {_ids(pair)[0]: "pop_b", _ids(pair)[1]: "pop_a"}[erased.id]
    delete_dataset(installation, OWNER, erased.id)
    declaration = DatasetIn.model_validate(
        {
            "name": erased.name,
            "schema": erased.schema_,
            "budget": {"accountant": "pure", "epsilon": erased.account.cap},
            "population": population,
        }
    )
    _assert_order(
        pair,
        lambda: register_dataset(installation, OWNER, declaration, request=None),
        KEYS
        + _accounts(erased.id)
        + _populations(population)
        + _accounts(control.CHAIN),
    )


def test_the_lock_order_of_the_erased_accounts_of_one_name(pair: Pair) -> None:
    # the newest first, as a declaration asks for them; it need not have the smaller id
    newest_first = sorted(_ids(pair), reverse=True)
    for account_id in newest_first:
        _holding(pair.first, account_id)
    with pair.first.installation.database.write() as session:
        ledger.void_jobs(session, ["jb_alone"], actor="key_a")

    def look() -> None:
        with pair.first.installation.database.write() as session:
            accounts.newest_with_load(session, newest_first)

    _assert_order(pair, look, _accounts(*_ids(pair)))


def test_the_lock_order_of_a_grant(pair: Pair) -> None:
    scene = pair.first
    _assert_order(
        pair,
        lambda: remove_grant(scene.installation, ADMIN, scene.dataset_id, OWNER.key_id),
        [("keys", ADMIN.key_id), *_datasets(scene.dataset_id)],
    )


def test_the_lock_order_of_a_charge(pair: Pair) -> None:
    """A charge changes no sum of a population, so no population is locked."""
    job_id = pair.submit(key="k")
    claim = claimed(pair.first.installation)
    _assert_order(
        pair,
        lambda: charge.charge_claimed(pair.first.installation, claim),
        KEYS + _datasets(*_ids(pair)) + _jobs(job_id) + _accounts(*_ids(pair)),
    )


def test_the_lock_order_of_a_cancellation(pair: Pair) -> None:
    job_id = pair.submit(key="k")
    _assert_order(
        pair,
        lambda: show_jobs.cancel_job(pair.first.installation, OWNER, job_id),
        KEYS + _jobs(job_id) + _accounts(*_ids(pair)) + _populations(*POPULATIONS),
    )


def test_the_lock_order_of_an_expiry(pair: Pair) -> None:
    job_id = pair.submit(key="k")
    _assert_order(
        pair,
        lambda: expired_at(
            pair.first.installation, datetime.now(UTC) + timedelta(days=2)
        ),
        _jobs(job_id) + _accounts(*_ids(pair)) + _populations(*POPULATIONS),
    )


def test_the_lock_order_of_a_void(pair: Pair) -> None:
    one = _ids(pair)[1]
    reservation_id = _holding(pair.first, one)

    def void() -> None:
        with pair.first.installation.database.write() as session:
            settling.void(session, reservation_id, actor="key_a")

    _assert_order(pair, void, _accounts(one) + _populations("pop_a"))


def test_the_lock_order_of_a_dataset_deletion(pair: Pair) -> None:
    """Charged jobs end with the mark. The others end later: all jobs of a transaction
    are locked before the first account, and all accounts before the first new entry.
    """
    installation, deleted = pair.first.installation, pair.second.dataset_id
    charged = pair.submit(key="charged")
    charge.charge_claimed(installation, claimed(installation))
    queued = [
        role.submit(key=f"k{number}")
        for number, role in enumerate((pair, pair.swapped, pair))
    ]
    delete = partial(delete_dataset, installation, OWNER, deleted)
    locks = _webhooks(pair.second, pair.second)
    locks.append(_delivery(pair, locks[0]))
    _assert_order(
        pair, delete, KEYS + _datasets(deleted) + _jobs(charged) + locks + CHAIN
    )
    with installation.database.write() as session:
        mark_deleted(session, deleted, actor=OWNER.key_id)
    ends = partial(end_jobs, installation, deleted, actor=OWNER.key_id)
    _assert_order(
        pair, ends, _jobs(*queued) + _accounts(*_ids(pair)) + _populations(*POPULATIONS)
    )


def test_the_lock_order_of_the_deletion_of_a_dataset_without_jobs(pair: Pair) -> None:
    deleted = pair.second.dataset_id
    locks = _webhooks(pair.second, pair.second)
    locks.append(_delivery(pair, locks[0]))
    delete = partial(delete_dataset, pair.first.installation, OWNER, deleted)
    _assert_order(pair, delete, KEYS + _datasets(deleted) + locks + CHAIN)


def test_the_lock_order_of_a_cap_change(pair: Pair) -> None:
    """A cap of a population is told to the webhooks of all members."""
    scene, population = (
        pair.first,
        {_ids(pair)[0]: "pop_b", _ids(pair)[1]: "pop_a"}[pair.first.dataset_id],
    )
    locks = _webhooks(scene)
    own = KEYS + _datasets(scene.dataset_id) + _accounts(scene.dataset_id)
    _assert_order(pair, lambda: scene.lower_cap("1", key="k"), own + locks + CHAIN)
    body = CapIn.model_validate({"cap": "0.001", "reason": "a test"})
    lower = partial(
        change_cap, scene.installation, OWNER, population, body, request=None
    )
    _assert_order(pair, lower, KEYS + _populations(population) + locks + CHAIN)


def test_the_lock_order_of_a_join(pair: Pair) -> None:
    scene = Pair.beside(pair.first, name="third").second
    own, webhooks = (
        KEYS + _datasets(scene.dataset_id) + _accounts(scene.dataset_id),
        _webhooks(scene),
    )
    for population, locks in {
        "pop_a": _populations("pop_a") + webhooks,
        "pop_new": webhooks,
    }.items():
        _assert_order(
            pair,
            partial(
                join_population,
                scene.installation,
                OWNER,
                scene.dataset_id,
                population=population,
            ),
            own + locks + CHAIN,
        )


def test_the_lock_order_of_the_removal_of_a_webhook(pair: Pair) -> None:
    scene = pair.first
    ((_, webhook_id),) = locks = _webhooks(scene)
    locks.append(_delivery(pair, locks[0]))
    remove = partial(
        delete_webhook, scene.installation, OWNER, scene.dataset_id, webhook_id
    )
    _assert_order(pair, remove, KEYS + locks + CHAIN)


def test_the_lock_order_of_the_rotation_of_a_webhook(pair: Pair) -> None:
    scene = pair.first
    ((_, webhook_id),) = locks = _webhooks(scene)
    rotate = partial(
        rotate_webhook,
        scene.installation,
        OWNER,
        scene.dataset_id,
        webhook_id,
        WebhookRotationIn(),
    )
    _assert_order(pair, rotate, KEYS + locks + CHAIN)


def test_the_lock_order_of_a_test_event(pair: Pair) -> None:
    scene = pair.first
    ((_, webhook_id),) = locks = _webhooks(scene)
    test = partial(send_test, scene.installation, OWNER, scene.dataset_id, webhook_id)
    _assert_order(pair, test, KEYS + locks)


def test_the_lock_order_of_the_end_of_a_freeze(pair: Pair) -> None:
    """The time of queued jobs in the queue begins anew, so they are locked before the
    account.
    """
    scene = pair.first
    job_ids = [scene.submit_job(key=f"k{number}") for number in range(2)]
    set_rules(scene, frozen=True)
    _assert_order(
        pair,
        lambda: set_rules(scene, by=ADMIN),
        [
            ("keys", ADMIN.key_id),
            *_datasets(scene.dataset_id),
            *_jobs(*job_ids),
            *_accounts(scene.dataset_id),
        ],
    )


def test_the_lock_order_of_a_decision(pair: Pair) -> None:
    for scene in (pair.first, pair.second):
        set_rules(scene, approval_above="0.001")
    approved, rejected = (pair.submit(key=f"k{number}") for number in range(2))
    locks: list[Lock] = [("keys", ADMIN.key_id)]
    _assert_order(
        pair,
        lambda: decided(pair.first, approved, "approve", by=ADMIN),
        locks + _jobs(approved) + _accounts(*_ids(pair)),
    )
    _assert_order(
        pair,
        lambda: decided(pair.first, rejected, "reject", by=ADMIN),
        locks + _jobs(rejected) + _accounts(*_ids(pair)) + _populations(*POPULATIONS),
    )
