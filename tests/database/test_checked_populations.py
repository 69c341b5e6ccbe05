"""Members that join late, continue an erased dataset and share jobs, in the database:
the ledger decides every step as the checked function does.

The walks in memory (``tests/pure/ledger/test_checked_populations.py``) meet more
programs; here the functions that write entries run, too.
"""

import random
from collections.abc import Callable

import pytest
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import (
    AccountDiffers,
    BudgetExceeded,
    InvalidRequest,
    ReservationSettled,
    Unavailable,
)
from app.ledger import accounts, kept_states, populations, statements, tables
from app.ledger import reservations as ledger
from app.ledger.tables import AccountRow
from app.services.installation import Installation
from grovekeeper_forests.privacy.scope import Scope
from tests.support import reserving
from tests.support.crash_scene import EVENT, OWNER
from tests.support.evidence import verified
from tests.support.ledger_oracle import Names, Step, World
from tests.support.population_accounts import (
    PURE,
    SHARDS,
    ZCDP,
    account,
    join,
    opened,
)

pytestmark = [
    pytest.mark.checked,
    pytest.mark.contract,
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]

_LIKE = {"pure": PURE, "zcdp": ZCDP}
_REFUSALS = (
    AccountDiffers,
    BudgetExceeded,
    InvalidRequest,
    ReservationSettled,
    Unavailable,
)
Part = tuple[int, int, list[int]]
"""Of a job: dataset, amount, and shards, all if none is listed."""


class _Nothing(Exception):
    """The ledger says that there is nothing to do, and the transaction is undone."""


class People:
    """Datasets over three shards, a population, and the checked world beside them.

    Attributes:
        jobs: the steps of each job that was admitted, with their datasets.
        erased: datasets that another one continues.
    """

    def __init__(
        self, installation: Installation, caps: list[int], cap: int, accountant: str
    ) -> None:
        self._database = installation.database
        self._like = _LIKE[accountant]
        self._caps = caps
        self._world = World([(Names.of(SHARDS), own) for own in caps], cap, accountant)
        self.jobs: dict[str, list[tuple[int, Step]]] = {}
        self.erased: set[int] = set()
        with self._database.write() as session:
            opened(session, like=self._like, cap=cap)

    def open(self, *numbers: int) -> None:
        """Opens datasets."""
        with self._database.write() as session:
            for at in numbers:
                account(session, _id(at), self._like, cap=self._caps[at])

    def job(self, name: str, *parts: Part) -> bool:
        """Asks for a job with parts on some datasets."""
        reservations = [
            ledger.NewReservation(_id(at), amount, _scope(shards), EVENT, name)
            for at, amount, shards in parts
        ]
        steps = [
            (at, Step("reserve", amount, _scope(shards), name))
            for at, amount, shards in sorted(parts)
        ]
        is_admitted = self._compare(
            lambda session: reserving.reserve(session, reservations, actor="key_a"),
            *(("Own", at, step) for at, step in steps),
        )
        if is_admitted:
            self.jobs[name] = steps
        return is_admitted

    def end(self, name: str, kind: str) -> bool:
        """Ends a job."""
        return self._compare(
            lambda session: _end(session, name, kind),
            *(("Own", at, step._replace(kind=kind)) for at, step in self.jobs[name]),
        )

    def join(self, at: int) -> bool:
        """Makes a dataset a member, if it is none."""
        return self._compare(lambda session: _join(session, at), ("Join", at))

    def continue_(self, at: int, erased: int) -> bool:
        """Declares a dataset that takes up the name of a member that is erased."""
        with self._database.read() as session:
            row = tables.account(session, _id(erased))
            highest = kept_states.state_of(session, row).highest_cap

        def declare(session: Session) -> None:
            account(session, _id(at), self._like, cap=self._caps[at])
            has_load = accounts.continue_account(
                session,
                _id(at),
                _id(erased),
                population_id="pop_a",
                actor=OWNER.key_id,
            )
            if not has_load:
                raise _Nothing
            join(session, _id(at))

        is_taken = self._compare(declare, ("Continue", at, erased, highest))
        if is_taken:
            self.erased.add(erased)
        return is_taken

    def cap(self, cap: int, at: int | None = None) -> bool:
        """Puts another cap of a dataset or of the population in force."""
        name = "pop_a" if at is None else _id(at)
        act = ("PopulationCap", cap) if at is None else ("Own", at, Step("cap", cap))
        if not cap:
            return self._compare(lambda session: _close(session, name), act)
        return self._compare(
            lambda session: accounts.change_cap(
                session, name, cap, reason="a test", actor=OWNER.key_id
            ),
            act,
        )

    def is_open(self, at: int) -> bool:
        """Whether a dataset is declared, and not erased."""
        with self._database.read() as session:
            is_declared = session.get(AccountRow, _id(at)) is not None
        return is_declared and at not in self.erased

    def is_member(self, at: int) -> bool:
        """Whether a dataset has joined."""
        with self._database.read() as session:
            return populations.id_of(session, _id(at)) is not None

    def check_history(self) -> None:
        """The exports verify, and are what the checked functions admit."""
        with self._database.read() as session:
            summary = verified(session, "pop_a")
        assert not any(each.n_bounds for each in summary.compared.values())

    def _compare(
        self, done: Callable[[Session], object], *acts: tuple[object, ...]
    ) -> bool:
        """The checked world decides the same, and then stands where the product does."""
        is_taken = True
        try:
            with self._database.write() as session:
                done(session)
        except (*_REFUSALS, _Nothing):
            is_taken = False
        assert self._world.take(*acts) is is_taken, acts
        with self._database.read() as session:
            population = populations.of_population(session, "pop_a")
            highest = statements.highest_cap(session, "pop_a")
            printed = statements.printable_of(population, highest)
            assert self._world.standing == (
                population.together,
                population.cap,
                highest.amount.steps,
                printed.amount.steps,
            )
        for name, load in population.loads.items():
            assert load in (0, self._world.carried(_number(name)))
        return is_taken


