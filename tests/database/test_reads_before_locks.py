"""What each use case reads before it locks rows: a read that moved before its lock would
decide by what another transaction may have changed since.

On PostgreSQL only: on SQLite, a write transaction excludes every other one. Which rows
are locked, and in which order, is tests/database/test_lock_order.py's.

The same use cases remove files after the commit that decides about them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import get_ident
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy.orm import Session

from app.access.grants import Role
from app.access.tokens import Token
from app.core import stamps
from app.core.files import Directory
from app.db.database import Database
from app.jobs.states import EndReason
from app.services import authorization, keys, models, webhooks
from app.services.datasets import change, erase, membership, unit_erasure
from app.services.datasets.declare import register_dataset
from app.services.datasets.show import show_dataset
from app.services.execution import charge, run_job
from app.services.jobs.show_jobs import cancel_job
from app.services.ledger.heads import rewrap_data_keys
from app.wire.datasets import DatasetIn, SchemaIn
from app.wire.keys import KeyIn, RotationIn
from app.wire.webhooks import WebhookIn, WebhookRotationIn
from tests.support import job_kinds, people
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.lock_reads import recorded
from tests.support.ruled import decided, set_rules
from tests.support.sweeping import expired_at

pytestmark = pytest.mark.contract

BEFORE_ROWS = {
    "key!": "authority is locked before any row, and stays as it is read",
    "grants.confirm": "the caller's roles, under the lock of its key",
    "grants.granted": "a role on the dataset, under the lock of the caller's key",
    "grants.read": "the submitter's roles, under the lock of its key",
    "asked._query_asked": "finds the datasets; uploads, erasure and balances are read "
    "under their locks, and a declaration is fixed if there is an upload",
    "catalog.find": "finds the id of the dataset; its row is read again under its lock",
    "catalog.require_free": "for the error; the unique name decides",
    "populations.with_id": "whether an id is a population's, for good",
    "keys.existing": "keys are never removed",
    "releases.find": "finds the id; the row is read again under its lock",
    "outbox.has": "to remove what is gone changes nothing",
    "queue.job": "names the key and the datasets, for good; read again under its lock",
    "rules.holds": "a job is claimed or not; its charge reads the rules under a lock",
    "catalog.closing_ids": "a job is claimed or not; its charge locks its datasets",
    "queue.claim": "the order of turns; the claim checks the state under its lock",
}
"""What is read before the first lock of a row, and why it may be."""

CALLER = "key! grants.confirm"
FOUND = f"{CALLER} catalog.find grants.granted"
DATASET = (f"{FOUND} datasets!",)
WEBHOOK = (f"{FOUND} webhooks!",)
RULES = f"{FOUND} keys.existing datasets! tables.account rules.row_of"
ENDS = (
    "tables.reservations_of accounts! populations.ids_of tables.reservation "
    "tables.read_entries webhooks!"
)
SPENDS = ("key! asked._query_asked datasets! accounts!",)
CLAIM = ("rules.holds catalog.closing_ids queue.claim jobs!",)
CHARGE = (
    "queue.job key! grants.read grants.granted datasets! jobs! tables.reservations_of "
    "catalog.find tables.account catalog.upload_ids accounts! tables.reservation "
    "tables.read_entries rules.holds webhooks!",
)
DECLARED = f"{CALLER} catalog.require_free datasets+!"
LOCKS = {
    "submit": SPENDS,
    "submit a job that waits": (
        f"{SPENDS[0]} spend.lock reservations._read_accounts rules._spent key!",
    ),
    "submit on a member": (
        f"{SPENDS[0]} spend.lock reservations._read_accounts accounts!",
    ),
    "cancel": (f"{CALLER} jobs! grants.granted {ENDS}",),
    "claim": CLAIM,
    "put back": ("jobs!",),
    "charge": CHARGE,
    "read the charged task": ("jobs!",),
    "fail": ("jobs! webhooks!",),
    "give back": (f"jobs! {ENDS}",),
    "sweep": (f"jobs! {ENDS}",),
    "train": (*SPENDS, *CLAIM, *CHARGE, "jobs! webhooks!"),
    "charge for a mechanism": SPENDS,
    "put an alias": (f"{FOUND} datasets! releases.find grants.granted releases!",),
    "remove an alias": DATASET,
    "delete a model": (f"{CALLER} releases.find grants.granted releases!",),
    "tighten rules": (f"{RULES} accounts!",),
    "approve": (
        f"{CALLER} jobs! queue.approvals_of_job grants.granted grants.read accounts! "
        "queue.waiting_of_key webhooks!",
    ),
    "reject": (f"{CALLER} jobs! queue.approvals_of_job grants.granted {ENDS}",),
    "end a freeze": (f"{RULES} queue.unfinished_of jobs! accounts!",),
    "put a grant": (f"key! {FOUND} datasets!",),
    "propose rules": (f"{FOUND} keys.existing datasets!",),
    "remove a grant": (f"key! {FOUND} datasets!",),
    "lower a cap": (
        f"{CALLER} populations.with_id catalog.find grants.granted datasets! accounts!",
    ),
    "open a population": (
        f"{FOUND} datasets! populations.find accounts! populations+! "
        "populations.open_population populations.find populations.ids_of accounts!",
    ),
    "make a webhook": (f"{FOUND} datasets! outbox.of_dataset webhooks!",),
    "send a test event": WEBHOOK,
    "rotate a webhook": WEBHOOK,
    "hold a webhook": ("webhooks!",),
    "remove a webhook": (f"{FOUND} outbox.has webhooks!",),
    "declare": (DECLARED,),
    "change columns": (f"{CALLER} grants.granted datasets! accounts!",),
    "upload": DATASET * 2,
    "erase a unit": (*DATASET, "key!"),
    "erase an upload": DATASET * 2,
    "join": (
        f"{FOUND} datasets! populations.find accounts! populations.ids_of accounts!",
    ),
    "ask whether erasure is due": ("datasets!",),
    "delete": (
        *DATASET,
        "jobs! tables.reservations_of accounts! populations.ids_of accounts! "
        "tables.reservation tables.read_entries populations.ids_of webhooks!",
        "datasets!",
    ),
    "continue an account": (
        f"{DECLARED} catalog.erased catalog.find accounts.newest_with_load accounts! "
        "populations.ids_of tables.account catalog.find grants.granted "
        "populations.find accounts! populations.ids_of tables.account "
        "populations.find accounts!",
    ),
    "make a key": ("key!",),
    "rotate a key": ("key! key!",),
    "revoke a key": ("key! key!",),
    "admit a subject": ("key!",),
    "make the first admin": ("key!",),
    "wrap data keys": ("datasets!",),
}
"""The locks of each use case and what it reads before the last one; for each of its
transactions in the form of :func:`tests.support.lock_reads.recorded`. A read after a
lock is under that lock.
"""


def _jobs(scene: Scene, run: Callable[..., Any]) -> None:
    here, reason = scene.installation, EndReason.NOT_STARTED
    run("cancel", cancel_job, here, OWNER, run("submit", scene.submit_job, key="a"))
    scene.submit_job(key="b")
    claim = run("claim", job_kinds.claimed, here)
    run("put back", run_job.ClaimedJob(here, claim).put_back)
    claim = job_kinds.claimed(here)
    run("charge", charge.charge_claimed, here, claim)
    run("read the charged task", charge.charged_task, here, claim)
    run("fail", run_job.ClaimedJob(here, claim).end_as_failed, reason)
    scene.submit_job(key="c")
    claim = job_kinds.claimed(here)
    run("give back", run_job.ClaimedJob(here, claim).give_back, reason)
    scene.submit_job(key="d")
    run("sweep", expired_at, here, datetime.now(UTC) + timedelta(days=2))
    run("charge for a mechanism", scene.charge_external, key="e")


def _models(scene: Scene, run: Callable[..., Any]) -> None:
    here, dataset = scene.installation, scene.dataset_id
    model = run("train", job_kinds.model, scene, "m")
    run("put an alias", models.put_alias, here, OWNER, dataset, "best", model=model)
    run("remove an alias", models.remove_alias, here, OWNER, dataset, "best")
    run("delete a model", models.delete_model, here, OWNER, model)


def _rules(scene: Scene, run: Callable[..., Any]) -> None:
    here, dataset = scene.installation, scene.dataset_id
    run("tighten rules", set_rules, scene, approval_above="0.001")
    approved = run("submit a job that waits", scene.submit_job, key="approved")
    rejected = scene.submit_job(key="rejected")
    run("approve", decided, scene, approved, "approve", by=ADMIN)
    run("reject", decided, scene, rejected, "reject", by=ADMIN)
    set_rules(scene, by=ADMIN, frozen=True, largest_job="0.5")
    run("end a freeze", set_rules, scene, by=ADMIN, largest_job="0.5")
    other = STRANGER.key_id
    run("put a grant", keys.put_grant, here, OWNER, dataset, other, role="owner")
    run("propose rules", set_rules, scene, largest_job="0.7")
    run("remove a grant", keys.remove_grant, here, OWNER, dataset, other)
    run("lower a cap", scene.lower_cap, "2", key="cap")


def _webhooks(scene: Scene, run: Callable[..., Any]) -> None:
    here, dataset = scene.installation, scene.dataset_id
    body = WebhookIn.model_validate(
        {"url": "https://hooks.invalid/", "events": ["budget.low"], "threshold": "0.5"}
    )
    made = run("make a webhook", webhooks.create_webhook, here, OWNER, dataset, body)
    of_webhook = (here, OWNER, dataset, made.id)
    run("send a test event", webhooks.send_test, *of_webhook)
    rotation = WebhookRotationIn()
    run("rotate a webhook", webhooks.rotate_webhook, *of_webhook, rotation)
    run("hold a webhook", webhooks._held, here, made.id)
    run("remove a webhook", webhooks.delete_webhook, *of_webhook)


def _datasets(scene: Scene, run: Callable[..., Any]) -> None:
    here, dataset = scene.installation, scene.dataset_id
    clinic = run("declare", people.declared, here, privacy_unit=people.per_patient(3))[
        "id"
    ]
    label = {"name": "income", "classes": ["low", "mid", "high"]}
    columns = SchemaIn.model_validate(people.SCHEMA | {"label": label})
    run("change columns", change.change_columns, here, OWNER, clinic, columns)
    rows = people.visits([("ann", 1), ("ben", 2)])
    upload = run("upload", people.upload, here, clinic, rows)["epoch"]
    run("erase a unit", unit_erasure.erase_unit, here, OWNER, clinic, unit="ann")
    run("erase an upload", erase.erase_upload, here, OWNER, clinic, upload=upload)
    join = membership.join_population
    run("open a population", join, here, OWNER, dataset, population="town")
    member = people.declared(here)["id"]
    run("join", join, here, OWNER, member, population="town")
    run("ask whether erasure is due", erase._is_deleted_now, here, dataset)
    shown = show_dataset(here, OWNER, dataset)
    run("submit on a member", scene.submit_job, key="queued")
    run("delete", erase.delete_dataset, here, OWNER, dataset)
    again = DatasetIn.model_validate(
        {
            "name": shown.name,
            "schema": shown.schema_,
            "budget": {"accountant": "pure", "epsilon": shown.account.cap},
            "population": "town",
        }
    )
    run("continue an account", register_dataset, here, OWNER, again, request=None)


def _keys(scene: Scene, run: Callable[..., Any]) -> None:
    here = scene.installation
    body = KeyIn(name="new", roles=[])
    made = run("make a key", keys.create_key, here, ADMIN, body, request=None)
    run("rotate a key", keys.rotate_key, here, ADMIN, made.id, RotationIn())
    run("revoke a key", keys.revoke_key, here, ADMIN, made.id)
    at = stamps.now()
    token = Token("https://issuer.invalid", "ann", frozenset({Role.OWNER}), at, at)
    run("admit a subject", authorization._subject, here, token)
    run("make the first admin", keys.ensure_first_admin, here.database, None)
    run("wrap data keys", rewrap_data_keys, here.settings, here.database)


ACTS = (_jobs, _models, _rules, _webhooks, _datasets, _keys)
REMOVED_FROM = {_models: {"artifacts", "finished"}, _datasets: {"prints", "rows"}}
"""Folders of the home whose files these acts remove; the others remove none."""


def test_each_use_case_reads_before_its_locks_what_is_listed(
    postgresql_scene: Scene,
) -> None:
    seen: dict[str, tuple[str, ...]] = {}

    def run(name: str, act: Callable[..., Any], *given: Any, **options: Any) -> Any:
        with recorded(postgresql_scene.installation.database.engine) as transactions:
            result = act(*given, **options)
        seen[name] = tuple(transactions)
        return result

    for acts in ACTS:
        acts(postgresql_scene, run)
    assert seen == LOCKS


def test_each_read_before_the_first_lock_of_a_row_has_a_reason() -> None:
    before = set()
    for transaction in (each for listed in LOCKS.values() for each in listed):
        for word in transaction.split():
            if word.endswith("!") and word != "key!":
                break
            before.add(word)
    assert before == set(BEFORE_ROWS)


@on_one_database
@pytest.mark.parametrize("acts", ACTS)
def test_no_use_case_removes_a_file_before_its_commit(
    scene: Scene, acts: Callable[..., None]
) -> None:
    """The commit may fail, and then rows name a file that is gone."""
    writing, removed, early = set[int](), list[str](), list[str]()
    write, delete = Database.write, Directory.delete

    @contextmanager
    def written(database: Database) -> Iterator[Session]:
        with write(database) as session:
            writing.add(get_ident())
            try:
                yield session
            finally:
                writing.remove(get_ident())

    def deleted(store: Directory, name: str) -> None:
        (early if get_ident() in writing else removed).append(name)
        delete(store, name)

    def run(_: str, act: Callable[..., Any], *given: Any, **options: Any) -> Any:
        return act(*given, **options)

    with (
        patch.object(Database, "write", written),
        patch.object(Directory, "delete", deleted),
    ):
        acts(scene, run)
    assert early == []
    folders = {name.partition("/")[0] for name in removed}
    assert folders == REMOVED_FROM.get(acts, set())
