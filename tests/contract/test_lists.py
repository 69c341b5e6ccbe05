"""Lists ask the database as often for many datasets as for few."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event

from app.services import audit, populations, show_datasets
from app.services.installation import Installation
from app.services.pages import PageRequest
from tests.support import people
from tests.support.crash_scene import OWNER, open_installation


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> Iterator[Installation]:
    found = open_installation(database_url, tmp_path / "home")
    yield found
    found.close()


@contextmanager
def _questions(installation: Installation) -> Iterator[list[str]]:
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        asked.append(statement)

    event.listen(installation.database.engine, "before_cursor_execute", note)
    yield asked
    event.remove(installation.database.engine, "before_cursor_execute", note)


LISTS: list[Callable[[Installation], object]] = [
    lambda it: show_datasets.list_datasets(it, OWNER, PageRequest(500)),
    lambda it: audit.list_balances(it, OWNER, PageRequest(500)),
    lambda it: populations.list_populations(it, OWNER, PageRequest(500)),
]


@pytest.mark.parametrize("ask", LISTS)
@pytest.mark.parametrize("population", [None, "patients"])
def test_a_list_asks_as_often_for_many_as_for_few(
    installation: Installation, ask: Callable[[Installation], object], population: str | None
) -> None:
    counts = []
    for n_more in (2, 7):
        for _ in range(n_more):
            dataset = people.declared(installation, population=population)["id"]
            people.upload(installation, dataset, b"age,income\n30,low\n")
        with _questions(installation) as asked:
            ask(installation)
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 12, counts


def test_the_list_of_populations_asks_as_often_for_many_as_for_few(installation: Installation) -> None:
    counts = []
    for numbers in (range(2), range(2, 9)):
        for number in numbers:
            for _ in range(2):
                people.declared(installation, population=f"people-{number}")
        with _questions(installation) as asked:
            found = populations.list_populations(installation, OWNER, PageRequest(500)).populations
        counts.append(len(asked))
        assert [len(each.members) for each in found] == [2] * (numbers[-1] + 1)
        assert not any("account_boxes" in each for each in asked)
    assert counts[0] == counts[1] <= 8, counts


def test_a_list_says_of_each_what_is_said_of_one(installation: Installation) -> None:
    names = [people.declared(installation, population=population)["name"] for population in (None, "p", "p", "q")]
    people.upload(installation, names[1], b"age,income\n30,low\n")
    listed = {each.name: each for each in show_datasets.list_datasets(installation, OWNER, PageRequest(500)).datasets}
    balances = audit.list_balances(installation, OWNER, PageRequest(500)).datasets
    for name in names:
        shown = show_datasets.show_dataset(installation, OWNER, name)
        assert listed[name] == shown
        balance = next(each for each in balances if each.dataset_name == name)
        assert (balance.cap, balance.remaining) == (shown.account.cap, shown.account.remaining)
