"""The verifier refuses a forged export at the line at which the checked function does,
and finds the same load where both accept it.
"""

import random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from grovekeeper_verifier import dataset_replay, population_replay
from grovekeeper_verifier.export_lines import NotVerified
from grovekeeper_verifier.member_comparison import MemberLedger
from tests.support.chance import examples
from tests.support.checked_exports import judge_population, replayed
from tests.support.export_writers import People, Writer, chained
from tests.support.memory_ledger import Declared, declared

pytestmark = [pytest.mark.checked, pytest.mark.property]

seeds = st.integers(0, 2**64)
SEARCH = settings(phases=[Phase.generate], deadline=None)
FREE = {"type": "sequential/1", "parts": []}


def _verified(lines: list[bytes]) -> dataset_replay.Summary | int:
    """What the verifier finds, or the line that it refuses."""
    try:
        return dataset_replay.verify(lines)
    except NotVerified as failure:
        return failure.line


def _agree(lines: list[bytes]) -> int | None:
    """Asserts that both judge alike; returns the line that they refuse."""
    line, account = replayed(lines)
    summary = _verified(lines)
    if not isinstance(summary, dataset_replay.Summary):
        assert summary == line
        return line
    assert line is None
    assert summary.tightest.load == account.load()
    assert (summary.cap, summary.highest_cap) == account.caps
    return None


