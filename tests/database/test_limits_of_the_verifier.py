"""Whatever the service admits, its verifier can check: both programs at the limits of
the service.

The programs may not import each other, so this module holds their numbers equal and
drives both to each limit.
"""

import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.core import limits
from app.core.errors import BudgetExceeded
from app.ledger import accounts, kept_states, reservations, tables
from app.ledger.reservations import NewReservation
from app.services.installation import Installation
from grovekeeper_forests import amounts
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.privacy import accountants, events
from grovekeeper_forests.privacy.accountants.accountant import steps_up
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from grovekeeper_verifier import (
    canonical_json,
    dataset_export,
    dataset_replay,
    joint_bounds,
    result_text,
)
from grovekeeper_verifier import events as read_events
from grovekeeper_verifier.dataset_replay import Summary
from grovekeeper_verifier.export_lines import MAX_LINE_BYTES
from tests.support.crash_scene import EVENT
from tests.support.databases import on_one_database
from tests.support.evidence import export
from tests.support.reserving import reserve
from tests.support.stated_states import StateEvery

pytestmark = pytest.mark.contract

UNIT = {"column": None, "max_rows": 1}
LEAVES = {
    "permute-and-flip/1": ("range_sensitivity", "inverse_scale", "max_candidates"),
    "discrete-laplace/1": ("l1_sensitivity", "inverse_scale", "coordinates"),
    "exponential-mechanism/1": ("range_sensitivity", "inverse_scale", "max_candidates"),
    "rounded-gaussian/1": ("l2_sensitivity_squared", "sigma_squared", "coordinates"),
}
SCALES = (
    "1",
    str(forest_limits.MAX_EVENT_SCALE),
    f"1/{forest_limits.MAX_EVENT_SCALE}",
    f"{forest_limits.MAX_EVENT_SCALE - 1}/7",
    "1/3",
)


def test_the_numbers_of_both_programs_are_equal() -> None:
    assert dataset_export.MAX_PARTITIONS == forest_limits.MAX_PARTITIONS
    assert dataset_export.MAX_HASH_CELLS == forest_limits.MAX_HASH_CELLS
    assert joint_bounds.MAX_ELIMINATION_WORK == forest_limits.MAX_COMPOSITION_WORK


