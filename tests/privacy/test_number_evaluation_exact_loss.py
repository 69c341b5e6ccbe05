"""T1, T2 and T4 on evaluations of models that predict a number: the exact law of the
production code over small datasets, what one row adds to each sum, and known flaws.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests.bins.noisy_counts import per_row
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    codes_of_numbers,
)
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    ExponentialMechanism,
    PermuteAndFlip,
    Sequential,
)
from grovekeeper_forests.releases.choice import draw as choice_draw
from grovekeeper_forests.releases.choice import price as choice_price
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation import answers, error_sums
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.evaluation.error_price import (
    SUMS_OF,
    error_scale,
    plan_errors,
)
from grovekeeper_forests.releases.evaluation.price import EvaluationPlan
from tests.privacy.enumeration import TOLERANCE, EnumeratingRandomness, loss, output_law
from tests.privacy.noiseless import Noiseless
from tests.privacy.recorder import Draw, Recorder, check
from tests.privacy.test_delta_accounts import share_of_curve

NAN = float("nan")
LABEL = Label("days", bounds=(-2.0, 6.0))
SCHEMA = Schema(
    (Feature("x", "categorical", categories=("a", "b", "c")),),
    LABEL,
)
Row = tuple[int, float]
"""The code of x, and the label."""

ROWS: tuple[Row, ...] = tuple(
    itertools.product(
        range(3),
        (-2.0, -1.3, 0.0, 2.0, 5.999, 6.0),
    )
)
FEW: tuple[Row, ...] = ((0, -2.0), (0, 0.0), (1, 6.0), (1, -2.0))
ACCOUNTS = {
    "pure": Terms(Fraction(1)),
    "zcdp": Terms(
        Fraction(1),
        zcdp.NAME,
        Fraction(1, 10**6),
    ),
    "gdp": Terms(
        Fraction(1),
        gdp.NAME,
        Fraction(1, 10**6),
    ),
}
ALL = tuple(SUMS_OF)


@dataclass(frozen=True)
class Fixed:
    """A released model that answers a number for each category."""

    answered: tuple[float, float, float]
    schema: Schema = SCHEMA

    def numbers(self, columns: SanitisedColumns) -> np.ndarray:
        return np.array(self.answered)[columns.columns[0]]


MODELS: Any = [
    Fixed((-2.0, 6.0, 1.0)),
    Fixed((0.0, -2.0, 6.0)),
    Fixed((6.0, 3.3, -2)),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrinks the blocks, so that datasets of three rows need two blocks."""
    monkeypatch.setattr(answers, "BLOCK_ROWS", 2)


def facts(terms: Terms) -> PublicFacts:
    return public_facts(terms, None, SCHEMA)


def planned(
    *metrics: str, terms: Terms = ACCOUNTS["pure"], largest: float | None = None
) -> EvaluationPlan:
    scale = error_scale(LABEL, largest, 1.0)
    plan = plan_errors(metrics, facts(terms), scale, score_bins=2)
    assert EvaluationPlan.from_json(plan.to_json()) == plan
    return plan


def chosen(
    *, winner: bool, terms: Terms = ACCOUNTS["pure"], largest: float | None = None
) -> EvaluationPlan:
    scale = error_scale(LABEL, largest, 1.0)
    return choice_price.plan_best(
        len(MODELS), facts(terms), winner_accuracy=winner, scale=scale
    )


def private_rows(rows: tuple[Row, ...]) -> SanitisedRows:
    codes, labels = zip(*rows, strict=True) if rows else ((), ())
    return SanitisedRows(
        SanitisedColumns(
            (np.array(codes, dtype=np.int32),),
            len(rows),
        ),
        codes_of_numbers(LABEL, np.array(labels, dtype=np.float64)),
        np.zeros((len(rows), 16), dtype=np.uint8),
    )


def models_of(plan: EvaluationPlan) -> Any:
    return MODELS[: plan.n_models]


