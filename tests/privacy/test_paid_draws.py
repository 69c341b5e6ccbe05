"""A job draws exactly what its event pays for, and stops before any other draw."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.bins.quantile_bins import NO_CUT, ReusedProfile
from grovekeeper_forests.contract.plan import Forest, Plan, PlanInvalid
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Label, Schema
from grovekeeper_forests.noise import randomness
from grovekeeper_forests.noise.randomness import (
    PaidRandomness,
    SystemRandomness,
    UnpaidDraw,
    forfeit,
)
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases import contract
from grovekeeper_forests.releases.choice import draw as choice_draw
from grovekeeper_forests.releases.choice.price import plan_best
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.evaluation.price import plan_tables
from grovekeeper_forests.releases.forest import draw as growth
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.profile import draw as profile_draw
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.statistics import draw as statistics_draw
from grovekeeper_forests.releases.statistics import price as statistics_price
from tests.privacy import plain_walks
from tests.privacy.fixed_releases import FixedReleases
from tests.privacy.noiseless import Noiseless
from tests.support.block_rows import in_blocks
from tests.support.plans import request_for
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "colour", "type": "categorical", "categories": ["red", "blue", "green"]},
    {"name": "size", "type": "numeric", "lower": 0, "upper": 9},
    {"name": "age", "type": "numeric", "lower": 0, "upper": 9},
    classes=["no", "yes"],
)
N_TREES = 3
CASES = [
    (slug, name)
    for slug in catalogue.BY_SLUG
    for name in catalogue.algorithm(slug).accountants
]


def rows_of(n_rows: int, seed: int = 0) -> SanitisedRows:
    """Rows with a clear signal, so that no reweighted tree stops before its depth but
    by a chance of e^-100.
    """
    generator = np.random.default_rng(seed)
    numbers = [generator.uniform(0, 9, n_rows) for _ in range(2)]
    columns = SanitisedColumns(
        (generator.integers(0, 3, n_rows).astype(np.int32), *numbers), n_rows
    )
    labels = ((numbers[0] > 4.5) ^ (numbers[1] > 4.5)).astype(np.int32)
    return SanitisedRows(
        columns, labels, generator.integers(0, 256, (n_rows, 16), dtype=np.uint8)
    )


def planned(
    slug: str,
    accountant: str,
    profile: ReusedProfile | None = None,
    schema: Schema = SCHEMA,
    **changes: object,
) -> Plan:
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    parameters = {"n_estimators": N_TREES, "max_depth": 2, **changes}
    request = request_for(
        slug, parameters, Fraction(20), 3_000, accountant=accountant, delta=delta
    )
    return forest_price.plan(replace(request, profile=profile), schema)


def grown(plan: Plan) -> Forest:
    second = None if plan.unlabelled is None else rows_of(1_000, seed=1)
    return growth.grow(
        plan,
        SCHEMA,
        rows_of(3_000),
        SystemRandomness(),
        on_tree_done=lambda: None,
        unlabelled=second,
    )


def facts(accountant: str, schema: Schema = SCHEMA) -> Any:
    request = request_for(
        "rpf", {}, Fraction(2), 3_000, accountant=accountant, delta=delta_of(accountant)
    )
    return contract.public_facts(
        request.terms, request.public_size, schema, Adjacency.ADD_REMOVE_ONE
    )


def delta_of(accountant: str) -> Fraction | None:
    return None if accountant == "pure" else Fraction(1, 10**6)


@pytest.fixture(scope="module")
def profile() -> ReusedProfile:
    plan = profile_price.plan({}, facts("pure"))
    return profile_draw.release(
        plan, SCHEMA, rows_of(3_000), SystemRandomness()
    ).reused("pf_a")


@pytest.fixture
def payments(monkeypatch: pytest.MonkeyPatch) -> list[PaidRandomness]:
    """What pays for the draws of each release."""
    made: list[PaidRandomness] = []

    def make(*arguments: Any) -> PaidRandomness:
        made.append(PaidRandomness(*arguments))
        return made[-1]

    for module in (growth, profile_draw, evaluation_draw, statistics_draw):
        monkeypatch.setattr(module, "PaidRandomness", make)
    return made


@pytest.mark.parametrize(("slug", "accountant"), CASES)
def test_a_forest_draws_everything_that_its_event_pays_for(
    payments: list[PaidRandomness], slug: str, accountant: str
) -> None:
    """Noise that serves two trees would leave a part of the event unused."""
    grown(planned(slug, accountant))
    [payment] = payments
    assert not payment.left


@pytest.mark.parametrize(
    ("slug", "accountant"),
    [("rpf", "pure"), ("nbrt", "zcdp"), ("nbrt", "gdp"), ("mrf", "gdp")],
)
def test_a_forest_with_a_profile_draws_everything_that_its_event_pays_for(
    payments: list[PaidRandomness], profile: ReusedProfile, slug: str, accountant: str
) -> None:
    grown(planned(slug, accountant, profile))
    assert not payments[-1].left


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_profiles_and_evaluations_draw_everything_that_their_events_pay_for(
    payments: list[PaidRandomness], accountant: str
) -> None:
    """Nor does a clear winner spare its draw: one model is right on all 1,000 rows, the
    other on none.
    """
    rows = rows_of(1_000)
    rows = replace(rows, y=np.ones_like(rows.y))
    flat = planned("rdt-ta", "pure", max_depth=0)
    models = [
        Predictor(
            growth.grow(
                flat,
                SCHEMA,
                replace(rows, y=label * rows.y),
                SystemRandomness(),
                on_tree_done=int,
            ),
            SCHEMA,
        )
        for label in (0, 1)
    ]
    assert [choice_draw._correct(model, rows) for model in models] == [0, 1_000]
    payments.clear()
    profile_draw.release(
        profile_price.plan({"size_share": "0.1"}, facts(accountant)),
        SCHEMA,
        rows,
        SystemRandomness(),
    )
    tables = plan_tables(["accuracy", "auroc"], facts(accountant), score_bins=4)
    evaluation_draw.release(tables, models[:1], rows, SystemRandomness())
    best = plan_best(2, facts(accountant), winner_accuracy=True)
    evaluation_draw.release(best, models, rows, SystemRandomness())
    assert [payment.left.total() for payment in payments] == [0, 0, 0]


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_what_is_released_of_a_number_draws_everything_that_its_event_pays_for(
    payments: list[PaidRandomness], accountant: str
) -> None:
    schema = Schema(SCHEMA.features, Label("days", bounds=(0.0, 9.0)))
    known, rows = facts(accountant, schema), rows_of(200)
    profile_plan = profile_price.plan({"size_share": "0.1"}, known)
    profile_draw.release(profile_plan, schema, rows, SystemRandomness())
    tables = [
        {"statistic": "variance", "column": "days"},
        {"statistic": "quantiles", "column": "days", "quantiles": ["0.5"]},
    ]
    statistics_draw.release(
        statistics_price.plan(tables, known),
        in_blocks(rows, schema, n_rows=200),
        SystemRandomness(),
    )
    assert [payment.left.total() for payment in payments] == [0, 0]


SMALL = plain_walks.SCHEMA
"""Few splits, so that deep trees have nodes without one."""

PATHS = [
    ("rpf", "pure", {"max_depth": 4, "splits": "node"}),
    ("rpf", "gdp", {"max_depth": 4, "splits": "node", "pairs": "none"}),
    ("rpf", "pure", {"max_depth": 4, "at_once": 1, "pairs": "none"}),
    ("rpf", "pure", {"max_depth": 8, "at_once": 1, "pairs": "none"}),
    ("rpf", "zcdp", {"max_depth": 5, "at_once": 2, "pairs": "none"}),
    ("rpf", "pure", {"max_depth": 7, "at_once": 2, "pairs": "none"}),
    ("mrf", "pure", {"max_depth": 6}),
    ("mrf", "pure", {"max_depth": 6, "selection": "two_stage", "exploration": "0.5"}),
    ("mrf", "zcdp", {"max_depth": 6, "assignment": "sharded", "leaf": "label"}),
    ("maxtree", "gdp", {"max_depth": 6}),
    ("bms-rf", "pure", {"max_depth": 6, "n_estimators": 4}),
    ("spe", "pure", {"max_depth": 6}),
    ("sspe-1", "zcdp", {"max_depth": 6}),
]


class AnyPath(FixedReleases):
    """Chooses each candidate, and so each end of a path, with equal probability."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._stream = random.Random(seed)


