"""Recomputed prices are exact to the last step, for units of several rows and for both
parts of a job.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grovekeeper_verifier.dataset_replay import verify
from tests.support.exports import failure_of, laplace

Export = Callable[..., Any]


def test_the_price_may_reach_the_amount_and_not_pass_it(export: Export) -> None:
    verify(export().job("a", "0.25", event=laplace("1/4")).lines())
    assert (
        failure_of(export().job("a", "0.249999999", event=laplace("1/4")).lines()).line
        == 3
    )


def test_a_unit_of_several_rows_pays_for_each(export: Export) -> None:
    verify(export(max_rows=4).job("a", "1", event=laplace("1/4")).lines())
    assert (
        failure_of(export(max_rows=5).job("a", "1", event=laplace("1/4")).lines()).line
        == 3
    )


NOISE = {
    "type": "rounded-gaussian/1",
    "adjacency": "add_remove",
    "l2_sensitivity_squared": "1",
    "sigma_squared": "100",
    "coordinates": 4,
}

PRICES = {"zcdp": ("0.005", "0.004999999999"), "gdp": ("0.01", "0.009999999999")}


def _approximate(
    export: Export, accountant: str, amount: str, *, max_rows: int = 1
) -> list[bytes]:
    writer = export(
        cap="0.05", max_rows=max_rows, accountant=accountant, delta="0.000001"
    )
    return list(writer.job("jb_1", amount, event=NOISE).lines())


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_prices_in_rho_and_mu_squared_are_recomputed_to_the_last_step(
    export: Export, accountant: str
) -> None:
    enough, too_little = PRICES[accountant]
    summary = verify(_approximate(export, accountant, enough))
    assert summary.header.text(summary.tightest.charged) == enough
    failure = failure_of(_approximate(export, accountant, too_little))
    assert (failure.line, failure.reason) == (
        3,
        "the event, recomputed, costs more than the amount",
    )


@pytest.mark.parametrize(("accountant", "amount"), [("zcdp", "0.045"), ("gdp", "0.04")])
def test_units_of_several_rows_cost_their_square(
    export: Export, accountant: str, amount: str
) -> None:
    rows = {"zcdp": 3, "gdp": 2}[accountant]
    assert (
        verify(_approximate(export, accountant, amount, max_rows=rows)).kinds["charge"]
        == 1
    )
    assert (
        failure_of(_approximate(export, accountant, amount, max_rows=rows + 1)).line
        == 3
    )


@pytest.mark.parametrize("delta", [None, "0", "1", "1.5", "-0.1", "1e-6", "0.10", 0])
def test_an_account_of_rho_says_a_delta_between_0_and_1(
    export: Export, delta: object
) -> None:
    writer = export(cap="0.05").job("jb_1", "0.01", event=NOISE)
    writer.header |= {"accountant": "zcdp", "delta": delta}
    assert failure_of(writer.lines()).line == 1


def test_finer_steps_than_the_unit_has_are_refused(export: Export) -> None:
    assert (
        "is not a multiple of 0.000000000001"
        in failure_of(_approximate(export, "gdp", "0.0100000000001")).reason
    )


def _two_parts(
    export: Export, *, others: list[int], ends: Sequence[tuple[int, str]]
) -> list[bytes]:
    """One job on two lists of cells. Lines: header 1, open 2, reservations 3 and 4,
    ends from 5.
    """
    writer = export(cap="1", shards=3)
    for cells in ([0], others):
        writer.add(
            "reserve", "1", job_id="a", scope={"shard": cells}, event=laplace("1")
        )
    for cell, kind in ends:
        writer.add(kind, "1", job_id="a", scope={"shard": [cell]}, event=laplace("1"))
    lines: list[bytes] = writer.lines()
    return lines


@pytest.mark.parametrize("kind", ["charge", "void", "expire"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_job_may_hold_two_reservations_on_disjoint_cells(
    export: Export, kind: str, order: tuple[int, int]
) -> None:
    summary = verify(
        _two_parts(export, others=[1], ends=[(cell, kind) for cell in order])
    )
    assert (summary.tightest.charged, summary.tightest.reserved) == (
        10**9 if kind == "charge" else 0,
        0,
    )


@pytest.mark.parametrize(
    ("others", "ends", "line", "reason"),
    [
        ([0, 1], [], 4, "this job has a reservation already"),
        ([1], [(0, "charge"), (0, "charge")], 6, "scope is not that"),
        ([1], [(0, "charge"), (1, "void")], 6, "has ended already, by charge"),
        (
            [1],
            [(0, "charge"), (1, "charge"), (1, "charge")],
            7,
            "has ended already, by charge",
        ),
        ([1], [(0, "charge"), (2, "charge")], 6, "scope is not that"),
        ([1], [(0, "charge"), (2, "reserve")], 6, "this job has a reservation already"),
    ],
)
def test_parts_of_a_job_that_share_a_cell_or_end_twice_or_apart_are_found(
    export: Export,
    others: list[int],
    ends: list[tuple[int, str]],
    line: int,
    reason: str,
) -> None:
    failure = failure_of(_two_parts(export, others=others, ends=ends))
    assert failure.line == line
    assert reason in failure.reason


@pytest.mark.parametrize(
    "stated", [{"label": "ill"}, {"label": "ill", "purpose": "a report"}]
)
def test_the_label_that_a_job_read_bears_no_price(
    export: Export, stated: dict[str, object]
) -> None:
    event = laplace("1/4")
    verify(export().job("a", "0.25", "charge", event=event, details=stated).lines())


def test_a_purpose_bears_no_price_and_stands_in_every_entry_of_its_job(
    export: Export,
) -> None:
    stated = {"purpose": "the yearly report"}
    for end in ("charge", "void", "expire"):
        verify(
            export().job("a", "0.25", end, event=laplace("1/4"), details=stated).lines()
        )
    altered = export().job("a", "0.25", None, event=laplace("1/4"), details=stated)
    altered.add(
        "charge",
        "0.25",
        event=laplace("1/4"),
        job_id="a",
        details={"purpose": "a better reason"},
    )
    assert (
        failure_of(altered.lines()).line,
        "details" in failure_of(altered.lines()).reason,
    ) == (4, True)


@pytest.mark.parametrize(
    "details",
    [
        {"purpose": 7},
        {"label": 7},
        {"label": "ill", "attested_by": "key_ann"},
        {"purpose": "a report", "attested_by": "key_ann"},
        {
            "purpose": "a report",
            "declared": {"adjacency": "add_remove", "epsilon": "0.1"},
        },
    ],
)
def test_a_purpose_with_anything_beside_it_is_no_job(
    export: Export, details: dict[str, object]
) -> None:
    assert (
        failure_of(
            export().job("a", "0.25", event=laplace("1/4"), details=details).lines()
        ).line
        == 3
    )


def test_a_purpose_pays_for_no_mechanism_without_an_event(export: Export) -> None:
    assert (
        failure_of(
            export()
            .job("a", "0.25", event=None, details={"purpose": "a report"})
            .lines()
        ).line
        == 3
    )
