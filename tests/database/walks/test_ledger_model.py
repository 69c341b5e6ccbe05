"""Tests random programs of ledger operations against a small model, on both databases.

A program opens accounts of every kind and mixes uploads, jobs on one or two accounts
and their ends, external charges with and without δ, changes of caps, joins to a
population, deletions, and crashes before the commit. The model
(:mod:`tests.support.ledger_model`) computes with every joint cell. After every step the
ledger and the model agree; after every program a replay of the entries gives the same
state, and the verifier accepts every export.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from app.db import migrate
from app.services.installation import Installation
from grovekeeper_forests.privacy import accountants
from tests.support.crash_scene import open_installation
from tests.support.ledger_steps import (
    PARTITIONS,
    Cap,
    Crash,
    Erase,
    External,
    Join,
    Kind,
    Open,
    Reserve,
    Settle,
    Step,
    Upload,
)
from tests.support.ledger_world import World

pytestmark = pytest.mark.property

_N_PROGRAMS = 10
_N_LONG = 1_000


@dataclass(frozen=True)
class Program:
    """The population's accountant and cap, and the steps."""

    accountant: str
    cap: int
    steps: list[Step]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    accountant = draw(st.sampled_from(accountants.NAMES))
    cap = draw(st.integers(1, 40) | st.sampled_from([10**9, 10**18]))
    names = st.lists(st.sampled_from(sorted(PARTITIONS)), unique=True, max_size=3)
    caps = st.integers(0, 12).map(lambda tenths: max(cap * tenths // 10, 1))
    kinds = st.sampled_from(list(Kind))
    opening = st.builds(
        Open,
        st.just(accountant) | st.sampled_from(accountants.NAMES),
        kinds,
        caps,
        names,
    )
    number = st.integers(0, 29)
    picks = st.dictionaries(
        st.sampled_from(sorted(PARTITIONS)),
        st.frozensets(st.integers(0, 3), min_size=1),
    )
    sizes = st.integers(1, max(cap // 3, 2)) | st.sampled_from(["exactly", "over"])
    kinds_of_steps: list[tuple[int, st.SearchStrategy[Any]]] = [
        (8, st.builds(Reserve, number, sizes, picks, st.none() | number)),
        (4, st.builds(Settle, number, st.sampled_from(["charge", "void", "expire"]))),
        (2, st.builds(External, number, sizes, picks, st.integers(0, 40))),
        (2, st.builds(Cap, st.none() | number, caps)),
        (3, st.builds(Join, number)),
        (1, st.builds(Upload, number)),
        (2, opening),
        (1, st.builds(Erase, number)),
    ]
    often = [step for weight, step in kinds_of_steps for _ in range(weight)]
    steps = st.integers(0, len(often) - 1).flatmap(lambda number: often[number])
    mostly = st.integers(0, 7).flatmap(
        lambda number: steps if number else st.builds(Crash, steps)
    )
    ordinary = Open(accountant, Kind.ROW, cap, draw(names))
    return Program(
        accountant, cap, [ordinary, *draw(st.lists(mostly, min_size=10, max_size=30))]
    )


def _run(installation: Installation, program: Program) -> None:
    world = World(installation, accountant=program.accountant, cap=program.cap)
    for step in program.steps:
        event(f"{type(step).__name__}: {world.take(step)}")
    world.check_history()


def _settings(n_examples: int) -> Callable[..., Any]:
    # All programs of a test share a database, and each opens new accounts. Failing
    # programs are not shrunk, because that would take minutes on a database.
    return settings(
        max_examples=n_examples,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
        ],
    )


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home: Path = tmp_path_factory.mktemp("model")
    url = f"sqlite:///{home / 'grovekeeper.sqlite3'}"
    migrate.upgrade(url)
    installation = open_installation(url, home)
    yield installation
    installation.close()


@_settings(_N_PROGRAMS)
@given(program=programs())
def test_the_ledger_agrees_with_the_model_on_sqlite(
    on_sqlite: Installation, program: Program
) -> None:
    _run(on_sqlite, program)


@pytest.mark.long
@_settings(_N_LONG)
@given(program=programs())
def test_the_ledger_agrees_with_the_model_over_many_programs(
    on_sqlite: Installation, program: Program
) -> None:
    _run(on_sqlite, program)


@_settings(_N_PROGRAMS // 2)
@given(program=programs())
def test_the_ledger_agrees_with_the_model_on_postgresql(
    postgresql_database_url: str, tmp_path: Path, program: Program
) -> None:
    installation = open_installation(postgresql_database_url, tmp_path / "home")
    try:
        _run(installation, program)
    finally:
        installation.close()


@pytest.mark.parametrize("accountant", accountants.NAMES)
def test_the_ledger_agrees_with_the_model_while_a_population_is_over_its_cap(
    on_sqlite: Installation, accountant: str
) -> None:
    """A fixed program, because random programs rarely bring the sum of loads over the
    cap and under it again.
    """
    world = World(on_sqlite, accountant=accountant, cap=20)
    outcomes = [
        world.take(step)
        for step in (
            Open(accountant, Kind.ROW, 14, ["shard"]),
            Open(accountant, Kind.ROW, 14, []),
            Open(accountant, Kind.ROW, 30, ["shard", "month"]),
            Join(0),
            Join(1),
            Reserve(0, 9, {}, second_account=1),
            Reserve(2, 12, {"shard": frozenset({1})}, second_account=None),
            Reserve(2, 10, {"shard": frozenset({0})}, second_account=None),
            Join(2),
            Reserve(2, 1, {"shard": frozenset({2})}, second_account=None),
            Reserve(0, "over", {}, second_account=None),
            Settle(0, "void"),
            Reserve(1, 9, {}, second_account=None),
            Reserve(1, 8, {}, second_account=None),
            Erase(2),
            Join(1),
            Cap(None, 30),
            Reserve(1, "exactly", {}, second_account=0),
            Cap(None, 5),
            Settle(4, "charge"),
            Open(accountant, Kind.ROW, 20, ["shard"]),
            Reserve(3, 20, {"shard": frozenset({0, 2})}, second_account=3),
            Cap(3, 4),
            Settle(5, "charge"),
            Settle(5, "void"),
        )
    ]
    assert outcomes == [
        "done", "done", "done", "joined", "joined", "admitted", "admitted", "admitted", "joined over the cap",
        "refused", "refused", "settled", "refused", "admitted", "done", "joined", "done", "admitted", "done", "settled",
        "done", "admitted in two parts", "done", "settled", "was settled",
    ]  # fmt: skip
    world.check_history()