def test_what_the_service_reads_is_not_too_deep_for_the_verifier() -> None:
    """An event within an event takes three levels of JSON: the event, its list of
    parts, and the part.
    """
    assert limits.MAX_JSON_DEPTH // 3 < read_events.MAX_DEPTH
    assert limits.MAX_JSON_DEPTH + 2 < canonical_json.MAX_NESTING
    event = _leaf("permute-and-flip/1", "1", "1/1000")
    for _ in range(limits.MAX_JSON_DEPTH // 3):
        event = {"type": "sequential/1", "parts": [{"times": 1, "event": event}]}
    assert events.foreign(event).to_json() == event
    assert read_events.total(
        event, adjacency="add_remove", accountant="pure"
    ) == Fraction(1, 1000)


def _leaf(kind: str, sensitivity: str, scale: str) -> dict[str, Any]:
    names = LEAVES[kind]
    return {
        "type": kind, "adjacency": "add_remove", names[0]: sensitivity, names[1]: scale,
        names[2]: forest_limits.MAX_EVENT_COUNT,
    }  # fmt: skip


@pytest.mark.parametrize("accountant", accountants.NAMES)
@pytest.mark.parametrize("kind", LEAVES)
def test_an_event_of_the_largest_and_smallest_numbers_has_a_price_in_both(
    accountant: str, kind: str
) -> None:
    """Where the service has an amount that an account can hold, the recomputed loss is
    at most this amount.
    """
    unit = accountants.by_name(accountant)
    n_compared = 0
    for sensitivity, scale, times in product(
        SCALES, SCALES, (1, forest_limits.MAX_EVENT_COUNT)
    ):
        value = {
            "type": "sequential/1",
            "parts": [{"times": times, "event": _leaf(kind, sensitivity, scale)}],
        }
        try:
            loss = unit.loss(events.foreign(value), adjacency=Adjacency.ADD_REMOVE_ONE)
        except events.UnknownPrivacyEvent:
            continue
        if (amount := steps_up(loss, unit.PLACES)) <= limits.MAX_STEPS:
            recomputed = read_events.total(
                value, adjacency="add_remove", accountant=accountant
            )
            assert recomputed <= Fraction(amount, 10**unit.PLACES), (
                sensitivity,
                scale,
                times,
            )
            n_compared += 1
    assert n_compared > 10 or (accountant, kind) == ("pure", "rounded-gaussian/1")


def _wide() -> Partitions:
    """As many partitions as there may be, each with as many cells, with the longest
    texts.
    """
    texts = [
        f"{number:03}".ljust(forest_limits.MAX_CATEGORY_CHARS, "\U0001f333")
        for number in range(forest_limits.MAX_CATEGORIES)
    ]
    names = [
        f"{number}".ljust(forest_limits.MAX_NAME_CHARS, "\u00e4")
        for number in range(forest_limits.MAX_PARTITIONS)
    ]
    sizes = tuple([limits.MAX_PUBLIC_SIZE] * (forest_limits.MAX_CATEGORIES + 2))
    columns = [
        ColumnPartition(name, name, False, tuple(texts), True, sizes)
        for name in names[:3]
    ]
    hashes = [HashPartition(name, forest_limits.MAX_HASH_CELLS) for name in names[3:5]]
    return Partitions(
        (*columns, *hashes, EpochPartition(names[5], "m" * limits.MAX_SENTENCE_CHARS))
    )


def _opened(
    session: Session, partitions: Partitions, *, cap: int, **facts: Any
) -> None:
    facts = {"accountant": "pure", "delta": None, **facts}
    new_account = accounts.NewAccount(
        "ds_a",
        "a",
        adjacency="add_remove",
        cap=cap,
        privacy_unit=UNIT,
        partitions=partitions,
        **facts,
    )
    accounts.open_account(session, new_account, actor="k" * limits.MAX_KEY_NAME_CHARS)


def _verified(session: Session) -> Summary:
    summary = dataset_replay.verify(export(session, "ds_a"))
    assert summary.last.sequence == tables.account(session, "ds_a").last_sequence
    return summary


@on_one_database
def test_the_widest_scopes_of_the_widest_declaration_are_verified(
    installation: Installation, state_every: StateEvery
) -> None:
    """Each scope lists all cells but one of each partition, and as many uploads as a
    dataset may have.
    """
    partitions = _wide()
    uploads = tuple(f"ep_{number:016}" for number in range(limits.MAX_UPLOAD_CELLS))
    state_every(6)
    details = {"purpose": "p" * limits.MAX_SENTENCE_CHARS}
    with installation.database.write() as session:
        _opened(session, partitions, cap=limits.MAX_STEPS)
        for number in range(6):
            scope: Scope = {
                each.name: (each.known_cells or uploads)[:number]
                + (each.known_cells or uploads)[number + 1 :]
                for each in partitions.declared
            }
            new = NewReservation(
                "ds_a",
                limits.MAX_STEPS // 8,
                Scope(scope),
                EVENT,
                f"jb_{number}",
                details=details,
            )
            reserve(session, [new], actor=f"key_{number}")
        whole = kept_states.state_of(
            session, tables.account(session, "ds_a")
        ).budget.whole
        summary = _verified(session)
        longest = max(map(len, export(session, "ds_a")))
    assert summary.tightest.load == whole.load == 6 * (limits.MAX_STEPS // 8)
    assert summary.tightest.is_exact
    assert longest < MAX_LINE_BYTES // 4


def test_the_smallest_declared_losses_are_verified(installation: Installation) -> None:
    """An amount has up to 117 decimal places in a request: 18 after the point, and an
    exponent of -99.
    """
    smallest = amounts.to_text(Fraction("0.000000000000000001e-99"))
    assert len(smallest) == len("0.") + 117
    with installation.database.write() as session:
        set_aside = "0.000000000000000002"
        _opened(
            session,
            Partitions(()),
            cap=10,
            accountant="zcdp",
            delta="0.000001",
            delta_set_aside=set_aside,
        )
        for number, loss in enumerate(
            (
                {"epsilon": smallest, "delta": smallest},
                {"rho": smallest},
                {"mu": smallest},
            )
        ):
            details: dict[str, Any] = {
                "attested_by": "key_a",
                "description": "a mean",
                "per": "row",
            }
            details["declared"] = {"adjacency": "add_remove", **loss}
            new = NewReservation("ds_a", 1, WHOLE, None, None, details=details)
            reservations.charge_external(
                session, new, delta=int(number == 0), actor="key_a"
            )
        summary = _verified(session)
    assert (summary.tightest.charged, summary.attested) == (3, {"key_a": 3})


@pytest.mark.long
def test_scopes_past_the_real_limits_of_work_are_verified_with_a_bound(
    installation: Installation,
) -> None:
    """One analyst made an honest ledger NOT VERIFIED with 200 small jobs on random
    halves of three partitions.
    """
    chance = random.Random(1)
    partitions = Partitions(tuple(HashPartition(name, 256) for name in "abc"))
    with installation.database.write() as session:
        _opened(session, partitions, cap=115_000)
        n_refused = 0
        for number in range(200):
            scope = {
                name: tuple(sorted(chance.sample(range(256), 128))) for name in "abc"
            }
            try:
                reserve(
                    session,
                    [
                        NewReservation(
                            "ds_a", 1_000, Scope(scope), EVENT, f"jb_{number}"
                        )
                    ],
                    actor="key_a",
                )
            except BudgetExceeded:
                n_refused += 1
        whole = kept_states.state_of(
            session, tables.account(session, "ds_a")
        ).budget.whole
        summary = _verified(session)
    assert 0 < n_refused < 100
    assert not whole.is_exact
    assert (summary.tightest.load, summary.tightest.is_exact) == (whole.load, False)
    assert result_text.to_text(summary).startswith("CONSISTENT (bounded)\n")
