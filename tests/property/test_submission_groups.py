"""Compares a group of requests with the same requests one by one: equal answers and equal bytes of the ledger.

Two installations have equal ids and a clock that stands still. One gets the requests of an example as one group.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import ColumnElement, literal

from app.access.idempotency import Answer
from app.access.roles import Principal
from app.core import clock, ids
from app.db import unit_of_work
from app.db.types import UtcDateTime
from app.ledger import populations
from app.services import authorization
from tests.support.crash_scene import OWNER, Scene, opened
from tests.support.databases import MigratedDatabase
from tests.support.groups import in_one_group, outcome_of
from tests.support.ruled import SECOND, grant, set_rules
from tests.support.two_datasets import Pair

_NOW = clock.now()
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Asked:
    """A training request: on which dataset, by whom, with which key, and with the fields of which body."""

    dataset: int
    by: Principal
    key: str
    epsilon: str
    scope: Mapping[str, Sequence[int]]

    def submitted(self, worlds: Sequence[Scene]) -> Answer:
        return worlds[self.dataset].submit(
            key=self.key,
            digest=repr((self.dataset, self.epsilon, self.scope)),
            epsilon=self.epsilon,
            scope=dict(self.scope),
            by=self.by,
        )


requests = st.builds(
    Asked,
    st.sampled_from([0, 0, 0, 1, 2]),  # the third dataset does not exist
    st.sampled_from([OWNER, OWNER, SECOND, Principal("key_unknown")]),
    st.sampled_from("abcd"),
    st.sampled_from(["0.05", "0.1", "0.2", "0.31", "0.0000000001"]),
    st.sampled_from([{}, {}, {"shard": [0]}, {"shard": [1, 2]}, {"shard": [7]}]),
)
groups = st.lists(requests, min_size=2, max_size=8).flatmap(
    lambda different: st.lists(st.sampled_from(different), max_size=6).map(lambda repeated: [*different, *repeated])
)
rules = st.sampled_from(
    [
        {},
        {"largest_job": "0.2"},
        {"approval_above": "0.15"},
        {"quotas": [{"keys": [OWNER.key_id, SECOND.key_id], "cap": "0.25"}]},
        {"frozen": True},
    ]
)


class Twins:
    """Two installations in which the same calls have the same effects."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self._scenes = scenes

    def declared(self, rules: Mapping[str, Any], *, is_member: bool) -> list[list[Scene]]:
        """In each installation two new datasets with little budget, and one that does not exist."""
        number = next(_NUMBERS)
        return [self._declared(scene, rules, is_member=is_member, number=number) for scene in self._scenes]

    def _declared(self, scene: Scene, rules: Mapping[str, Any], *, is_member: bool, number: int) -> list[Scene]:
        with _equal_ids(number):
            worlds = [Pair.beside(scene, name=f"set{number}{which}").second for which in "ab"]
            for world in worlds:
                world.lower_cap("0.6", key=f"cap {world.dataset_id}")
            grant(worlds[0], "analyst")
            if is_member:
                _join(worlds, f"pop_{number}")
            set_rules(worlds[0], **rules)
        return [*worlds, replace(scene, dataset_id="ds_missing")]


def _join(worlds: Sequence[Scene], population: str) -> None:
    with worlds[0].installation.database.write() as session:
        opened = populations.NewPopulation(population, population, "pure", 7 * 10**8, None, OWNER.key_id)
        populations.open_population(session, opened, at=_NOW)
    for world in worlds:
        with world.installation.database.write() as session:
            populations.join(session, population, world.dataset_id, actor=OWNER.key_id, at=_NOW)


@contextmanager
def _equal_ids(start: int) -> Iterator[None]:
    numbers = itertools.count()

    def numbered(prefix: str) -> str:
        return f"{prefix}_{start:06}{next(numbers):06}"

    def at(_dialect: object) -> ColumnElement[datetime]:
        return literal(_NOW, UtcDateTime)

    with ExitStack() as stack:
        stack.enter_context(patch.object(ids, "new", numbered))
        stack.enter_context(patch.object(clock, "now", lambda: _NOW))
        for module in (unit_of_work, authorization):
            stack.enter_context(patch.object(module, "time_column", at))
        authorization._callers_query.cache_clear()  # the query that it keeps has a column of the time
        stack.callback(authorization._callers_query.cache_clear)
        yield


def _comparable(outcome: Any) -> Any:
    if isinstance(outcome, Answer):
        return outcome
    facts = {name: fact() if callable(fact) else fact for name, fact in vars(outcome).items()}
    return type(outcome), facts


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def twins(
    request: pytest.FixtureRequest, migrated_database: MigratedDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twins]:
    with ExitStack() as stack, _equal_ids(0):
        scenes = []
        for name in ("group", "alone"):
            folder = tmp_path_factory.mktemp(name)
            url = stack.enter_context(migrated_database(request.param, folder))
            scenes.append(stack.enter_context(opened(url, Path(folder) / "home")))
        yield Twins(scenes)


def compare(twins: Twins, asked: Sequence[Asked], rules: Mapping[str, Any], *, is_member: bool) -> None:
    """Submits requests as a group and one by one, and compares answers and ledgers."""
    number = 500_000 + next(_NUMBERS)
    prefixed = [replace(each, key=f"{each.key} {number}") for each in asked]
    grouped, alone = twins.declared(rules, is_member=is_member)
    with _equal_ids(number):
        in_group = in_one_group(grouped[0].installation, [partial(each.submitted, grouped) for each in prefixed])
    with _equal_ids(number):
        one_by_one = [outcome_of(partial(each.submitted, alone)) for each in prefixed]
    assert [_comparable(each) for each in in_group] == [_comparable(each) for each in one_by_one]
    for ours, theirs in zip(grouped[:2], alone[:2], strict=True):
        assert ours.export() == theirs.export()
        ours.verified()


@settings(max_examples=4, deadline=None)
@given(asked=groups, rules=rules, is_member=st.booleans())
def test_a_group_is_answered_as_its_requests_one_by_one(
    twins: Twins, asked: list[Asked], rules: Mapping[str, Any], is_member: bool
) -> None:
    compare(twins, asked, rules, is_member=is_member)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(asked=groups, rules=rules, is_member=st.booleans())
def test_many_groups_are_answered_as_their_requests_one_by_one(
    twins: Twins, asked: list[Asked], rules: Mapping[str, Any], is_member: bool
) -> None:
    compare(twins, asked, rules, is_member=is_member)