@pytest.mark.parametrize(("slug", "accountant", "changes"), PATHS)
def test_draws_of_ends_that_a_path_does_not_take_are_forfeited(
    payments: list[PaidRandomness],
    slug: str,
    accountant: str,
    changes: dict[str, object],
) -> None:
    """Ends of reweighted trees, splits that are explored at random, nodes whose box has
    no split.
    """
    _, rows = plain_walks.rows()
    plan = planned(slug, accountant, schema=SMALL, **changes)
    second = None if plan.unlabelled is None else rows
    for seed in range(8):
        growth.grow(
            plan, SMALL, rows, AnyPath(seed), on_tree_done=int, unlabelled=second
        )  # type: ignore[arg-type]
        assert not payments[-1].left


class Watched(PaidRandomness):
    """Notes what is left of its kind before each draw, and counts the draws."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.before, self.drawn = dict[Any, int](), Counter[Any]()
        self.is_forfeit = False

    def forfeit(self, *arguments: Any, **named: Any) -> None:
        self.is_forfeit = True
        super().forfeit(*arguments, **named)
        self.is_forfeit = False

    def _pay(self, mechanism: str, scale: Fraction, count: int) -> None:
        kind = randomness._kind(mechanism, scale)
        if not self.is_forfeit:
            self.before.setdefault(kind, self.left[kind])
            self.drawn[kind] += count
        super()._pay(mechanism, scale, count)


@pytest.mark.parametrize(
    ("slug", "accountant", "changes"), [path for path in PATHS if path[0] == "rpf"]
)
def test_ends_that_a_tree_does_not_take_are_forfeited_before_the_tree_draws_of_their_kind(
    monkeypatch: pytest.MonkeyPatch,
    slug: str,
    accountant: str,
    changes: dict[str, object],
) -> None:
    """The largest inverse scale of a reweighted tree is that of a leaf of its earliest
    stop, worth the whole tree.
    """
    made = list[Watched]()
    monkeypatch.setattr(
        growth,
        "PaidRandomness",
        lambda *arguments: made.append(Watched(*arguments)) or made[-1],
    )
    plan = planned(slug, accountant, schema=SMALL, **changes, n_estimators=1)
    for seed in range(8):
        growth.grow(plan, SMALL, plain_walks.rows()[1], AnyPath(seed), on_tree_done=int)  # type: ignore[arg-type]
        assert made[-1].before == made[-1].drawn


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_medians_of_intervals_without_a_cut_are_forfeited(
    payments: list[PaidRandomness], accountant: str
) -> None:
    """Every cut of no rows is at the first edge, so that one of its sides has none."""
    released = profile_draw.release(
        profile_price.plan({}, facts(accountant)), SCHEMA, rows_of(0), Noiseless()
    )
    assert (released.cuts == NO_CUT).any()
    assert not payments[-1].left


def test_a_release_that_draws_less_than_is_paid_for_logs_one_constant_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unused draw loses nothing, and a failure after the charge would burn budget."""
    paid = PaidRandomness(SystemRandomness(), planned("rdt-ta", "pure").event)
    paid.note_unused()
    [(_, numerator, denominator)] = paid.left
    paid.discrete_laplace(
        (paid.left.total(),), inverse_scale=Fraction(numerator, denominator)
    )
    paid.note_unused()
    assert caplog.messages == ["a release drew less than its event pays for"]


