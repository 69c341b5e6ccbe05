"""Random honest histories of populations verify with their sums; a history with any
changed load does not.
"""

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grovekeeper_verifier.export_lines import NotVerified
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import PopulationSummary, verify

People = Callable[..., Any]
NAMES = ("ds_a", "ds_b", "ds_c")
CAP = 12
FREE = {"type": "sequential/1", "parts": []}
SCOPES = st.sampled_from([{}, {"shard": [0]}, {"shard": [1]}])
JOBS = st.tuples(
    st.sampled_from(NAMES),
    st.integers(1, 8),
    SCOPES,
    st.sampled_from(["charge", "void", "expire", "later", None]),
)
STEPS = st.lists(
    st.one_of(
        JOBS, st.sampled_from(NAMES), st.integers(1, 2 * CAP), st.just("give back")
    ),
    min_size=4,
    max_size=16,
)
# The fixture is a class, so one instance of it serves all examples.
relaxed = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
    max_examples=15,
)


def text(quarters: int) -> str:
    return str(float(Fraction(quarters, 4))).removesuffix(".0")


class Naive:
    """Runs steps on a population as a ledger that recomputes all sums each time."""

    def __init__(self, population: Any) -> None:
        self.population, self.cap = population, CAP
        self.joined: list[str] = []
        self.waiting: list[tuple[str, str, str, dict[str, Any]]] = []
        self.n_jobs = 0
        for name in NAMES:
            population.declare(name, cap="100", shards=2)

    def together(self) -> Fraction:
        return sum(
            (Fraction(self.population.load(name)) for name in self.joined), Fraction(0)
        )

    def take(self, step: Any) -> None:
        match step:
            case "give back":
                if self.waiting:
                    dataset, job_id, amount, scope = self.waiting.pop(0)
                    self.population.step(
                        dataset, "void", job_id, amount, scope=scope, event=FREE
                    )
            case str():
                if step not in self.joined:
                    self.population.join(step)
                    self.joined.append(step)
            case int():
                self.cap = step
                self.population.cap(text(step))
            case _:
                self.submit(*step)

    def submit(
        self, dataset: str, quarters: int, scope: dict[str, Any], end: str | None
    ) -> None:
        if dataset in self.joined and not self.fits(dataset, quarters, scope):
            return
        job_id, self.n_jobs = f"jb_{self.n_jobs}", self.n_jobs + 1
        now = end if end in ("charge", "void", "expire") else None
        self.population.job(
            dataset, job_id, text(quarters), now, scope=scope, event=FREE
        )
        if end == "later":
            self.waiting.append((dataset, job_id, text(quarters), scope))

    def fits(self, dataset: str, quarters: int, scope: dict[str, Any]) -> bool:
        if self.together() > Fraction(self.cap, 4):
            return False
        trial = copy.deepcopy(self.population.members[dataset])
        trial.add("reserve", text(quarters), job_id="jb_trial", scope=scope, event=FREE)
        before, self.population.members[dataset] = (
            self.population.members[dataset],
            trial,
        )
        fits = self.together() <= Fraction(self.cap, 4)
        self.population.members[dataset] = before
        return fits


def history(people: People, steps: list[Any]) -> Naive:
    naive = Naive(people(cap=text(CAP)))
    for step in steps:
        naive.take(step)
    return naive


def check(naive: Naive, lines: list[bytes]) -> PopulationSummary:
    members = naive.population.members
    return verify(
        lines,
        [MemberLedger(members[name].lines(), (), file=name) for name in naive.joined],
    )


@relaxed
@given(steps=STEPS)
def test_every_honest_history_is_verified_with_its_sum(
    people: People, steps: list[Any]
) -> None:
    naive = history(people, steps)
    result = check(naive, naive.population.lines())
    assert Fraction(result.together, 10**9) == naive.together()
    assert Fraction(result.printable, 10**9) == max(
        naive.together(), Fraction(naive.cap, 4)
    )
    assert {
        name: (compared.n_bounds, compared.n_later)
        for name, compared in result.compared.items()
    } == dict.fromkeys(naive.joined, (0, 0))


@relaxed
@given(
    steps=STEPS,
    at=st.floats(0, 1, exclude_max=True),
    change=st.sampled_from([-1, 1, 5]),
)
def test_a_load_that_is_changed_anywhere_is_found_on_its_line(
    people: People,
    rechained: Callable[..., Any],
    steps: list[Any],
    at: float,
    change: int,
) -> None:
    naive = history(people, ["ds_a", ("ds_a", 2, {"shard": [0]}, None), *steps])
    entries = copy.deepcopy(naive.population.entries)
    said = [
        index
        for index, entry in enumerate(entries)
        if entry["kind"] in ("join", "load")
    ]
    index = said[int(at * len(said))]
    quarters = int(4 * Fraction(entries[index]["amount"])) + change
    entries[index]["amount"] = text(quarters if quarters >= 0 else 1)
    naive.population.entries = rechained(entries)
    with pytest.raises(NotVerified) as failed:
        check(naive, naive.population.lines())
    assert (failed.value.line, failed.value.file) == (index + 2, None)


@relaxed
@given(steps=STEPS, at=st.floats(0, 1, exclude_max=True))
def test_a_load_that_is_left_out_anywhere_but_at_the_end_is_found(
    people: People, rechained: Callable[..., Any], steps: list[Any], at: float
) -> None:
    naive = history(
        people, ["ds_a", ("ds_a", 2, {"shard": [0]}, None), *steps, "ds_a", CAP]
    )
    entries = naive.population.entries
    said = [index for index, entry in enumerate(entries) if entry["kind"] == "load"]
    index = said[int(at * len(said))]
    naive.population.entries = rechained([*entries[:index], *entries[index + 1 :]])
    with pytest.raises(NotVerified) as failed:
        check(naive, naive.population.lines())
    # If the missing load gave something back, a later admission of another member may
    # look like one over the cap.
    too_much = "over the cap" in failed.value.reason and gave_back(entries, index)
    assert "has no load in the population" in failed.value.reason or too_much


def gave_back(entries: list[dict[str, Any]], index: int) -> bool:
    """Whether a member's load decreases at this line."""
    dataset = entries[index]["details"]["member"]["dataset"]
    loads = [
        Fraction(entry["amount"])
        for entry in entries[: index + 1]
        if entry["kind"] in ("join", "load")
        and entry["details"]["member"]["dataset"] == dataset
    ]
    return loads[-1] < loads[-2]