class Forger:
    """Writes an export whose chain and prices are right, and whose entries are those of
    no honest service.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.dataset: Declared = declared(self.chance, n_partitions=3, n_cells=3)
        self.cap = self.chance.choice([10, 30])
        partitions = self.dataset.partitions.to_json()
        self.writer = Writer(cap=str(self.cap), partitions=partitions)
        self.live: list[tuple[str, int, Any]] = []
        self.ended: list[tuple[str, int, Any]] = []

    def lines(self) -> list[bytes]:
        """The export of a random history."""
        chance = self.chance
        if chance.random() < 0.2:
            self._opening_load()
        for number in range(chance.randint(2, 14)):
            pick = chance.random()
            if pick < 0.55 or not self.live:
                self._reserve(f"jb_{number}")
            elif pick < 0.92:
                self._end()
            else:
                cap = 0 if chance.random() < 0.2 else chance.randint(1, 2 * self.cap)
                self.writer.header["cap"] = str(cap)
                self.writer.add("cap", str(cap), details={"reason": "r"})
        return self.writer.lines()

    def _opening_load(self) -> None:
        highest = str(self.chance.randint(self.cap - 1, self.cap + 3))
        erased = {"dataset": "ds_0", "sequence": 3, "hash": "0" * 64}
        details = {"continues": {**erased, "highest_cap": highest}}
        load = self.chance.randint(1, self.cap + 3)
        self.writer.add("load", str(load), details=details)

    def _reserve(self, job: str) -> None:
        share = self.chance.choice([2, 4, 6])
        amount = self.chance.randint(1, max(self.cap // share, 1))
        scope = self.dataset.scope(self.chance).to_json()
        self._add("reserve", job, amount, scope)
        self.live.append((job, amount, scope))

    def _end(self) -> None:
        chance = self.chance
        is_again = bool(self.ended) and chance.random() < 0.06
        source = self.ended if is_again else self.live
        part = job, amount, scope = source[chance.randrange(len(source))]
        if not is_again:
            self.live.remove(part)
        self.ended.append(part)
        if chance.random() < 0.04:
            amount += 1
        if chance.random() < 0.04:
            scope = self.dataset.scope(chance).to_json()
        self._add(chance.choice(["charge", "void", "expire"]), job, amount, scope)

    def _add(self, kind: str, job: str, amount: int, scope: Any) -> None:
        self.writer.add(kind, str(amount), job_id=job, scope=scope, event=FREE)


@settings(SEARCH, max_examples=examples(1500))
@given(seeds)
def test_a_forged_export_is_refused_at_the_line_of_the_proofs(seed: int) -> None:
    _agree(Forger(seed).lines())


def _forged(*, cap: str = "10", shards: int = 2) -> Writer:
    return Writer(cap=cap, shards=shards)


def _reserve(writer: Writer, job: str, amount: str, *shards: int) -> Writer:
    return _add(writer, "reserve", job, amount, *shards)


def _add(writer: Writer, kind: str, job: str, amount: str, *shards: int) -> Writer:
    scope = {"shard": list(shards)} if shards else {}
    return writer.add(kind, amount, job_id=job, scope=scope, event=FREE)


def _over_by_a_step() -> Writer:
    writer = _reserve(_forged(), "jb_1", "6", 0)
    return _reserve(writer, "jb_2", "4.000000001", 0, 1)


def _given_back_twice() -> Writer:
    writer = _reserve(_forged(), "jb_1", "6")
    return _add(_add(writer, "void", "jb_1", "6"), "void", "jb_1", "6")


def _charge_given_back() -> Writer:
    writer = _reserve(_forged(), "jb_1", "6")
    return _add(_add(writer, "charge", "jb_1", "6"), "void", "jb_1", "6")


def _less_is_charged() -> Writer:
    return _add(_reserve(_forged(), "jb_1", "6"), "charge", "jb_1", "5")


def _on_fewer_cells() -> Writer:
    return _add(_reserve(_forged(), "jb_1", "6", 0, 1), "charge", "jb_1", "6", 0)


def _opened_again() -> Writer:
    writer = _forged().add("cap", "0", details={"reason": "r"})
    writer.header["cap"] = "5"
    return writer.add("cap", "5", details={"reason": "r"})


def _nothing_is_held() -> Writer:
    """So a lower cap is the highest again."""
    writer = _add(_reserve(_forged(), "jb_1", "6"), "void", "jb_1", "6")
    writer.header["cap"] = "7"
    return writer.add("cap", "7", details={"reason": "r"})


def _nothing_is_opened() -> Writer:
    return _add(_forged(), "charge", "jb_1", "6")


def _charged_twice() -> Writer:
    writer = _reserve(_forged(), "jb_1", "3")
    return _add(_add(writer, "charge", "jb_1", "3"), "charge", "jb_1", "3")


def _loaded(load: str, highest: str, *, late: bool = False) -> Writer:
    writer = _forged()
    if late:
        _reserve(writer, "jb_1", "1")
    erased = {"dataset": "ds_0", "sequence": 3, "hash": "0" * 64}
    details = {"continues": {**erased, "highest_cap": highest}}
    return writer.add("load", load, details=details)


@pytest.mark.parametrize(
    ("writer", "line"),
    [
        (_over_by_a_step(), 4),
        (_given_back_twice(), 5),
        (_charge_given_back(), 5),
        (_less_is_charged(), 4),
        (_on_fewer_cells(), 4),
        (_opened_again(), 4),
        (_nothing_is_opened(), 3),
        (_nothing_is_held(), None),
        (_charged_twice(), 5),
        (_loaded("11", "10"), 3),
        (_loaded("5", "9"), 3),
        (_loaded("5", "10", late=True), 4),
        (_loaded("10", "10"), None),
        (_reserve(_loaded("9", "10"), "jb_2", "1", 0), None),
        (_reserve(_loaded("9", "10"), "jb_2", "1.000000001", 0), 4),
    ],
)
def test_rare_forgeries_are_refused_at_their_line(
    writer: Writer, line: int | None
) -> None:
    assert _agree(writer.lines()) == line


def _reserved_again() -> Writer:
    writer = _add(_reserve(_forged(), "jb_1", "3"), "void", "jb_1", "3")
    return _reserve(writer, "jb_1", "3")


def _parts_overlap() -> Writer:
    return _reserve(_reserve(_forged(), "jb_1", "3", 0), "jb_1", "3", 0, 1)


def _parts_end_in_two_ways() -> Writer:
    writer = _reserve(_reserve(_forged(), "jb_1", "3", 0), "jb_1", "3", 1)
    return _add(_add(writer, "charge", "jb_1", "3", 0), "void", "jb_1", "3", 1)


@pytest.mark.parametrize(
    ("writer", "line"),
    [(_reserved_again(), 5), (_parts_overlap(), 4), (_parts_end_in_two_ways(), 6)],
)
def test_the_verifier_is_stricter_about_jobs(writer: Writer, line: int) -> None:
    """As :mod:`tests.support.checked_exports` lists."""
    lines = writer.lines()
    assert replayed(lines)[0] is None
    assert _verified(lines) == line


@settings(SEARCH, max_examples=examples(200))
@given(seeds)
def test_what_verifies_of_a_population_is_what_the_proofs_admit(seed: int) -> None:
    chance = random.Random(seed)
    people = People(cap="6", accountant="pure")
    for name in ("ds_1", "ds_2"):
        people.declare(name, cap="5", shards=chance.randint(0, 2))
    members: list[str] = []
    for number in range(chance.randint(3, 12)):
        name = chance.choice(["ds_1", "ds_2"])
        if chance.random() < 0.25 and name not in members:
            people.join(name)
            members.append(name)
        elif chance.random() < 0.1:
            people.cap(str(chance.randint(1, 8)))
        else:
            shards = people.members[name].header["partitions"]
            scope = {"shard": [chance.randrange(shards[0]["cells"])]} if shards else {}
            end = chance.choice(["charge", "void", None])
            people.job(
                name,
                f"jb_{number}",
                str(chance.randint(1, 3)),
                end,
                scope=scope,
                event=FREE,
            )
    exports = [people.members[name].lines() for name in members]
    assert _is_admitted(people, exports) is _is_verified(people, exports)


@pytest.mark.parametrize(
    ("stated", "is_right"), [("1", False), ("2", True), ("3", False)]
)
def test_a_population_states_the_load_of_the_member(
    stated: str, is_right: bool
) -> None:
    people = People(cap="6").join("ds_1", cap="5")
    people.job("ds_1", "jb_1", "2", None, event=FREE)
    people.entries[-1] = {**people.entries[-1], "amount": stated}
    people.entries = chained(people.entries)
    exports = [people.members["ds_1"].lines()]
    assert _is_admitted(people, exports) is is_right
    assert _is_verified(people, exports) is is_right


def _is_admitted(people: People, exports: list[list[bytes]]) -> bool:
    try:
        judge_population(people.lines(), exports)
    except AssertionError:
        return False
    return True


def _is_verified(people: People, exports: list[list[bytes]]) -> bool:
    ledgers = [MemberLedger(lines, (), file="member") for lines in exports]
    try:
        population_replay.verify(people.lines(), ledgers)
    except NotVerified:
        return False
    return True