@pytest.mark.parametrize(("slug", "accountant"), CASES)
def test_a_plan_whose_parameters_grow_more_trees_than_its_event_prices_stops(
    slug: str, accountant: str
) -> None:
    plan, trees = (
        planned(slug, accountant),
        "n_teachers" if slug == "pte" else "n_estimators",
    )
    more = replace(plan, n_trees=19, parameters={**plan.parameters, trees: 19})
    # the second one where growth reads the number of trees, too
    with pytest.raises((UnpaidDraw, UnknownPrivacyEvent)):
        grown(more)
    with pytest.raises(PlanInvalid):
        forest_price.require_priced(more, SCHEMA)


@pytest.mark.parametrize(("slug", "accountant"), CASES)
def test_an_event_that_prices_one_tree_pays_for_no_second_tree(
    slug: str, accountant: str
) -> None:
    """The event states one tree at its own scale while growth draws all: the flaw of a
    price that forgets a factor.
    """
    plan = planned(slug, accountant)

    def one_tree(event: Any) -> Any:
        if (
            not isinstance(event, Sequential | Parallel)
            or getattr(event, "over", "") == "nodes"
        ):
            return event
        return replace(
            event, parts=tuple(Part(1, one_tree(part.event)) for part in event.parts)
        )

    cut = replace(plan, event=one_tree(plan.event))
    assert cut.event != plan.event
    with pytest.raises((UnpaidDraw, UnknownPrivacyEvent)):
        grown(cut)
    with pytest.raises(PlanInvalid):
        forest_price.require_priced(cut, SCHEMA)


