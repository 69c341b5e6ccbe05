"""Lists the algorithms, and plans and prices a training job by one of them, before any row is read.

A plan follows from the request and the public schema alone. ``auto`` chooses an algorithm and the size of its forest
from public numbers. Growth is in ``app.forests.forest_release``, which only the child process of a job imports.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Final

from app.core.errors import AccountantMismatch, AdjacencyMismatch, GrovekeeperError, InvalidRequest
from app.forests import expected_accuracy
from app.forests.algorithms.bms_rf.price import StackedForest
from app.forests.algorithms.bms_rf.read import StackedFamily
from app.forests.algorithms.literature.label_price import LabelMedianTrees, TransductiveEnsemble
from app.forests.algorithms.literature.price import (
    AveragedTrees,
    DrawnTrees,
    JagannathanTrees,
    LabelledRandomTrees,
    MaximalVoteTrees,
    MedianTrees,
    MultinomialForest,
    SemiSupervisedTrees,
    VotingTrees,
)
from app.forests.algorithms.nbrt.price import NoiseMatchedBoosting
from app.forests.algorithms.nbrt.read import BoostedFamily
from app.forests.algorithms.rpf.price import ReweightedForest
from app.forests.algorithms.rpf.read import ReweightedFamily
from app.forests.bins.noisy_counts import mu_squared
from app.forests.bins.quantile_bins import ReusedProfile
from app.forests.contract.algorithm import (
    POINTER,
    About,
    Algorithm,
    Described,
    PublicFacts,
    TwoDatasetAlgorithm,
    Value,
    read_all,
    without_effect,
)
from app.forests.contract.plan import Family, Plan, PlanInvalid, UnlabelledPlan
from app.forests.data.schema import Schema
from app.forests.trees.leaf_read_out import LeafFamily
from app.privacy.accountants import pure
from app.privacy.calibration import Terms, fitted
from app.privacy.events import Adjacency, Event, EventCostsMore

HOPELESS: Final = 10
"""Public size × μ below which noise outweighs any structure, and noisy class proportions are as accurate as trees."""

_CLASSES_ONLY: Final = MappingProxyType({"max_depth": 0, "n_estimators": 1})

_HOPELESS = (
    "The budget times the public size is so small that noise outweighs any structure: the model will be the noisy "
    "class proportions, the same for every row."
)


@dataclass(frozen=True)
class Choice:
    """The algorithm that is planned instead of ``auto``, parameters that override its rules, and warnings."""

    slug: str
    parameters: Mapping[str, object]
    warnings: tuple[str, ...]


class Auto(Described):
    """A public rule that names an algorithm. The plan, the price and the model are those of the named algorithm.

    The rule names ``rpf`` on a ``pure`` account, where δ = 0, and ``nbrt`` on any other account. The named algorithm's
    rules choose the parameters. The rule reads the declaration, the public size and the budget only, so it costs no
    budget.
    """

    slug = "auto"
    title = "The better of rpf and nbrt for the account, sized by public numbers"
    source = "Grovekeeper; docs/proofs/rpf.md, docs/proofs/nbrt.md"
    about = About(
        claimed=None,
        wrong=None,
        here=(
            "Chooses one of two algorithms by public numbers; the chosen algorithm states guarantee and accuracy. "
            "Plan, price and model are those of the chosen algorithm."
        ),
        proof="docs/proofs/README.md",
        results="docs/results/flagships.md",
    )
    read_outs = ()
    parameters = ()

    def reason(self, slug: str) -> str:
        """Why the rule names an algorithm, for a quote."""
        accounts = "pure accounts (δ = 0)" if slug == ReweightedForest.slug else "accounts with a δ"
        return f"auto chose {slug}, the most accurate algorithm of this service on {accounts}"

    def choose(self, facts: PublicFacts) -> Choice:
        """Chooses the algorithm for a budget and a public size.

        If noise would outweigh any structure, ``nbrt`` is planned without splits, so that the model is the noisy class
        proportions, and a warning is added. ``rpf`` makes this check in its own ``fill_defaults``.
        """
        if facts.budget.accountant == pure.NAME:
            return Choice(ReweightedForest.slug, {}, ())
        if facts.size * math.sqrt(mu_squared(facts.budget)) < HOPELESS:
            return Choice(NoiseMatchedBoosting.slug, _CLASSES_ONLY, (_HOPELESS,))
        return Choice(NoiseMatchedBoosting.slug, {}, ())


AUTO = Auto()
"""The slug that lets the planner choose an algorithm; see :func:`plan`."""

BY_SLUG: Mapping[str, Algorithm] = MappingProxyType(
    {
        algorithm.slug: algorithm
        for algorithm in (
            ReweightedForest(),
            NoiseMatchedBoosting(),
            MultinomialForest(),
            VotingTrees(),
            AveragedTrees(),
            DrawnTrees(),
            JagannathanTrees(),
            LabelledRandomTrees(),
            MaximalVoteTrees(),
            MedianTrees(),
            StackedForest(),
            SemiSupervisedTrees(),
            LabelMedianTrees(),
            TransductiveEnsemble(),
        )
    }
)
"""Every algorithm."""

_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        **dict.fromkeys(BY_SLUG, LeafFamily()),
        ReweightedForest.slug: ReweightedFamily(),
        NoiseMatchedBoosting.slug: BoostedFamily(),
        StackedForest.slug: StackedFamily(),
        LabelledRandomTrees.slug: LeafFamily("label"),
    }
)


def algorithm(slug: str) -> Algorithm:
    """The algorithm with this slug.

    Raises:
        InvalidRequest: no algorithm has this slug.
    """
    if slug not in BY_SLUG:
        raise InvalidRequest.at("/algorithm", "unknown", accepted=(AUTO.slug, *BY_SLUG))
    return BY_SLUG[slug]


def family(slug: str) -> Family:
    """The family that stores and reads the released arrays of an algorithm."""
    return _FAMILIES[algorithm(slug).slug]


def read_plan(value: object) -> Plan:
    """Inverse of ``Plan.to_json``. Checks every field but the event, since a plan may come from an untrusted artifact.

    Whoever spends by a stored plan calls :func:`require_priced`; whoever reads a forest, its family.

    Raises:
        PlanInvalid: not a plan of an algorithm of this service.
    """
    try:
        match value:
            case {"algorithm": str(slug)}:
                mechanism = algorithm(slug)
                read = Plan.from_json(value, mechanism.parameters)
                if isinstance(mechanism, TwoDatasetAlgorithm) is (read.unlabelled is not None):
                    return read
    except (GrovekeeperError, ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise PlanInvalid from error
    raise PlanInvalid


@cache
def read_outs(slug: str) -> tuple[str, ...]:
    """Read-outs that a model of this algorithm offers, the default first."""
    return algorithm(slug).read_outs


def algorithms() -> list[dict[str, object]]:
    """One JSON-able description per algorithm: slug, title, source, claims, read-outs and parameters."""
    listed: tuple[Described, ...] = (AUTO, *BY_SLUG.values())
    return [
        {
            "slug": algorithm.slug,
            "title": algorithm.title,
            "source": algorithm.source,
            "about": {**vars(algorithm.about), "accuracy": expected_accuracy.at_epsilon_one(algorithm.slug)},
            "read_outs": list(algorithm.read_outs),
            "parameters": [parameter.describe() for parameter in algorithm.parameters],
            "accountants": list(algorithm.accountants),
            "adjacency": algorithm.adjacency.value,
            "unlabelled": isinstance(algorithm, TwoDatasetAlgorithm),
        }
        for algorithm in listed
    ]


ASSUMED_SIZE = 3_000
"""Public size that the rules assume where none is declared: a cautious value, for a small table."""

_NO_SIZE = "No public size is declared, so the defaults are those for a small table; see public_size."

_NO_SPLITS = "A forest without splits uses only the size of a profile."

_UNLABELLED = "/unlabelled"

_STEPS_OF_A_LABEL = 2  # a changed label is one row removed and one row added

_TWO_STEPS = (
    "This account protects labels, and the algorithm is proven for a row that is added or removed. A changed label is "
    "both at once, so the algorithm runs at half of the ε (a quarter of the ρ or μ²) that is charged."
)


@dataclass(frozen=True)
class PlanRequest:
    """A training request, with the facts of the account that pays.

    Attributes:
        algorithm: slug of the catalogue, or ``auto``.
        parameters: values by name; public rules choose the absent parameters.
        terms: of the account that pays.
        public_size: declared order of magnitude of the rows in scope, or ``None``. Never a count.
        profile: an earlier release that replaces draws which would cost budget.
        unlabelled: the terms of the account of a second dataset, for algorithms that learn from two datasets.
        unlabelled_size: as ``public_size``, of the second dataset.
    """

    algorithm: str
    parameters: Mapping[str, object]
    terms: Terms
    public_size: int | None = None
    profile: ReusedProfile | None = None
    unlabelled: Terms | None = None
    unlabelled_size: int | None = None


def plan(request: PlanRequest, schema: Schema) -> Plan:
    """Settles every parameter and prices the job. Reads no row and draws no random number.

    Raises:
        InvalidRequest: unknown algorithm or parameter, or a value outside its range (pointer and slug, no value).
        AccountantMismatch: the algorithm has no bound in the account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and the account protects whole rows.
        EventCostsMore: the algorithm priced an event above the amount, which is a bug.
    """
    choice = Choice(request.algorithm, request.parameters, ())
    if request.algorithm == AUTO.slug:
        if request.parameters:
            raise InvalidRequest.at(POINTER, "not-with-auto", accepted=BY_SLUG)
        choice = AUTO.choose(public_facts(request.terms, request.public_size, schema, AUTO.adjacency))
    mechanism = algorithm(choice.slug)
    facts = _facts_for(mechanism, request, schema)
    if request.profile is not None and not mechanism.reuses_profiles:
        raise InvalidRequest.at("/profile", "not-for-this-algorithm")
    settled = read_all(mechanism.parameters, choice.parameters)
    warnings = mechanism.fill_defaults(settled, facts)
    event = _event(mechanism, partial(mechanism.event, settled), facts)
    warnings = (*choice.warnings, *warnings, *without_effect(mechanism.parameters, choice.parameters, settled))
    if any(mechanism.adjacency is not terms.adjacency for terms in _paying(request)):
        warnings = (_TWO_STEPS, *warnings)
    if request.profile is not None and int(settled["max_depth"]) == 0:
        warnings = (*warnings, _NO_SPLITS)
    if request.public_size is None and not {"n_estimators", "max_depth"} <= set(request.parameters):
        warnings = (_NO_SIZE, *warnings)
    parameters = {parameter.name: settled[parameter.name] for parameter in mechanism.parameters}
    settled_plan = Plan(
        mechanism.slug,
        parameters,
        request.terms,
        int(settled["n_estimators"]),
        event,
        warnings,
        request.profile if int(settled["max_depth"]) > 0 else None,
        _unlabelled_plan(mechanism, settled, facts, request.unlabelled),
    )
    if not _is_paid_for(settled_plan):
        raise EventCostsMore("the event costs more than the amount that pays for it")
    return settled_plan


def _facts_for(mechanism: Algorithm, request: PlanRequest, schema: Schema) -> PublicFacts:
    """The public facts of the account, or of both accounts, that pay.

    Raises:
        InvalidRequest: the algorithm needs a second dataset and the request names none, or the reverse.
    """
    needs_two = isinstance(mechanism, TwoDatasetAlgorithm)
    if needs_two is (request.unlabelled is None):
        raise InvalidRequest.at(_UNLABELLED, "required" if needs_two else "not-for-this-algorithm")
    for terms in _paying(request):
        if terms.accountant not in mechanism.accountants:
            raise AccountantMismatch(terms.accountant, mechanism.accountants)
    facts = public_facts(request.terms, request.public_size, schema, mechanism.adjacency)
    facts = replace(facts, profile=request.profile)
    if request.unlabelled is None:
        return facts
    try:
        of_unlabelled = public_facts(request.unlabelled, request.unlabelled_size, schema, mechanism.adjacency)
    except InvalidRequest as invalid:
        raise invalid.below(_UNLABELLED) from None
    return replace(facts, unlabelled=replace(of_unlabelled, profile=facts.profile))


def _paying(request: PlanRequest) -> Iterator[Terms]:
    yield request.terms
    if request.unlabelled is not None:
        yield request.unlabelled


def _unlabelled_plan(
    mechanism: Algorithm, settled: Mapping[str, Value], facts: PublicFacts, terms: Terms | None
) -> UnlabelledPlan | None:
    if terms is None:
        return None
    assert isinstance(mechanism, TwoDatasetAlgorithm)  # see _facts_for
    assert facts.unlabelled is not None
    try:
        event = _event(mechanism, partial(mechanism.structure_event, settled), facts.unlabelled)
    except InvalidRequest as invalid:
        raise invalid.below(_UNLABELLED) from None
    return UnlabelledPlan(event, terms)


def public_facts(terms: Terms, size: int | None, schema: Schema, adjacency: Adjacency) -> PublicFacts:
    """The facts that an account gives to a mechanism; ε and budget are stated under the mechanism's ``adjacency``.

    Args:
        size: see :attr:`PlanRequest.public_size`.
    """
    if (terms.adjacency, adjacency) == (Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL):
        raise AdjacencyMismatch(terms.adjacency.value, (adjacency.value,))
    budget = terms.budget()
    mechanism_budget = budget.stated_under(adjacency)
    if mechanism_budget.amount == 0:
        raise InvalidRequest.at("/epsilon", "too-small")
    epsilon = terms.epsilon / terms.max_rows
    return PublicFacts(
        schema,
        epsilon if mechanism_budget == budget else epsilon / _STEPS_OF_A_LABEL,
        ASSUMED_SIZE if size is None else size,
        mechanism_budget,
    )


def require_priced(plan: Plan, schema: Schema) -> None:
    """Prices the parameters of a stored plan again, and compares the events.

    Raises:
        PlanInvalid: the parameters cost other events than those of the plan, the events cost more than the plan's
            amount, or this version grows no forest by these parameters.
    """
    try:
        mechanism, second = algorithm(plan.algorithm), plan.unlabelled
        read_all(mechanism.parameters, plan.parameters)
        of_second = None if second is None else second.terms
        request = PlanRequest(plan.algorithm, plan.parameters, plan.terms, profile=plan.profile, unlabelled=of_second)
        facts = _facts_for(mechanism, request, schema)  # the size decides about parameters only, which are settled
        event = _event(mechanism, partial(mechanism.event, plan.parameters), facts)
        is_same = event == plan.event and _unlabelled_plan(mechanism, plan.parameters, facts, of_second) == second
        is_paid_for = is_same and _is_paid_for(plan)
    except (GrovekeeperError, ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise PlanInvalid from error
    if not is_paid_for:
        raise PlanInvalid


def _event(mechanism: Algorithm, event_of: Callable[[PublicFacts], Event], facts: PublicFacts) -> Event:
    """The event of a mechanism for an account; an event priced in ε is fitted to accounts of another unit."""
    if facts.budget.accountant == pure.NAME or pure.NAME not in mechanism.accountants:
        return event_of(facts)
    return fitted(facts.budget, lambda strength: event_of(replace(facts, epsilon=strength)), start=facts.epsilon)


def _is_paid_for(plan: Plan) -> bool:
    """Whether the event of each account costs at most the account's (ε, δ), for all rows of a privacy unit."""
    second = plan.unlabelled
    return plan.terms.covers(plan.event) and (second is None or second.terms.covers(second.event))
