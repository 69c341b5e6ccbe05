"""Lists need a constant number of database queries, whatever the number of datasets."""

import ast
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy import event, inspect
from sqlalchemy.orm import Session

import app
from app.access.grants import Principal
from app.access.tables import KeyRow
from app.core import limits, stamps
from app.core.errors import InvalidRequest, NotFound, RoleMissing
from app.datasets import catalog
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.queue import JobFilter
from app.jobs.states import JobState
from app.jobs.tables import JobRow
from app.ledger import admission, rules, statements
from app.ledger.reservations import NewReservation
from app.registry import models as registered
from app.registry import releases as stored
from app.registry.models import ModelFilter
from app.registry.tables import ReleaseRow
from app.services import dataset_rules, keys, models, populations
from app.services.datasets import show
from app.services.datasets.erase import delete_dataset
from app.services.installation import Installation
from app.services.jobs import show_jobs
from app.services.ledger import audit, balances, external, history, spend_history
from app.services.ledger.audit import ActSearch
from app.services.ledger.balances import cell_out
from app.services.pagination import PageRequest
from app.services.releases import profiles
from app.services.releases.evaluations import list_evaluations
from app.wire.grants import ListedGrant
from app.wire.rules import RulesIn
from grovekeeper_forests.privacy.joint_loads import Loads
from grovekeeper_forests.privacy.numbering import Boxes
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import Scope
from tests.support import job_kinds, people
from tests.support.clocks import database_tells
from tests.support.crash_scene import ADMIN, DELTA, EVENT, OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.job_kinds import evaluated
from tests.support.reserving import reserve
from tests.support.ruled import SECOND, grant, set_rules
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

RULES = {
    "largest_job": "1",
    "approval_above": "0.5",
    "quotas": [{"keys": [OWNER.key_id], "cap": "2"}],
    "frozen": False,
    "erase_rows_at": None,
}


@contextmanager
def _questions(installation: Installation) -> Iterator[list[str]]:
    queries: list[str] = []

    def note(
        _connection: object, _cursor: object, statement: str, *_rest: object
    ) -> None:
        queries.append(statement)

    event.listen(installation.database.engine, "before_cursor_execute", note)
    yield queries
    event.remove(installation.database.engine, "before_cursor_execute", note)


PAGED: dict[str, Callable[[Installation, PageRequest], object]] = {
    "datasets": lambda it, page: show.list_datasets(it, OWNER, page),
    "uploads": lambda it, page: show.list_uploads(it, OWNER, "census", page),
    "balances": lambda it, page: balances.list_balances(it, OWNER, page),
    "entries": lambda it, page: history.list_entries(it, OWNER, "census", page),
    "populations": lambda it, page: populations.list_populations(it, OWNER, page),
    "acts": lambda it, page: audit.list_acts(it, ADMIN, page),
    "keys": lambda it, page: keys.list_keys(it, ADMIN, page),
    "grants": lambda it, page: keys.list_grants(it, OWNER, "census", page),
    "jobs": lambda it, page: show_jobs.list_jobs(it, OWNER, page),
    "approvals": lambda it, page: dataset_rules.list_approvals(it, OWNER, page),
    "models": lambda it, page: models.list_models(it, OWNER, page),
    "aliases": lambda it, page: models.list_aliases(it, OWNER, "census", page),
    "profiles": lambda it, page: profiles.list_profiles(it, OWNER, "census", page),
    "reservations": lambda it, page: external.list_reservations(
        it, OWNER, "census", page
    ),
}

LISTS: list[Callable[[Installation], object]] = [
    lambda it: show.list_datasets(it, OWNER, PageRequest(500)),
    lambda it: balances.list_balances(it, OWNER, PageRequest(500)),
    lambda it: populations.list_populations(it, OWNER, PageRequest(500)),
]