class Careless(PaidRandomness):
    """Spends more on one draw: twice the inverse scale, or half of the standard
    deviation of normal noise.
    """

    at: int | None = None
    n_draws = 0

    def _more(self) -> bool:
        type(self).n_draws += 1
        return self.n_draws - 1 == self.at

    def permute_and_flip(self, utilities: Any, *, inverse_scale: Fraction) -> int:
        return super().permute_and_flip(
            utilities, inverse_scale=(1 + self._more()) * inverse_scale
        )

    def select_exponential(self, utilities: Any, *, inverse_scale: Fraction) -> int:
        return super().select_exponential(
            utilities, inverse_scale=(1 + self._more()) * inverse_scale
        )

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> Any:
        return super().discrete_laplace(
            shape, inverse_scale=(1 + self._more()) * inverse_scale
        )

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> Any:
        return super().rounded_gaussian(shape, scale_bits=scale_bits - self._more())


def draws_until_refused(
    monkeypatch: pytest.MonkeyPatch, release: Callable[[], object]
) -> list[int]:
    """Draws of a job, and of the same job that spends more on its first, second, … draw
    and is stopped each time.
    """
    for module in (growth, profile_draw, evaluation_draw):
        monkeypatch.setattr(module, "PaidRandomness", Careless)
    monkeypatch.setattr(Careless, "n_draws", 0)
    release()
    n_draws = [Careless.n_draws]
    for at in range(n_draws[0]):
        monkeypatch.setattr(Careless, "at", at)
        monkeypatch.setattr(Careless, "n_draws", 0)
        try:
            release()
            assert Careless.n_draws <= at, (
                "fewer draws than in the first run, as narrow intervals have no cut"
            )
        except UnpaidDraw:
            n_draws.append(Careless.n_draws)
    monkeypatch.setattr(Careless, "at", None)
    return n_draws


@pytest.mark.covering("slug", "accountant")
@pytest.mark.parametrize(("slug", "accountant"), CASES)
def test_a_job_that_spends_more_on_any_single_draw_stops_before_it(
    monkeypatch: pytest.MonkeyPatch, slug: str, accountant: str
) -> None:
    whole, *stopped = draws_until_refused(
        monkeypatch, partial(grown, planned(slug, accountant))
    )
    assert whole >= N_TREES
    # its second layer has half of the trees, at twice the scale, which the first may
    # take away
    if slug != "bms-rf":
        assert stopped == list(range(1, whole + 1))


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_a_profile_or_an_evaluation_that_spends_more_on_any_single_draw_stops_before_it(
    monkeypatch: pytest.MonkeyPatch, accountant: str
) -> None:
    rows, flat = rows_of(200), planned("rdt-ta", "pure", max_depth=0)
    models = [
        Predictor(
            growth.grow(flat, SCHEMA, rows, SystemRandomness(), on_tree_done=int),
            SCHEMA,
        )
        for _ in range(2)
    ]
    shares = profile_price.plan({"size_share": "0.1"}, facts(accountant))
    tables = plan_tables(["accuracy", "auroc"], facts(accountant), score_bins=4)
    best = plan_best(2, facts(accountant), winner_accuracy=True)
    for release in (
        lambda: profile_draw.release(shares, SCHEMA, rows, SystemRandomness()),
        lambda: evaluation_draw.release(tables, models[:1], rows, SystemRandomness()),
        lambda: evaluation_draw.release(best, models, rows, SystemRandomness()),
    ):
        whole, *stopped = draws_until_refused(monkeypatch, release)
        assert stopped == list(range(1, len(stopped) + 1))
        assert 1 < whole <= len(stopped) + 5