def law(
    plan: EvaluationPlan,
    rows: tuple[Row, ...],
) -> dict[object, float]:
    private = private_rows(rows)

    def run(randomness: EnumeratingRandomness) -> object:
        released = evaluation_draw.release(plan, models_of(plan), private, randomness)  # type: ignore[arg-type]
        return released.best, tuple(
            (name, table.tobytes()) for name, table in sorted(released.tables.items())
        )

    return output_law(run)  # type: ignore[arg-type]


def pairs(
    plan: EvaluationPlan, rows: tuple[Row, ...]
) -> Iterator[tuple[dict[object, float], dict[object, float]]]:
    """The laws of datasets with a row and without it."""
    for others in ((), ((2, 2.0),), ((0, -2.0), (1, 6.0))):
        without = law(plan, others)
        for row in rows:
            yield law(plan, (*others, row)), without


def worst(
    plan: EvaluationPlan,
    rows: tuple[Row, ...] = ROWS,
) -> float:
    return max(loss(one, other) for one, other in pairs(plan, rows))


def claim(plan: EvaluationPlan) -> float:
    return float(pure.loss(plan.event, adjacency=Adjacency.ADD_REMOVE_ONE))


@pytest.mark.parametrize("epsilon", ["0.5", "2"])
@pytest.mark.parametrize(
    "metrics",
    [["mae"], ["rmse"], ["r2"], ["mae", "r2"]],
)
def test_sums_lose_their_price_and_no_more(metrics: list[str], epsilon: str) -> None:
    plan = planned(*metrics, terms=Terms(Fraction(epsilon)))
    assert 0.99 * float(epsilon) < claim(plan) <= float(epsilon)
    worst_loss = worst(plan, FEW)
    assert worst_loss <= claim(plan) + TOLERANCE
    if "r2" not in metrics:  # of a label, no distance is as large as the range
        assert worst_loss == pytest.approx(claim(plan), rel=0.01)
    assert worst_loss > 0.5 * claim(plan)


@pytest.mark.parametrize("winner", [False, True])
def test_the_choice_loses_at_most_its_price(winner: bool) -> None:
    plan = chosen(
        winner=winner,
        terms=Terms(Fraction(2)),
        largest=2.0,
    )
    assert claim(plan) <= 2
    assert 0.3 * claim(plan) < worst(plan) <= claim(plan) + TOLERANCE


@pytest.mark.parametrize("account", ["zcdp", "gdp"])
def test_the_choice_stays_below_the_curve_of_its_price(account: str) -> None:
    terms = replace(ACCOUNTS[account], epsilon=Fraction(3))
    plan = chosen(winner=False, terms=terms, largest=2.0)
    price = accountants.by_name(account).loss(
        plan.event, adjacency=Adjacency.ADD_REMOVE_ONE
    )
    share = share_of_curve(pairs(plan, ROWS), price, accountant=account)
    assert 0.2 < share <= 1.0 + TOLERANCE


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("max_rows", [1, 3])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
def test_a_price_is_used_up(account: str, max_rows: int, adjacency: Adjacency) -> None:
    terms = replace(ACCOUNTS[account], max_rows=max_rows, adjacency=adjacency)
    limit = facts(terms).budget.limit
    if account == "pure":
        # the budget is rounded down to whole steps, of which a third of ε is none
        limit = facts(terms).epsilon
    for plan in (
        planned(*ALL, terms=terms),
        planned("mae", terms=terms),
        chosen(winner=False, terms=terms),
        chosen(winner=True, terms=terms),
    ):
        spent = facts(terms).budget.loss(plan.event)
        assert 0.99 * limit < spent <= limit


def exact(
    plan: EvaluationPlan,
    rows: tuple[Row, ...],
) -> dict[str, int]:
    """The sums of the first model, without noise."""
    released = evaluation_draw.release(
        plan, models_of(plan), private_rows(rows), Noiseless()
    )
    return {name: int(table[0]) for name, table in released.tables.items()}