@on_one_database
@pytest.mark.parametrize("ask", LISTS)
@pytest.mark.parametrize("population", [None, "patients"])
def test_a_list_takes_a_fixed_number_of_queries(
    installation: Installation,
    ask: Callable[[Installation], object],
    population: str | None,
) -> None:
    counts = []
    for n_more in (2, 7):
        for _ in range(n_more):
            dataset = people.declared(installation, population=population)["id"]
            people.upload(installation, dataset, b"age,income\n30,low\n")
            dataset_rules.change_rules(
                installation, OWNER, dataset, RulesIn.model_validate(RULES)
            )
        with _questions(installation) as queries:
            ask(installation)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 12, counts


@on_one_database
def test_the_list_of_populations_takes_a_fixed_number_of_queries(
    installation: Installation,
) -> None:
    counts = []
    for numbers in (range(2), range(2, 9)):
        for number in numbers:
            for _ in range(2):
                people.declared(installation, population=f"people-{number}")
        with _questions(installation) as queries:
            page = populations.list_populations(
                installation, OWNER, PageRequest(500)
            ).populations
        counts.append(len(queries))
        assert [len(each.members) for each in page] == [2] * (numbers[-1] + 1)
        assert not any("FROM entries" in each for each in queries), (
            "this process wrote all of them"
        )
    assert counts[0] == counts[1] <= 8, counts