@pytest.mark.covering("slug", "accountant", "depth")
@pytest.mark.parametrize(("slug", "accountant"), CASES)
@pytest.mark.parametrize("depth", [0, 2])
def test_a_stored_plan_costs_what_its_parameters_cost(
    profile: ReusedProfile, slug: str, accountant: str, depth: int
) -> None:
    plan = (
        planned(slug, accountant, max_depth=depth)
        if slug != "bms-rf"
        else planned(slug, accountant)
    )
    forest_price.require_priced(forest_price.read_plan(plan.to_json()), SCHEMA)
    if catalogue.algorithm(slug).reuses_profiles:
        with_profile = planned(slug, accountant, profile, max_depth=depth)
        forest_price.require_priced(
            forest_price.read_plan(with_profile.to_json()), SCHEMA
        )


def test_an_event_of_disjoint_trees_does_not_pay_for_trees_on_all_rows() -> None:
    plan = planned("mrf", "pure", assignment="sharded")
    assert isinstance(plan.event, Parallel)
    on_all_rows = replace(
        plan, parameters={**plan.parameters, "assignment": "sequential"}
    )
    forest_price.require_priced(plan, SCHEMA)
    with pytest.raises(PlanInvalid):
        forest_price.require_priced(on_all_rows, SCHEMA)


def test_a_draw_that_is_paid_for_is_drawn_as_it_was_paid() -> None:
    seen: list[tuple[str, Any]] = []

    class Source:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments, **named: seen.append(
                (name, (*arguments, *named.values()))
            )

    scale, adjacency = Fraction(3, 8), Adjacency.ADD_REMOVE_ONE
    event = Sequential(
        (
            Part(1, PermuteAndFlip(adjacency, Fraction(1), scale, 2)),
            Part(1, ExponentialMechanism(adjacency, Fraction(1), 2 * scale, 2)),
            Part(2, DiscreteLaplace(adjacency, Fraction(1), 3 * scale, 3)),
            Part(2, RoundedGaussian(adjacency, Fraction(1), Fraction(4**20), 3)),
        )
    )
    paid = PaidRandomness(Source(), event)  # type: ignore[arg-type]
    utilities = np.array([4, 7])
    paid.permute_and_flip(utilities, inverse_scale=scale)
    paid.select_exponential(utilities, inverse_scale=2 * scale)
    paid.discrete_laplace((2, 3), inverse_scale=3 * scale)
    paid.rounded_gaussian((3, 2), scale_bits=20)
    paid.uniform(5)
    paid.bernoulli(scale)
    assert not paid.left
    assert seen == [
        ("permute_and_flip", (utilities, scale)),
        ("select_exponential", (utilities, 2 * scale)),
        ("discrete_laplace", ((2, 3), 3 * scale)),
        ("rounded_gaussian", ((3, 2), 20)),
        ("uniform", (5,)),
        ("bernoulli", (scale,)),
    ]


DRAWS: dict[type[Any], Callable[[Any], object]] = {
    PermuteAndFlip: lambda paid: paid.permute_and_flip(
        np.zeros(2), inverse_scale=Fraction(4)
    ),
    ExponentialMechanism: lambda paid: paid.select_exponential(
        np.zeros(2), inverse_scale=Fraction(4)
    ),
    DiscreteLaplace: lambda paid: paid.discrete_laplace(
        (1,), inverse_scale=Fraction(4)
    ),
    RoundedGaussian: lambda paid: paid.rounded_gaussian((1,), scale_bits=1),
}
"""One draw of each mechanism, all at scale 4."""


@pytest.mark.parametrize("paid_for", DRAWS)
@pytest.mark.parametrize("drawn", DRAWS)
def test_an_allowance_of_one_mechanism_pays_for_no_draw_of_another_of_equal_scale(
    paid_for: type[Any], drawn: type[Any]
) -> None:
    """And nothing reaches the sampler before the draw is paid for."""
    seen: list[str] = []

    class Source:
        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: seen.append(name)

    event = paid_for(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(4), 1)
    paid = PaidRandomness(Source(), event)  # type: ignore[arg-type]
    draw = DRAWS[drawn]
    if drawn is paid_for:
        draw(paid)
        assert (len(seen), paid.left.total()) == (1, 0)
        seen.clear()
    with pytest.raises(UnpaidDraw):
        draw(paid)
    assert seen == []


