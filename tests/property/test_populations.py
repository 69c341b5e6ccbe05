"""Random programs of joins, reservations and their ends against a model that sums by brute force over persons.

A person of the model has one row in every member, in any of its cells. What all members together may cost that person
is the sum over members of what lies on the chosen cells; the population's cap bounds the worst choice.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from app.core import clock
from app.core.errors import BudgetExceeded
from app.ledger import caps, loads, populations
from app.ledger import service as ledger
from app.services.installation import Installation
from tests.support.crash_scene import CELLS, EVENT, OWNER, open_account, open_installation

CAP, OWN_CAP, N_ACCOUNTS = 20, 14, 3
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("reserve"), st.integers(0, N_ACCOUNTS - 1), st.integers(1, 9), st.sets(st.integers(0, CELLS - 1))
        ),
        st.tuples(st.sampled_from(["charge", "void", "expire"]), st.integers(0, 20)),
        st.tuples(st.just("join"), st.integers(0, N_ACCOUNTS - 1)),
    ),
    max_size=25,
)


@dataclasses.dataclass
class Model:
    """Loads by account and cell, members, and reservations that wait."""

    loads: list[list[int]]
    members: set[int] = dataclasses.field(default_factory=set)
    waiting: dict[str, tuple[int, int, list[int]]] = dataclasses.field(default_factory=dict)

    def worst_person(self) -> int:
        """Over every choice of a cell in every member."""
        rows = [self.loads[account] for account in sorted(self.members)]
        return max((sum(choice) for choice in itertools.product(*rows)), default=0)

    def admits(self, account: int, amount: int, cells: list[int]) -> bool:
        before = self.worst_person()
        self.move(account, amount, cells)
        fits = max(self.loads[account][cell] for cell in cells) <= OWN_CAP
        if account in self.members:
            here = [[self.loads[account][cell] for cell in cells]]
            others = [self.loads[other] for other in sorted(self.members - {account})]
            inside = max(sum(choice) for choice in itertools.product(*here, *others))
            fits = fits and inside <= CAP and before <= CAP
        if not fits:
            self.move(account, -amount, cells)
        return fits

    def move(self, account: int, amount: int, cells: list[int]) -> None:
        for cell in cells:
            self.loads[account][cell] += amount

    def join(self, account: int) -> None:
        if account not in self.members:
            self.members.add(account)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    from app.db import migrate

    home: Path = tmp_path_factory.mktemp("populations")
    url = f"sqlite:///{home / 'grovekeeper.sqlite3'}"
    migrate.upgrade(url)
    found = open_installation(url, home)
    yield found
    found.close()


_numbers = itertools.count()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_person_passes_the_cap_and_nothing_that_fits_is_refused(
    installation: Installation, steps: list[tuple[object, ...]]
) -> None:
    world = f"{next(_numbers):05}"
    accounts = [f"ds_{world}_{number}" for number in range(N_ACCOUNTS)]
    for account in accounts:
        open_account(installation, account, cap=OWN_CAP)
    population = f"pp_{world}"
    new = populations.NewPopulation(population, population, "pure", CAP, None, OWNER.key_id)
    model = Model([[0] * CELLS for _ in accounts])
    with installation.database.write() as session:
        populations.open_population(session, new, at=clock.now())
        for number, step in enumerate(steps):
            _take(session, model, step, accounts, population=population, job=f"jb_{world}_{number}")
            _compare(session, model, accounts, population)


def _take(session: Session, model: Model, step: tuple, accounts: list[str], *, population: str, job: str) -> None:
    match step:
        case ("reserve", account, amount, chosen):
            cells = sorted(chosen) or list(range(CELLS))
            scope = {"shard": tuple(cells)} if chosen else {}
            fits = model.admits(account, amount, cells)
            try:
                made = ledger.reserve(
                    session, ledger.NewReservation(accounts[account], amount, scope, EVENT, job), actor="key_a"
                )
            except BudgetExceeded:
                assert not fits
            else:
                assert fits
                model.waiting[made] = (account, amount, cells)
        case ("join", account):
            populations.join(session, population, accounts[account], actor="key_a", at=clock.now())
            model.join(account)
        case (end, index):
            if model.waiting:
                reservation = sorted(model.waiting)[index % len(model.waiting)]
                account, amount, cells = model.waiting.pop(reservation)
                {"charge": ledger.charge, "void": ledger.void, "expire": ledger.expire}[end](
                    session, reservation, actor="worker"
                )
                if end != "charge":
                    model.move(account, -amount, cells)


def _compare(session: Session, model: Model, accounts: list[str], population: str) -> None:
    found = loads.of_population(session, population)
    standing, worst = populations.standing(session, found), model.worst_person()
    assert standing.charged + standing.reserved == found.together == worst
    assert caps.printable_of(session, found).amount == max(CAP, worst)
    for number, account in enumerate(accounts):
        room = ledger.balance(session, account).room
        own = OWN_CAP - max(model.loads[number])
        if number in model.members:
            own = min(own, CAP - model.worst_person())
        assert room == max(own, 0)