@on_one_database
def test_the_keys_of_all_quotas_are_read_by_one_query_before_the_dataset_is_locked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of queries under the lock delayed the writes of other keys."""
    lock, counts = catalog.locked, []
    keys = [OWNER.key_id, ADMIN.key_id, STRANGER.key_id]
    for n_quotas in (1, limits.MAX_QUOTAS):
        quotas = [{"keys": keys, "cap": str(number + 1)} for number in range(n_quotas)]
        with _questions(scene.installation) as queries, monkeypatch.context() as patch:
            patch.setattr(
                catalog,
                "locked",
                lambda *it, sent=queries: (sent.append("LOCK"), lock(*it))[1],
            )
            assert len(set_rules(scene, by=ADMIN, quotas=quotas).quotas) == n_quotas
        assert [
            "FROM keys" in each and " IN (" in each
            for each in queries[: queries.index("LOCK")]
        ].count(True) == 1
        assert not any("FROM keys" in each for each in queries[queries.index("LOCK") :])
        counts.append(len(queries))
    assert counts[1] <= counts[0], counts


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Scope]:
    """The scopes whose joint cells were computed, of every account."""
    scopes: list[Scope] = []

    class CountedLoads(Loads):
        def __init__(
            self, partitions: Partitions, boxes: Boxes, *, inside: Scope
        ) -> None:
            scopes.append(inside)
            super().__init__(partitions, boxes, inside=inside)

    monkeypatch.setattr(admission, "Loads", CountedLoads)
    return scopes


@on_one_database
@pytest.mark.parametrize(
    ("scope", "boxes"), [({}, [{}]), ({"shard": [0, 1]}, [{"shard": (0, 1)}, {}])]
)
def test_a_balance_reads_and_computes_the_state_of_its_account_once(
    installation: Installation,
    computed: list[Scope],
    scope: dict[str, Any],
    boxes: list[Scope],
) -> None:
    """The scope, and the whole account for the guarantee."""
    shards = [{"name": "shard", "kind": "hash", "cells": 3}]
    dataset = people.declared(installation, population="patients", partitions=shards)[
        "id"
    ]
    installation.database.kept.clear()
    computed.clear()
    with _questions(installation) as queries:
        balances.show_balance(installation, OWNER, dataset, scope=scope)
    assert sum("entries.sequence > " in each for each in queries) == 2, (
        "the account's and its population's"
    )
    assert computed == boxes
    with _questions(installation) as queries:
        balances.show_balance(installation, OWNER, dataset, scope=scope)
    assert not any("FROM entries" in each for each in queries), queries
    assert computed == [*boxes, boxes[0]], (
        "the tightest cell of the whole account is kept"
    )


@on_one_database
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("long", "short"),
        ("short", "long"),
        ("single", "short"),
        ("short", "month"),
        ("month", "short"),
    ],
)
def test_pairs_of_cells_are_computed_once_for_each_cell_of_the_shorter_partition(
    installation: Installation,
    computed: list[Scope],
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
) -> None:
    sizes = {"long": 7, "short": 3, "single": 1, "other": 5}
    partitions: list[dict[str, Any]] = [
        {"name": name, "kind": "hash", "cells": sizes[name]} for name in sizes
    ]
    partitions += [{"name": "month", "kind": "epoch", "how": "one file per month"}]
    sizes["month"] = 0  # before the first upload
    dataset = people.declared(installation, partitions=partitions)["id"]
    scopes: list[Scope] = [
        {"long": (1, 4), "short": (0,)},
        {"long": (4, 6), "short": (1, 2)},
        {"other": (2,), "short": (1,)},
        {"long": (0,)},
    ]
    with installation.database.write() as session:
        for number, scope in enumerate(scopes):
            reservation = NewReservation(
                dataset, 2**number, Scope(scope), EVENT, f"jb_{number}"
            )
            reserve(session, [reservation], actor=OWNER.key_id)
    with installation.database.read() as session:
        details = [
            statements.detail(session, dataset, Scope({first: (cell,)}))
            for cell in range(sizes[first])
        ]
        expected = [
            (
                cell,
                [
                    cell_out(pair.cell[second], pair, each.balance)
                    for pair in each.cells[second]
                ],
            )
            for cell, each in enumerate(details)
        ]
    by_cell, named = Loads.by_cell, list[str]()
    monkeypatch.setattr(
        Loads, "by_cell", lambda *it: (named.append(it[1]), by_cell(*it))[1]
    )
    computed.clear()
    pairs = spend_history.show_pairs(
        installation, OWNER, dataset, first=first, second=second
    )
    assert pairs == expected
    shorter, longer = sorted((first, second), key=lambda name: sizes[name])
    assert [scope for scope in computed if scope] == [
        {shorter: (cell,)} for cell in range(sizes[shorter])
    ]
    assert named[len(partitions) :] == [longer] * sizes[shorter], (
        "beside the cells of the whole account"
    )


@on_one_database
@pytest.mark.parametrize("show", [balances.list_balances, show.list_datasets])
def test_a_list_of_accounts_computes_each_balance_once(
    installation: Installation, computed: list[Scope], show: Callable[..., object]
) -> None:
    for population in (None, "p", "p"):
        people.declared(installation, population=population)
    installation.database.kept.clear()
    computed.clear()
    for _ in range(2):
        show(installation, OWNER, PageRequest(500))
        assert computed == [{}, {}, {}]


def test_a_list_shows_each_dataset_as_a_single_request_does(
    installation: Installation,
) -> None:
    names = [
        people.declared(installation, population=population)["name"]
        for population in (None, "p", "p", "q")
    ]
    people.upload(installation, names[1], b"age,income\n30,low\n")
    listed = {
        dataset.name: dataset
        for dataset in show.list_datasets(
            installation, OWNER, PageRequest(500)
        ).datasets
    }
    accounts = balances.list_balances(installation, OWNER, PageRequest(500)).datasets
    for name in names:
        shown = show.show_dataset(installation, OWNER, name)
        assert listed[name] == shown
        balance = next(account for account in accounts if account.dataset_name == name)
        assert (balance.cap, balance.remaining) == (
            shown.account.cap,
            shown.account.remaining,
        )


@on_one_database
def test_the_list_of_evaluations_takes_a_fixed_number_of_queries(
    scene: Scene, computed: list[Scope]
) -> None:
    """One evaluation and copies of it on other accounts, with and without a δ. Models
    state stored guarantees.
    """
    made, model_id = evaluated(scene)
    counts = []
    for numbers in (range(2), range(2, 9)):
        for number in numbers:
            budget = (
                {"accountant": "zcdp", "epsilon": "3", "delta": DELTA}
                if number % 2
                else {}
            )
            budget = budget or {"accountant": "pure", "epsilon": "3"}
            dataset = people.declared(scene.installation, budget=budget)
            with scene.installation.database.write() as session:
                row = stored.find(session, "evaluation", made)
                copy = ReleaseRow(
                    kind="evaluation",
                    id=f"ev_{number}",
                    name=None,
                    dataset_id=dataset["id"],
                    dataset_name=dataset["name"],
                    job_id=f"jb_{number}",
                    body=row.body,
                    created_at=row.created_at,
                )
                stored.add(session, copy, evaluated=[model_id])
        scene.installation.database.kept.clear()
        computed.clear()
        models.list_models(scene.installation, OWNER, PageRequest(500))
        models.show_model(scene.installation, OWNER, model_id)
        assert not computed
        list_evaluations(scene.installation, OWNER, model_id, PageRequest(500))
        with _questions(scene.installation) as queries:
            evaluations = list_evaluations(
                scene.installation, OWNER, model_id, PageRequest(500)
            ).evaluations
        counts.append(len(queries))
        assert len(evaluations) == numbers[-1] + 2
        assert len(computed) == 2 + numbers[-1] // 2, (
            "only ``pure`` accounts state a load"
        )
        reported = {each.id: each.guarantee["add_remove"] for each in evaluations}
        assert (reported["ev_0"], reported["ev_1"]["delta"]) == (reported[made], DELTA)
    assert counts[0] == counts[1] <= 10, counts


def _add_models(installation: Installation, ids: list[str]) -> None:
    dataset = people.declared(installation)
    with installation.database.write() as session:
        at = transaction_time(session)
        for model_id in ids:
            session.add(
                ReleaseRow(
                    kind="train",
                    id=model_id, name=None, dataset_id=dataset["id"], dataset_name=dataset["name"],
                    job_id=f"jb_{model_id}", algorithm="mrf", digest=f"digest of {model_id}", size_bytes=1,
                    created_at=at,
                )
            )  # fmt: skip


def test_a_list_of_models_has_each_once(installation: Installation) -> None:
    _add_models(installation, [f"md_{number}" for number in range(5)])
    shown: list[str] = []
    cursor = None
    for _ in range(3):
        page = models.list_models(installation, OWNER, PageRequest(2, cursor))
        shown += [model.id for model in page.models]
        cursor = page.next
    assert shown == ["md_4", "md_3", "md_2", "md_1", "md_0"]
    assert cursor is None


def test_a_list_of_models_continues_after_a_removed_model(
    installation: Installation,
) -> None:
    # rows of equal time are ordered by id
    _add_models(installation, [f"md_{number}" for number in range(5)])
    shown, cursor = [], None
    while True:
        page = models.list_models(installation, OWNER, PageRequest(2, cursor))
        shown += [model.id for model in page.models]
        assert len(shown) == len(set(shown)), "each once"
        cursor = page.next
        if cursor is None:
            break
        models.delete_model(installation, OWNER, shown[-1])
    assert shown == ["md_4", "md_3", "md_2", "md_1", "md_0"]


@on_one_database
@pytest.mark.parametrize(
    "cursor", ["md_1", "junk", "1", ".md_1", "99999999999999999.md_1"]
)
def test_an_invalid_cursor_of_models_is_refused(
    installation: Installation, cursor: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        models.list_models(installation, OWNER, PageRequest(2, cursor))
    assert [(error.at, error.problem) for error in refused.value.errors] == [
        ("/cursor", "unknown")
    ]


@pytest.mark.covering("name", "cursor")
@on_one_database
@pytest.mark.parametrize(
    "cursor", ["junk", "ds_none", "17.junk", "-1", "x\0", "", "é", "' OR 1=1"]
)
@pytest.mark.parametrize("name", PAGED)
def test_every_list_refuses_a_cursor_that_is_none(
    scene: Scene, name: str, cursor: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        PAGED[name](scene.installation, PageRequest(2, cursor))
    assert [(error.at, error.problem) for error in refused.value.errors] == [
        ("/cursor", "unknown")
    ]


def test_a_dataset_of_others_is_no_cursor(scene: Scene) -> None:
    page = PageRequest(2, scene.dataset_id)
    assert not show.list_datasets(scene.installation, OWNER, page).datasets
    for list_page in (show.list_datasets, balances.list_balances):
        with pytest.raises((InvalidRequest, RoleMissing)):
            list_page(scene.installation, STRANGER, page)


def test_a_list_of_grants_continues_after_a_removed_grant(scene: Scene) -> None:
    grant(scene, "analyst", to=STRANGER)
    shown, cursor = list[str](), None
    while cursor is not None or not shown:
        page = keys.list_grants(
            scene.installation, OWNER, scene.dataset_id, PageRequest(1, cursor)
        )
        shown += [granted.key_id for granted in page.grants]
        assert len(shown) == len(set(shown)), "each once"
        cursor = page.next
        if shown[-1] == STRANGER.key_id:
            keys.remove_grant(
                scene.installation, OWNER, scene.dataset_id, STRANGER.key_id
            )
    assert shown == sorted([OWNER.key_id, STRANGER.key_id])


@on_one_database
def test_a_grant_in_place_of_another_says_who_gave_it_and_when(scene: Scene) -> None:
    here, dataset = scene.installation, scene.dataset_id
    given = list[ListedGrant]()
    at = stamps.from_text("2026-11-20T09:30:00.000000Z")
    for by, role in ((OWNER, "predictor"), (ADMIN, "analyst")):
        with database_tells(at + len(given) * timedelta(microseconds=1)):
            keys.put_grant(here, by, dataset, STRANGER.key_id, role=role)
        given.append(keys.show_grant(here, OWNER, dataset, STRANGER.key_id)[0])
    assert [(each.role, each.granted_by, each.granted_at) for each in given] == [
        ("predictor", OWNER.key_id, "2026-11-20T09:30:00.000000Z"),
        ("analyst", ADMIN.key_id, "2026-11-20T09:30:00.000001Z"),
    ]


@on_one_database
@pytest.mark.parametrize(
    "show",
    [
        lambda it, page: [
            job.id for job in show_jobs.list_jobs(it.installation, OWNER, page).jobs
        ],
        lambda it, page: list(
            history.list_entries(it.installation, OWNER, it.dataset_id, page).jobs
        )[::-1],
    ],
    ids=["jobs", "entries"],
)
def test_a_list_keeps_few_tasks_of_jobs_in_memory(
    scene: Scene, show: Callable[[Scene, PageRequest], list[str]]
) -> None:
    """A task may name thousands of uploads."""
    submitted = [scene.submit_job(key=f"k{number}") for number in range(40)]
    loaded, most = list[weakref.ref[JobRow]](), 0

    def count(row: JobRow, _context: object) -> None:
        nonlocal most
        loaded.append(weakref.ref(row))
        most = max(most, sum(reference() is not None for reference in loaded))

    event.listen(JobRow, "load", count)
    shown = show(scene, PageRequest(500))
    event.remove(JobRow, "load", count)
    assert shown == submitted[::-1]
    assert len(loaded) == len(submitted), "each is read once"
    assert most <= 20


@on_one_database
def test_a_list_of_jobs_does_not_grow_with_their_cells(scene: Scene) -> None:
    """A job may name thousands of uploads: a list of jobs would be megabytes."""
    job_id = scene.submit_job(key="k", scope={"shard": [0, 2]})
    [listed] = show_jobs.list_jobs(scene.installation, OWNER, PageRequest()).jobs
    assert listed.id == job_id
    assert "scope" not in listed.model_dump()
    shown = show_jobs.show_job(scene.installation, OWNER, job_id)
    assert shown.scope == {"shard": [0, 2]}
    assert shown.model_dump().keys() - listed.model_dump().keys() == {"scope"}


def test_a_page_of_jobs_ends_where_its_jobs_are_large(
    scene: Scene, set_limit: SetLimit
) -> None:
    submitted = [scene.submit_job(key=f"k{number}") for number in range(5)]
    page = show_jobs.list_jobs(scene.installation, OWNER, PageRequest(2))
    two_jobs = sum(len(job.model_dump_json()) for job in page.jobs)
    set_limit("MAX_PAGE_BYTES", two_jobs + 10)
    pages: list[list[str]] = []
    cursor: str | None = None
    while cursor is not None or not pages:
        page = show_jobs.list_jobs(scene.installation, OWNER, PageRequest(500, cursor))
        pages.append([job.id for job in page.jobs])
        assert len(pages) <= len(submitted), "each page goes on"
        cursor = page.next
    assert [len(jobs) for jobs in pages] == [2, 2, 1]
    assert [job for jobs in pages for job in jobs] == submitted[::-1]


def test_a_page_of_acts_ends_where_their_details_are_large(
    scene: Scene, set_limit: SetLimit
) -> None:
    """Rules may name ten thousand keys, and each change of them is an act."""
    set_limit("MAX_PAGE_BYTES", 1)
    first = audit.list_acts(scene.installation, ADMIN, PageRequest(500))
    second = audit.list_acts(scene.installation, ADMIN, PageRequest(500, first.next))
    assert [[act.sequence for act in page.acts] for page in (first, second)] == [
        [1],
        [2],
    ]
    newest = audit.search_acts(scene.installation, ADMIN, ActSearch(), PageRequest(500))
    assert [act.sequence for act in newest.acts] == [2]


def test_numbers_beside_lists_are_of_what_the_caller_sees(scene: Scene) -> None:
    """How many jobs wait, and what is left, are facts of datasets of others."""
    scene.submit_job(key="k")
    waiting = show_jobs.count_jobs(scene.installation, OWNER)[JobState.QUEUED]
    assert waiting == 1
    assert not any(show_jobs.count_jobs(scene.installation, STRANGER).values())
    page = PageRequest()
    (listed,) = show.list_datasets(scene.installation, OWNER, page).datasets
    assert (listed.id, listed.largest_that_fits) == (scene.dataset_id, "2.99")
    assert show.list_datasets(scene.installation, STRANGER, page).datasets == []


Ask: TypeAlias = Callable[[Session, str, list[str] | None], object]


def _is_listed(session: Session, _: str, seen: list[str] | None) -> bool:
    try:
        return bool(catalog.listed_id(session, "census", among=seen))
    except NotFound:
        return False


OF_DATASETS: dict[str, Ask] = {
    "queue.counts": lambda session, _, seen: any(
        queue.counts(session, list(JobState), dataset_ids=seen).values()
    ),
    "queue.page": lambda session, _, seen: queue.page(
        session, dataset_ids=seen, before=None, limit=1
    ),
    "queue.page_of_waiting": lambda session, _, seen: queue.page_of_waiting(
        session, dataset_ids=seen, after=None, limit=1
    ),
    "models.page": lambda session, _, seen: registered.page(
        session, dataset_ids=seen, before=None, limit=1
    ),
    "releases.page_of_evaluations": lambda session, model, seen: list(
        stored.page_of_evaluations(
            session, model_id=model, dataset_ids=seen, before=None, limit=1
        )
    ),
    "releases.last_evaluations": lambda session, model, seen: stored.last_evaluations(
        session, [model], seen
    ),
    "rules.proposed": lambda session, _, seen: rules.proposed(session, among=seen),
    "catalog.page": lambda session, _, seen: list(
        catalog.page(session, ids=seen, after=None, limit=1)
    ),
    "catalog.listed_id": _is_listed,
}
"""What is found on the datasets that a caller sees; ``None`` stands for all of them."""


@on_one_database
@pytest.mark.parametrize(
    "ask",
    [
        lambda it, by: show_jobs.count_jobs(it, by, "census"),
        lambda it, by: show_jobs.list_jobs(
            it, by, PageRequest(), JobFilter(dataset="census")
        ),
        lambda it, by: models.list_models(
            it, by, PageRequest(), ModelFilter(dataset="census")
        ),
    ],
    ids=["count of jobs", "jobs", "models"],
)
def test_a_filter_names_no_dataset_of_others(
    scene: Scene, ask: Callable[[Installation, Principal], object]
) -> None:
    ask(scene.installation, OWNER)
    with pytest.raises(NotFound):
        ask(scene.installation, STRANGER)


@on_one_database
def test_who_sees_no_dataset_finds_nothing_of_any(scene: Scene) -> None:
    _, model = evaluated(scene)
    set_rules(scene, approval_above="0.001")
    scene.submit_job(key="waits")
    set_rules(scene, approval_above="0.002")
    with scene.installation.database.read() as session:
        found = {
            name: tuple(bool(ask(session, model, seen)) for seen in (None, []))
            for name, ask in OF_DATASETS.items()
        }
    assert found == dict.fromkeys(OF_DATASETS, (True, False))


def test_every_query_that_may_be_of_all_datasets_is_asked() -> None:
    folder = Path(app.__file__).parent
    queries = {
        f"{file.stem}.{node.name}"
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        for given in (*node.args.args, *node.args.kwonlyargs)
        if given.arg in ("dataset_ids", "ids", "among")
        and "None" in ast.unparse(given.annotation or given)
    }
    assert queries == OF_DATASETS.keys()


def test_filters_leave_out_other_jobs(scene: Scene) -> None:
    job_kinds.model(scene, "m")
    queued = scene.submit_job(key="k")
    profile = job_kinds.profile(scene)

    def listed(**filters: str) -> list[str]:
        jobs = show_jobs.list_jobs(
            scene.installation, OWNER, PageRequest(500), JobFilter(**filters)
        ).jobs
        return [job.id for job in jobs]

    assert listed(state="queued") == [profile, queued]
    assert (
        listed(state="queued", kind="train")
        == listed(algorithm="rdt-ta", state="queued")
        == [queued]
    )
    assert len(listed(dataset=scene.dataset_id)) == 3
    with pytest.raises(NotFound):
        listed(dataset="ds_another")


def test_jobs_are_found_by_a_submitter_whose_name_the_caller_may_know(
    scene: Scene,
) -> None:
    grant(scene, "analyst")
    with scene.installation.database.write() as session:
        for key in (OWNER, SECOND):
            session.get_one(KeyRow, key.key_id).name = "ann"
    own = scene.submit_job(key="a")
    of_second = scene.submit_job(key="b", by=SECOND)

    def listed(by: Principal, submitter: str) -> list[str]:
        page = PageRequest(500)
        jobs = show_jobs.list_jobs(
            scene.installation, by, page, submitted_by=submitter
        ).jobs
        return [job.id for job in jobs]

    for by in (OWNER, SECOND, ADMIN):
        assert listed(by, OWNER.key_id) == [own]
        assert listed(by, SECOND.key_id) == [of_second]
        assert listed(by, "nobody") == []
    assert listed(OWNER, "ann") == listed(ADMIN, "ann") == [of_second, own]
    # an analyst knows the name of her own key alone
    assert listed(replace(SECOND, name="ann"), "ann") == [of_second]


def test_the_name_of_a_dataset_is_the_living_one_in_filters(scene: Scene) -> None:
    def listed(reference: str) -> tuple[list[str], list[str]]:
        page = PageRequest(500)
        jobs = show_jobs.list_jobs(
            scene.installation, OWNER, page, JobFilter(reference)
        ).jobs
        shown = models.list_models(
            scene.installation, OWNER, page, ModelFilter(reference)
        ).models
        return [job.id for job in jobs], [model.id for model in shown]

    name = show.show_dataset(scene.installation, OWNER, scene.dataset_id).name
    model = job_kinds.model(scene, "m")
    jobs, of_dataset = of_erased = listed(name)
    assert (len(jobs), of_dataset) == (1, [model])
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert listed(name) == of_erased, (
        "the newest erased dataset, while none of the name lives"
    )
    successor = Scene.declared(scene.installation)
    assert listed(name) == listed(successor.dataset_id) == ([], [])
    assert listed(scene.dataset_id) == of_erased


@on_one_database
def test_several_datasets_are_read_without_their_columns(
    installation: Installation,
) -> None:
    """Guarantees of many evaluations, and the search for rows of erased uploads, need
    no columns, which are five megabytes of each wide dataset.
    """
    dataset = people.declared(installation)["id"]
    with installation.database.read() as session:
        found = catalog.of_each(session, [dataset])[dataset]
        assert "schema" in inspect(found.row).unloaded
        assert "age" in found.schema.feature_names