@pytest.mark.parametrize("largest", [None, 8.0, 3.0, 1e-300])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_one_row_moves_each_sum_by_what_its_event_states(
    account: str, largest: float | None
) -> None:
    plan = planned(*ALL, terms=ACCOUNTS[account], largest=largest)
    nothing, furthest = (
        exact(plan, ()),
        dict.fromkeys(
            plan.releases,
            0,
        ),
    )
    assert not any(nothing.values())
    for row in ROWS:
        for name, moved in exact(plan, (row,)).items():
            furthest[name] = max(furthest[name], abs(moved))
    for name, moved in furthest.items():
        stated = per_row(plan.event_of(name))
        assert moved <= stated
        # of a label, no distance from the middle is as large as the range
        if name in ("rows", "absolute", "squared") or (largest or 8.0) < 8.0:
            assert moved == stated


@pytest.mark.parametrize("account", ACCOUNTS)
def test_rows_add_up(account: str) -> None:
    plan = planned(*ALL, terms=ACCOUNTS[account])
    of_each = [exact(plan, (row,)) for row in ROWS]
    for name, total in exact(plan, ROWS).items():
        assert total == sum(one[name] for one in of_each)


def test_exact_sums_are_those_by_hand() -> None:
    plan = planned(*ALL, largest=4.0)
    sums = exact(plan, FEW)
    errors = [0.0, -2.0, 0.0, 4.0]  # 8 is clamped at 4
    distances = [-3.0, -1.0, 4.0, -3.0]  # from 1; 5 is clamped at 4
    by_hand = {
        "rows": 4.0,
        "absolute": sum(abs(error) / 4 for error in errors),
        "squared": sum((error / 4) ** 2 for error in errors),
        "centred": sum(distance / 4 for distance in distances),
        "spread": sum((distance / 4) ** 2 for distance in distances),
    }
    assert sums == {
        name: round(value * per_row(plan.event_of(name)))
        for name, value in by_hand.items()
    }


def test_exact_credits_are_those_by_hand() -> None:
    """Of rows in more than one block: in whole steps, one after another."""
    plan = chosen(winner=False, largest=4.0)
    steps = choice_price.CREDIT_STEPS
    rows = (*FEW, (2, 2.0))
    errors = [0.0, 2.0, 0.0, 4.0, 1.0]
    by_hand = sum(round(steps * (1 - error / 4)) for error in errors)
    assert choice_draw._utility(plan.scale, MODELS[0], private_rows(rows)) == by_hand


def test_a_row_moves_every_model_up_by_at_most_the_range_of_the_choice() -> None:
    plan = chosen(winner=False, largest=3.0)
    event = plan.event_of("best")
    assert isinstance(event, PermuteAndFlip | ExponentialMechanism)
    moved = set()
    for row in ROWS:
        for others in ((), FEW):
            for model in MODELS:
                before, after = (
                    choice_draw._utility(plan.scale, model, private_rows(rows))
                    for rows in (others, (*others, row))
                )
                moved.add(after - before)
    assert (min(moved), max(moved)) == (0, event.range_sensitivity)


@pytest.mark.parametrize(
    "answered",
    [NAN, float("inf"), -1e300],
)
def test_an_answer_out_of_bounds_adds_nothing_beyond_its_steps(answered: float) -> None:
    model: Any = Fixed((answered, answered, answered))
    plan = planned(*ALL)
    for row in ROWS:
        sums = error_sums.exact_sums(plan, model, private_rows((row,)))
        for name, total in sums.items():
            assert abs(int(total[0])) <= per_row(plan.event_of(name))
        credit = choice_draw._utility(plan.scale, model, private_rows((row,)))
        assert 0 <= credit <= choice_price.CREDIT_STEPS


def test_every_evaluation_can_come_from_every_dataset() -> None:
    for plan in (planned("mae"), planned("r2"), chosen(winner=True)):
        support = law(plan, ()).keys()
        assert all(law(plan, (row,)).keys() == support for row in FEW)