def _id(at: int) -> str:
    return f"ds_{at}"


def _number(name: str) -> int:
    return int(name.removeprefix("ds_"))


def _scope(shards: list[int]) -> Scope:
    return Scope({"shard": shards} if shards else {})


def _join(session: Session, at: int) -> None:
    joined = populations.join(
        session, "pop_a", _id(at), actor=OWNER.key_id, at=stamps.now()
    )
    if joined is None:
        raise _Nothing


def _end(session: Session, job: str, kind: str) -> None:
    if kind == "charge":
        ledger.charge_job(session, job, actor="worker")
    elif kind == "void":
        ledger.void_jobs(session, [job], actor="key_a")
    else:
        ledger.expire_job(session, job, actor="sweeper")


def _close(session: Session, name: str) -> None:
    row = tables.locked_account(session, name)
    n_before = row.last_sequence
    accounts.close_account(session, name, reason="a test", actor="operator")
    if row.last_sequence == n_before:
        raise _Nothing


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_member_joins_late_and_is_continued(
    installation: Installation, accountant: str
) -> None:
    people = People(installation, [10, 9, 8], 12, accountant)
    people.open(0, 1)
    assert people.join(0)
    assert not people.join(0), "it is a member"
    assert people.job("jb_1", (0, 6, [0]))
    assert people.job("jb_2", (1, 5, []))
    assert people.end("jb_2", "charge")
    assert people.join(1), "late"
    assert not people.continue_(2, 0), "a reservation is open"
    assert people.job("jb_3", (0, 1, [0, 1]))
    assert not people.job("jb_4", (0, 1, [0])), "the members carry the cap"
    assert people.end("jb_1", "charge")
    assert people.end("jb_3", "void")
    assert not people.end("jb_3", "charge"), "it has ended"
    assert people.continue_(2, 0)
    assert not people.job("jb_5", (2, 3, [2])), "its cap, with what it took over"
    assert not people.job("jb_6", (2, 1, [2]), (1, 1, [])), "both or none"
    assert people.job("jb_7", (2, 1, [2]))
    people.check_history()


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_what_is_given_back_states_no_more_than_before(
    installation: Installation, accountant: str
) -> None:
    people = People(installation, [10, 10], 10, accountant)
    people.open(0, 1)
    assert people.join(0)
    assert people.join(1)
    assert people.job("jb_1", (0, 6, [0]), (1, 4, []))
    assert people.job("jb_2", (0, 6, [1])), "a person is in one shard"
    assert people.end("jb_1", "expire")
    assert not people.job("jb_3", (1, 5, [])), "the other shard is as full"
    assert people.end("jb_2", "void")
    assert people.job("jb_4", (1, 10, []))
    people.check_history()


def test_a_cap_falls_and_rises_until_the_account_is_closed(
    installation: Installation,
) -> None:
    people = People(installation, [10], 12, "zcdp")
    people.open(0)
    assert people.join(0)
    assert people.cap(9)
    assert people.cap(7, at=0)
    assert people.job("jb_1", (0, 7, []))
    assert people.end("jb_1", "charge")
    assert people.cap(6, at=0)
    assert not people.job("jb_2", (0, 1, []))
    assert people.cap(8)
    assert people.cap(11, at=0)
    assert people.job("jb_3", (0, 1, []))
    for at in (0, None):
        assert people.cap(0, at)
        assert not people.cap(9, at), "it is closed"
        assert not people.cap(0, at), "for good"
    assert people.end("jb_3", "void")
    people.check_history()


def test_a_closed_pure_population_prints_what_joins_it_over_its_highest_cap(
    installation: Installation,
) -> None:
    people = People(installation, [10, 7], 10, "pure")
    people.open(0, 1)
    assert people.join(0)
    assert people.job("jb_1", (0, 9, []))
    assert people.job("jb_2", (1, 2, [0]))
    assert people.cap(0)
    assert people.join(1)
    people.check_history()


@pytest.mark.parametrize("seed", range(6))
def test_random_steps_are_taken_as_the_proofs_do(
    installation: Installation, seed: int
) -> None:
    chance = random.Random(seed)
    caps = [*(chance.randint(6, 10) for _ in range(3)), 4]
    people = People(
        installation, caps, chance.randint(8, 20), chance.choice(["pure", "zcdp"])
    )
    people.open(0, 1, 2)
    for number in range(16):
        _random_step(people, chance, f"jb_{number}")
    people.check_history()


def _random_step(people: People, chance: random.Random, job: str) -> None:
    present = [at for at in range(4) if people.is_open(at)]
    pick = chance.random()
    if pick < 0.2:
        people.join(chance.choice(present))
    elif pick < 0.3:
        members = [at for at in present if people.is_member(at)]
        if members and not people.is_open(3):
            people.continue_(3, chance.choice(members))
    elif pick < 0.4:
        people.cap(chance.randint(4, 20), chance.choice([None, *present]))
    elif pick < 0.75 or not people.jobs:
        chosen = chance.sample(present, chance.randint(1, 2))
        shards = range(3)
        people.job(
            job,
            *(
                (at, chance.randint(1, 5), chance.sample(shards, chance.randint(0, 2)))
                for at in chosen
            ),
        )
    else:
        kind = chance.choice(["charge", "void", "expire"])
        people.end(chance.choice(list(people.jobs)), kind)
