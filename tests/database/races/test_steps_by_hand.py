"""Tests pairs of concurrent transactions on PostgreSQL: the second waits for the first
and sees its changes.

Races find frequent errors; these tests find rare errors, because they order the
transactions. The database says when the second transaction waits. On SQLite, write
transactions exclude one another.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import (
    BudgetExceeded,
    ModelHasAlias,
    NotFound,
    PopulationMismatch,
    ReservationSettled,
)
from app.ledger import accounts, populations, statements, tables
from app.ledger import reservations as ledger
from app.registry import models
from app.registry.tables import AliasMoveRow, ReleaseRow
from app.services.installation import Installation
from grovekeeper_forests.privacy.scope import WHOLE
from tests.support import reserving
from tests.support.checked_exports import verdict
from tests.support.crash_scene import EVENT, open_account, open_installation
from tests.support.evidence import export, verified
from tests.support.locks import waits_for
from tests.support.settling import ENDS

POPULATION = "pop_a"
Step = Callable[[Session], object]


@pytest.fixture
def installation(
    postgresql_database_url: str, tmp_path: Path
) -> Iterator[Installation]:
    """Opens two accounts with caps of 100 in one population with a cap of 100."""
    installation = open_installation(postgresql_database_url, tmp_path / "home")
    for account in ("ds_1", "ds_2"):
        open_account(installation, account, cap=100)
    with installation.database.write() as session:
        new_population = populations.NewPopulation(
            POPULATION, POPULATION, "pure", 100, None, "key_owner"
        )
        populations.open_population(session, new_population, at=stamps.now())
        for account in ("ds_1", "ds_2"):
            populations.join(
                session, POPULATION, account, actor="key_owner", at=stamps.now()
            )
    yield installation
    installation.close()


def _reserve(account: str, amount: int, job_id: str) -> Callable[[Session], str]:
    new_reservation = ledger.NewReservation(account, amount, WHOLE, EVENT, job_id)
    return lambda session: reserving.reserve(
        session, [new_reservation], actor="key_analyst"
    )[0]


def _done(installation: Installation, step: Callable[[Session], str]) -> str:
    with installation.database.write() as session:
        return step(session)


def _run_in_order(installation: Installation, first: Step, second: Step) -> None:
    """Starts the second step before the first step's commit. Raises the errors of the
    second step.
    """
    database = installation.database

    def run_second() -> None:
        with database.write() as session:
            second(session)

    with ThreadPoolExecutor(1) as pool, database.engine.connect() as observer:
        with database.write() as session:
            first(session)
            holder = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
            running: Future[object] = pool.submit(run_second)
            waits_for(
                observer, holder, running, what="a row that the first step changes"
            )
        running.result(60)


@pytest.mark.parametrize("second", ENDS)
@pytest.mark.parametrize("first", ENDS)
def test_the_first_settlement_of_a_reservation_counts(
    installation: Installation, first: str, second: str
) -> None:
    """A second reservation on the box keeps the database's checks of sums from failing
    in place of the product.
    """
    reservation_id = _done(installation, _reserve("ds_1", 10, "jb_1"))
    _done(installation, _reserve("ds_1", 10, "jb_2"))
    with pytest.raises(ReservationSettled):
        _run_in_order(
            installation,
            lambda session: ENDS[first](session, reservation_id, actor="worker"),
            lambda session: ENDS[second](session, reservation_id, actor="worker"),
        )
    with installation.database.read() as session:
        entries = tables.entries(session, "ds_1", after=0, limit=100)
        balance = statements.balance(session, "ds_1")
        judged = verdict(export(session, "ds_1"))
    assert [entry.kind.value for entry in entries if entry.job_id == "jb_1"] == [
        "reserve",
        first,
    ]
    assert judged == (None, balance.charged + balance.reserved)
    assert (balance.charged, balance.reserved) == (10 * (first == "charge"), 10)


def test_an_earlier_reservation_counts(installation: Installation) -> None:
    for account in ("ds_1", "ds_2"):  # on the same account, and on another member
        with pytest.raises(BudgetExceeded):
            _run_in_order(
                installation,
                _reserve("ds_1", 40, f"jb_{account}"),
                _reserve(account, 61, "jb_late"),
            )


@pytest.mark.parametrize("lowered", ["ds_1", POPULATION])
def test_a_cap_that_was_lowered_earlier_is_in_force(
    installation: Installation, lowered: str
) -> None:
    with pytest.raises(BudgetExceeded):
        _run_in_order(
            installation,
            lambda session: accounts.change_cap(
                session, lowered, 50, reason="a test", actor="key_owner"
            ),
            _reserve("ds_1", 51, "jb_1"),
        )


@pytest.mark.parametrize("lowered", ["ds_1", POPULATION])
def test_a_cap_that_is_lowered_after_a_reservation_stays_in_the_guarantee(
    installation: Installation, lowered: str
) -> None:
    _run_in_order(
        installation,
        _reserve("ds_1", 90, "jb_1"),
        lambda session: accounts.change_cap(
            session, lowered, 50, reason="a test", actor="key_owner"
        ),
    )
    with installation.database.read() as session:
        assert statements.highest_cap(session, lowered).amount.steps == 100


def test_an_account_joins_one_population(installation: Installation) -> None:
    open_account(installation, "ds_3", cap=100)
    with installation.database.write() as session:
        new_population = populations.NewPopulation(
            "pop_b", "pop_b", "pure", 100, None, "key_owner"
        )
        populations.open_population(session, new_population, at=stamps.now())

    def join(population: str) -> Step:
        return lambda session: populations.join(
            session, population, "ds_3", actor="key_owner", at=stamps.now()
        )

    with pytest.raises(PopulationMismatch):
        _run_in_order(installation, join(POPULATION), join("pop_b"))


def test_an_account_that_joins_brings_its_earlier_reservation(
    installation: Installation,
) -> None:
    open_account(installation, "ds_3", cap=100)
    _run_in_order(
        installation,
        _reserve("ds_3", 60, "jb_1"),
        lambda session: populations.join(
            session, POPULATION, "ds_3", actor="key_owner", at=stamps.now()
        ),
    )
    with pytest.raises(BudgetExceeded):
        _done(installation, _reserve("ds_1", 41, "jb_2"))


def test_two_accounts_that_join_at_once_are_both_recorded(
    installation: Installation,
) -> None:
    for account in ("ds_3", "ds_4"):
        open_account(installation, account, cap=100)

    def join(account: str) -> Step:
        return lambda session: populations.join(
            session, POPULATION, account, actor="key_owner", at=stamps.now()
        )

    _run_in_order(installation, join("ds_3"), join("ds_4"))
    with installation.database.read() as session:
        summary = verified(session, POPULATION)
    assert summary.members.keys() == {"ds_1", "ds_2", "ds_3", "ds_4"}
    assert (summary.cap, summary.together) == (100, 0)


def _put_alias(session: Session) -> None:
    """The steps of a move of an alias after its dataset is locked."""
    models.locked(session, "md_1")
    models.add_move(
        session,
        AliasMoveRow(
            dataset_id="ds_1", alias="production", dataset_name="bank", model_id="md_1", moved_by="key_owner",
            moved_at=stamps.now(),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        (_put_alias, lambda session: models.remove(session, "md_1"), ModelHasAlias),
        (lambda session: models.remove(session, "md_1"), _put_alias, NotFound),
    ],
)
def test_a_model_is_not_deleted_while_an_alias_begins_to_name_it(
    installation: Installation, first: Step, second: Step, refusal: type[Exception]
) -> None:
    model = ReleaseRow(
        kind="train",
        id="md_1", name=None, dataset_id="ds_1", dataset_name="bank", job_id="jb_1", algorithm="mrf", digest="d",
        size_bytes=1, created_at=stamps.now(),
    )  # fmt: skip
    with installation.database.write() as session:
        session.add(model)
    with pytest.raises(refusal):
        _run_in_order(installation, first, second)