def recorded(
    plan: EvaluationPlan, rows: tuple[Row, ...], replayed: list[Draw] | None = None
) -> list[Draw]:
    recorder = Recorder(replayed)
    released = evaluation_draw.release(
        plan,
        models_of(plan),
        private_rows(rows),
        recorder,  # type: ignore[arg-type]
    )
    leaves = (released.best, *(table.tobytes() for table in released.tables.values()))
    return [*recorder.draws, Draw("what leaves", leaves, None, None)]


@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_unit_moves_the_draws_of_a_release_by_what_was_charged(
    account: str, n_rows: int
) -> None:
    terms = replace(ACCOUNTS[account], max_rows=n_rows)
    for plan in (planned(*ALL, terms=terms), chosen(winner=True, terms=terms)):
        first = recorded(plan, ROWS)
        shares = [
            check(
                plan.event,
                first,
                recorded(
                    plan,
                    (*ROWS[:gone], *ROWS[gone + n_rows :]),
                    first,
                ),
                accountant=account,
                n_rows=n_rows,
            )
            for gone in range(len(ROWS) - n_rows)
        ]
        assert 0.4 < max(shares) <= 1


def at_half_the_sensitivity(plan: EvaluationPlan) -> EvaluationPlan:
    """The flaw: noise for half of what a row adds, at the price that is claimed."""
    parts = [
        replace(part, event=replace(part.event, inverse_scale=2 * scale))
        for part in plan.event.parts
        if isinstance(part.event, DiscreteLaplace)
        and (scale := part.event.inverse_scale)
    ]
    return replace(plan, event=Sequential(tuple(parts)))


FLAWS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "every row counts twice": lambda patch: patch.setattr(
        error_sums, "per_row", lambda event: 2 * per_row(event)
    ),
    "errors are not clamped": lambda patch: patch.setattr(
        error_sums,
        "_clamped",
        lambda differences, scale: differences / scale.largest,
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_careless_change_is_noticed(
    flaw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FLAWS[flaw](monkeypatch)
    plan = planned("mae", largest=2.0)
    if flaw == "errors are not clamped":
        honest = error_sums.in_steps
        # the bound on what a row adds holds even then
        assert worst(plan, FEW) <= claim(plan) + TOLERANCE
        monkeypatch.setattr(
            error_sums,
            "in_steps",
            lambda parts, steps: (
                honest(np.sign(parts), 1)
                * np.rint(np.abs(parts) * steps).astype(np.int64)
            ),
        )
    assert worst(plan, FEW) > claim(plan) + 0.3


def test_noise_for_half_of_what_a_row_adds_loses_more_than_the_price() -> None:
    plan = planned("mae")
    assert worst(at_half_the_sensitivity(plan), FEW) > claim(plan) + 0.3


def test_a_choice_priced_for_a_quarter_of_the_range_loses_more() -> None:
    plan = chosen(winner=False, largest=2.0)
    event = plan.event_of("best")
    assert isinstance(event, PermuteAndFlip)
    flawed = replace(event, inverse_scale=4 * event.inverse_scale)
    [part] = plan.event.parts
    louder = replace(
        plan,
        event=Sequential((replace(part, event=flawed),)),
    )
    assert worst(louder) > 2 * claim(plan)


def test_the_error_beside_the_choice_is_that_of_the_model_that_was_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = chosen(winner=True)
    for drawn, model in enumerate(MODELS):
        monkeypatch.setattr(
            choice_draw.tree_growth,
            "select",
            lambda event, utilities, randomness, drawn=drawn: drawn,
        )
        released = evaluation_draw.release(
            plan, MODELS, private_rows(ROWS), Noiseless()
        )
        sums = error_sums.exact_sums(plan, model, private_rows(ROWS))
        assert released.best == drawn
        assert released.tables == sums