def test_what_is_forfeited_pays_for_no_draw() -> None:
    event = DiscreteLaplace(Adjacency.ADD_REMOVE_ONE, Fraction(1), Fraction(4), 5)
    paid = PaidRandomness(SystemRandomness(), event)
    give_up = partial(forfeit, paid, DiscreteLaplace, inverse_scale=Fraction(4))
    give_up(count=2)
    for count in (-1, 4):
        with pytest.raises(UnpaidDraw):
            give_up(count=count)
    with pytest.raises(UnpaidDraw):
        paid.discrete_laplace((4,), inverse_scale=Fraction(4))
    paid.discrete_laplace((2,), inverse_scale=Fraction(4))
    give_up()
    assert not paid.left


def test_nothing_is_drawn_before_the_draw_is_paid_for() -> None:
    drawn: list[str] = []

    class Watched(SystemRandomness):
        def discrete_laplace(
            self, shape: tuple[int, ...], *, inverse_scale: Fraction
        ) -> Any:
            drawn.append("noise")
            return super().discrete_laplace(shape, inverse_scale=inverse_scale)

    event = Sequential(
        (Part(1, planned("rdt-ta", "pure", n_estimators=1, max_depth=0).event),)
    )
    paid = PaidRandomness(Watched(), event)
    [(_, numerator, denominator)] = paid.left
    scale = Fraction(numerator, denominator)
    draw = partial(paid.discrete_laplace, inverse_scale=scale)
    for shape, other in (((3,), scale), ((1, 3), scale), ((1,), 2 * scale)):
        with pytest.raises(UnpaidDraw):
            paid.discrete_laplace(shape, inverse_scale=other)
    assert not drawn
    draw((2,))
    with pytest.raises(UnpaidDraw):
        draw((1,))
    assert drawn == ["noise"]


def test_tables_count_the_answers_of_the_chosen_model() -> None:
    """Without noise: right answers before wrong ones, of the winner, and scores by the
    read-out that spreads them.
    """
    rows = rows_of(1_000)
    ones = replace(rows, y=np.ones_like(rows.y))
    flat = planned("rdt-ta", "pure", max_depth=0)
    models = [
        Predictor(
            growth.grow(
                flat,
                SCHEMA,
                replace(ones, y=label * ones.y),
                SystemRandomness(),
                on_tree_done=int,
            ),
            SCHEMA,
        )
        for label in (0, 1)
    ]
    best = evaluation_draw.release(
        plan_best(2, facts("pure"), winner_accuracy=True), models, ones, Noiseless()
    )
    assert best.best == 1
    assert [table.tolist() for table in best.tables.values()] == [[1_000, 0]]
    wrong = evaluation_draw.release(
        plan_tables(["accuracy"], facts("pure"), score_bins=8),
        models[:1],
        ones,
        Noiseless(),
    )
    assert [table.tolist() for table in wrong.tables.values()] == [[0, 1_000]]

    boosted = grown(planned("nbrt", "gdp"))
    auroc = plan_tables(["auroc"], facts("pure"), score_bins=8)
    predictor = Predictor(boosted, SCHEMA)
    released = evaluation_draw.release(auroc, [predictor], rows, Noiseless())
    shares = predictor.probabilities(rows.features, read_out="logistic")
    scores = shares[:, 1]
    cells = rows.y * 8 + np.minimum((scores * 8).astype(np.int64), 7)
    assert [table.tolist() for table in released.tables.values()] == [
        np.bincount(cells, minlength=16).tolist()
    ]


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
def test_normal_noise_in_the_place_of_laplace_noise_costs_no_more_and_almost_as_much(
    accountant: str, adjacency: Adjacency
) -> None:
    budget = Terms(Fraction(2), accountant, Fraction(1, 10**6), adjacency).budget()
    sensitivity = noisy_counts.SENSITIVITIES[adjacency]
    laplace = DiscreteLaplace(adjacency, Fraction(sensitivity), Fraction(1, 7), 12)
    normal = noisy_counts.at_price_of(laplace, budget)
    assert isinstance(normal, RoundedGaussian)
    assert 0.9999 * budget.loss(laplace) < budget.loss(normal) <= budget.loss(laplace)
