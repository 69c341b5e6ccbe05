"""Exact laws of published outputs, if requests and the choice of publications depend on
earlier outputs.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, Literal, TypeAlias

from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.choice import price as choice_price
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation import draw as evaluation_draw
from grovekeeper_forests.releases.evaluation import price as evaluation_price
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.profile import draw as profile_draw
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.statistics import draw as statistics_draw
from grovekeeper_forests.releases.statistics import price as statistics_price
from tests.privacy.enumeration import EnumeratingRandomness, output_law
from tests.privacy.universe import EMPTY, TWO_SPLITS, Dataset, Record, released, rows_of
from tests.support.block_rows import in_blocks

Law: TypeAlias = Mapping[Hashable, float]
History: TypeAlias = tuple[Hashable, ...]
Output: TypeAlias = Literal["model", "profile", "evaluation", "set of statistics"]

ROW: Record = (0, 1.0, 1)
SAME_ROW_OTHER_CLASS: Record = (0, 1.0, 0)
HELD_OUT: Dataset = {100 + number: ROW for number in range(6)}
"""Rows outside the training cells of the models. They prefer a model that answers
``yes``.
"""

_forests: dict[Hashable, Forest] = {}


@dataclass(frozen=True)
class Account:
    """An account, and the two neighbours whose outputs are compared.

    Attributes:
        max_rows: rows of one unit.
        replacing: whether one unit is replaced by another, instead of added or removed.
    """

    accountant: str
    adjacency: Adjacency = Adjacency.ADD_REMOVE_ONE
    max_rows: int = 1
    replacing: bool = False

    @property
    def delta(self) -> Fraction | None:
        return (
            Fraction(1, 10**6)
            if accountants.by_name(self.accountant).TAKES_DELTA
            else None
        )

    def terms(self, epsilon: Fraction = Fraction(1)) -> Terms:
        return Terms(
            epsilon, self.accountant, self.delta, self.adjacency, self.max_rows
        )

    def price(self, epsilon: Fraction = Fraction(1)) -> int:
        return self.terms(epsilon).price()

    @property
    def neighbours(self) -> tuple[Dataset, Dataset]:
        unit = dict.fromkeys(range(self.max_rows), ROW)
        if self.replacing or self.adjacency is Adjacency.LABEL:
            return dict.fromkeys(unit, SAME_ROW_OTHER_CLASS), unit
        return EMPTY, unit


@dataclass(frozen=True)
class Job:
    """A job: its output, its parameters, and the exact law of its release on the rows
    that it reads.
    """

    output: Output
    parameters: Hashable
    law: Callable[[Dataset], Law]


@dataclass
class World:
    """All requests and publications of one analyst.

    Attributes:
        job: the next job after a history, or ``None``.
        published: the analyst's publication after a whole history.
        total: the sum of all charges of a history in the cells with the largest sum, in
            whole steps.
    """

    account: Account
    job: Callable[[History], Job | None]
    published: Callable[[History], Hashable]
    total: int
    laws: list[dict[History, float]] = field(default_factory=list)

    def transcripts(self) -> tuple[Law, Law]:
        """The joint law of all outputs, for both neighbours."""
        one, other = self.account.neighbours
        return dict(self._histories(one)), dict(self._histories(other))

    def publications(self) -> tuple[Law, Law]:
        """The law of the publications alone."""
        results = []
        for law in self.transcripts():
            published = defaultdict[Hashable, float](float)
            for history, probability in law.items():
                published[self.published(history)] += probability  # type: ignore[arg-type]
            results.append(dict(published))
        return results[0], results[1]

    def steps(self) -> Iterator[tuple[Job, Law, Law]]:
        """Every job after every history, with the law of its output given that history."""
        one, other = self.account.neighbours
        pending: list[History] = [()]
        while pending:
            history = pending.pop()
            job = self.job(history)
            if job is not None:
                yield job, job.law(one), job.law(other)
                pending += [(*history, outcome) for outcome in job.law(one)]

    def _histories(self, rows: Dataset) -> Iterator[tuple[History, float]]:
        pending: list[tuple[History, float]] = [((), 1.0)]
        while pending:
            history, probability = pending.pop()
            job = self.job(history)
            if job is None:
                yield history, probability
            else:
                pending += [
                    ((*history, outcome), probability * p)
                    for outcome, p in job.law(rows).items()
                ]


def best_of(account: Account, n_models: int) -> World:
    """Several models, and a charged evaluation on held-out rows that chooses the
    published model.
    """

    def job(history: History) -> Job | None:
        if len(history) < n_models:
            return model(account)
        return choice(account, history) if len(history) == n_models else None

    return World(
        account,
        job,
        lambda history: history[_best(history[-1])],
        n_models * account.price(),
    )


def follow_up(account: Account, output: Output) -> World:
    """A model, and then a job whose parameters depend on the model; the second output
    is published.
    """

    def job(history: History) -> Job | None:
        if not history:
            return model(account)
        return _second(account, output, history[0]) if len(history) == 1 else None

    def published(history: History) -> Hashable:
        second = _second(account, output, history[0])
        return second.output, second.parameters, history[1]

    return World(account, job, published, 2 * account.price())


def models_only(account: Account, n_models: int) -> World:
    """Several models, all of which are published."""

    def job(history: History) -> Job | None:
        return model(account) if len(history) < n_models else None

    return World(account, job, lambda history: history, n_models * account.price())


def model(account: Account, **parameters: object) -> Job:
    """A forest of stumps without splits: each stump is one released label."""
    return Job(
        "model",
        tuple(sorted(parameters.items())),
        lambda rows: _model_law(account, _key(rows), **parameters),
    )


def choice(account: Account, models: History) -> Job:
    """The best of several released models, by a charged count on held-out rows."""
    return Job("evaluation", models, lambda rows: _choice_law(account, models))


def _second(account: Account, output: Output, first: Hashable) -> Job:
    number = int(first == min(_forests_of(account)))
    if output == "model":
        return model(account, n_estimators=1 + number)
    if output == "profile":
        share = ("0.25", "0.5")[number]
        return Job(
            "profile", share, lambda rows: _profile_law(account, _key(rows), share)
        )
    if output == "set of statistics":
        table = ("histogram", "count")[number]
        return Job(
            output, table, lambda rows: _statistics_law(account, _key(rows), table)
        )
    metric = ("accuracy", "confusion")[number]
    return Job(
        "evaluation", metric, lambda rows: _evaluation_law(account, _key(rows), metric)
    )


def _forests_of(account: Account) -> list[Any]:
    return sorted(_model_law(account, ()))  # type: ignore[type-var]


def _best(outcome: Hashable) -> int:
    assert isinstance(outcome, tuple)
    return int(outcome[0])


def _key(rows: Dataset) -> tuple[tuple[int, Record], ...]:
    return tuple(sorted(rows.items()))


@cache
def _model_law(
    account: Account, rows: tuple[tuple[int, Record], ...], n_estimators: int = 1
) -> Law:
    parameters = {"n_estimators": n_estimators, "max_depth": 0, "leaf": "label"}
    request = PlanRequest("mrf", parameters, account.terms())
    planned = plan(request, TWO_SPLITS)

    def run(randomness: EnumeratingRandomness) -> Hashable:
        forest = grow(
            planned,
            TWO_SPLITS,
            rows_of(dict(rows)),
            randomness,
            on_tree_done=lambda: None,
        )  # type: ignore[arg-type]
        return _forests.setdefault(released(forest), forest) and released(forest)

    return output_law(run)


@cache
def _choice_law(account: Account, models: History) -> Law:
    planned = choice_price.plan_best(
        len(models), _facts(account, Fraction(40)), winner_accuracy=False
    )
    return _release_law(planned, models, HELD_OUT)


@cache
def _evaluation_law(
    account: Account, rows: tuple[tuple[int, Record], ...], metric: str
) -> Law:
    planned = evaluation_price.plan_tables([metric], _facts(account), score_bins=2)
    return _release_law(planned, (min(_forests_of(account)),), dict(rows))


def _release_law(
    planned: evaluation_price.EvaluationPlan, models: History, rows: Dataset
) -> Law:
    read = [Predictor(_forests[model], TWO_SPLITS) for model in models]

    def run(randomness: EnumeratingRandomness) -> Hashable:
        evaluation = evaluation_draw.release(planned, read, rows_of(rows), randomness)  # type: ignore[arg-type]
        return evaluation.best, tuple(
            (name, table.tobytes()) for name, table in sorted(evaluation.tables.items())
        )

    return output_law(run)


@cache
def _profile_law(
    account: Account, rows: tuple[tuple[int, Record], ...], size_share: str
) -> Law:
    planned = profile_price.plan(
        {"size_share": size_share, "class_share": "0.25"}, _facts(account)
    )

    def run(randomness: EnumeratingRandomness) -> Hashable:
        profile = profile_draw.release(
            planned, TWO_SPLITS, rows_of(dict(rows)), randomness
        )  # type: ignore[arg-type]
        return profile.cuts.tobytes(), profile.class_counts.tobytes(), profile.size

    return output_law(run)


@cache
def _statistics_law(
    account: Account, rows: tuple[tuple[int, Record], ...], statistic: str
) -> Law:
    label = TWO_SPLITS.label
    asked: list[dict[str, Any]] = [{"statistic": statistic}]
    if statistic == "histogram":
        asked[0]["column"] = label.name
        asked.insert(0, {"statistic": "median", "column": "size", "by": [label.name]})
    else:
        asked[0]["where"] = [{"column": label.name, "in": [label.classes[1]]}]
    terms = account.terms(Fraction(1))
    facts = public_facts(terms, None, TWO_SPLITS, terms.adjacency)
    planned = statistics_price.plan(asked, facts)
    private = in_blocks(rows_of(dict(rows)), TWO_SPLITS)

    def run(randomness: EnumeratingRandomness) -> Hashable:
        statistics = statistics_draw.release(planned, private, randomness)  # type: ignore[arg-type]
        return tuple(m.tobytes() for table in statistics.measured for m in table)

    return output_law(run)


def _facts(account: Account, epsilon: Fraction = Fraction(1)) -> Any:
    return public_facts(
        account.terms(epsilon), None, TWO_SPLITS, Adjacency.ADD_REMOVE_ONE
    )


def every_account() -> Iterator[Account]:
    """One account of each kind that sentences distinguish, with each pair of neighbours
    that its sentences mention.
    """
    for accountant, max_rows in itertools.product(accountants.NAMES, (1, 2)):
        yield Account(accountant, max_rows=max_rows)
        yield Account(accountant, max_rows=max_rows, replacing=True)
        yield Account(accountant, Adjacency.LABEL, max_rows)
