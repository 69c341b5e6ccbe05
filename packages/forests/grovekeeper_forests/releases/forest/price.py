"""Plans and prices a training job by one of the algorithms, before any row is read.

A plan follows from the request and the public schema alone.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.catalogue import (
    AUTO,
    BY_SLUG,
    Choice,
    algorithm,
)
from grovekeeper_forests.contract.algorithm import (
    Algorithm,
    Parameters,
    PublicFacts,
    TwoDatasetAlgorithm,
    read_all,
    without_effect,
)
from grovekeeper_forests.contract.plan import Plan, PlanInvalid, UnlabelledPlan
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import (
    AccountantMismatch,
    GrovekeeperError,
    ParameterInvalid,
)
from grovekeeper_forests.json_types import JsonMapping
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms, fitted
from grovekeeper_forests.privacy.events import Event, EventCostsMore
from grovekeeper_forests.releases.contract import public_facts

_NO_SIZE = "No public size is declared, so the defaults are those for a small table; see public_size."
_NO_SPLITS = "A forest without splits uses only the size of a profile."
_TWO_STEPS = (
    "This account protects labels, and the algorithm is proven for a row that is added or removed. A changed label is "
    "both at once, so the algorithm runs at half of the ε (a quarter of the ρ or μ²) that is charged."
)
SECOND_PART = "unlabelled"
"""The name of the second part of a training request."""


def read_plan(value: object) -> Plan:
    """Inverse of ``Plan.to_json``. Checks every field but the event, since a plan may
    come from an untrusted artifact.

    Whoever spends by a stored plan calls :func:`require_priced`; whoever reads a
    forest, its family.

    Raises:
        PlanInvalid: not a plan of an algorithm of this service.
    """
    try:
        match value:
            case {"algorithm": str(slug)}:
                mechanism = algorithm(slug)
                read = Plan.from_json(value, mechanism.parameters)
                if isinstance(mechanism, TwoDatasetAlgorithm) is (
                    read.unlabelled is not None
                ):
                    return read
    except (
        GrovekeeperError,
        ArithmeticError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise PlanInvalid from error
    raise PlanInvalid


@dataclass(frozen=True)
class PlanRequest:
    """A training request, with the facts of the account that pays.

    Attributes:
        algorithm: slug of the catalogue, or ``auto``.
        parameters: values by name; public rules choose the absent parameters.
        terms: of the account that pays.
        public_size: declared order of magnitude of the rows in scope, or ``None``.
            Never a count.
        profile: an earlier release that replaces draws which would cost budget.
        unlabelled: the terms of the account of a second dataset, for algorithms that
            learn from two datasets.
        unlabelled_size: as ``public_size``, of the second dataset.
    """

    algorithm: str
    parameters: JsonMapping
    terms: Terms
    public_size: int | None = None
    profile: ReusedProfile | None = None
    unlabelled: Terms | None = None
    unlabelled_size: int | None = None


def plan(request: PlanRequest, schema: Schema) -> Plan:
    """Settles every parameter and prices the job. Reads no row and draws no random
    number.

    Raises:
        ParameterInvalid: unknown algorithm or parameter, or a value outside its range
            (place and slug, no value).
        AccountantMismatch: the algorithm has no bound in the account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and the account protects
            whole rows.
        EventCostsMore: the algorithm priced an event above the amount, which is a bug.
    """
    choice = Choice(request.algorithm, request.parameters, ())
    if request.algorithm == AUTO.slug:
        if request.parameters:
            raise ParameterInvalid.named(
                "parameters", "not-with-auto", accepted=_usable(request, schema)
            )
        choice = AUTO.choose(
            public_facts(request.terms, request.public_size, schema, AUTO.adjacency)
        )
    mechanism = algorithm(choice.slug)
    facts = _facts_for(mechanism, request, schema)
    if request.profile is not None and not mechanism.reuses_profiles:
        raise ParameterInvalid.named("profile", "not-for-this-algorithm")
    settled = read_all(mechanism.parameters, choice.parameters)
    warnings = mechanism.fill_defaults(settled, facts)
    event = _event(mechanism, partial(mechanism.event, settled), facts)
    warnings = (
        *choice.warnings,
        *warnings,
        *without_effect(
            mechanism.parameters,
            choice.parameters,
            settled,
            is_number=schema.label.is_number,
        ),
    )
    if any(
        mechanism.adjacency is not terms.adjacency
        for terms in filter(None, (request.terms, request.unlabelled))
    ):
        warnings = (_TWO_STEPS, *warnings)
    if request.profile is not None and int(settled["max_depth"]) == 0:
        warnings = (*warnings, _NO_SPLITS)
    if request.public_size is None and not {"n_estimators", "max_depth"} <= set(
        request.parameters
    ):
        warnings = (_NO_SIZE, *warnings)
    parameters = {
        parameter.name: settled[parameter.name] for parameter in mechanism.parameters
    }
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


def _usable(request: PlanRequest, schema: Schema) -> list[str]:
    """The algorithms that the accounts of a request pay for, on such a label."""
    slugs = []
    for slug, mechanism in BY_SLUG.items():
        if mechanism.predicts_numbers or not schema.label.is_number:
            with suppress(GrovekeeperError):
                _facts_for(mechanism, request, schema)
                slugs.append(slug)
    return slugs


def _facts_for(
    mechanism: Algorithm, request: PlanRequest, schema: Schema
) -> PublicFacts:
    """The public facts of the account, or of both accounts, that pay.

    Raises:
        ParameterInvalid: the algorithm needs a second dataset and the request names
            none, or the reverse; or the label is a number, which the algorithm does not
            predict.
    """
    if schema.label.is_number and not mechanism.predicts_numbers:
        raise ParameterInvalid.named(
            "algorithm", "not-for-numbers", accepted=_usable(request, schema)
        )
    needs_two = isinstance(mechanism, TwoDatasetAlgorithm)
    if needs_two is (request.unlabelled is None):
        raise ParameterInvalid.named(
            SECOND_PART, "required" if needs_two else "not-for-this-algorithm"
        )
    for terms in filter(None, (request.terms, request.unlabelled)):
        if terms.accountant not in mechanism.accountants:
            raise AccountantMismatch(terms.accountant, mechanism.accountants)
    facts = public_facts(
        request.terms, request.public_size, schema, mechanism.adjacency
    )
    facts = replace(facts, profile=request.profile)
    if request.unlabelled is None:
        return facts
    try:
        of_unlabelled = public_facts(
            request.unlabelled, request.unlabelled_size, schema, mechanism.adjacency
        )
    except ParameterInvalid as invalid:
        raise invalid.inside(SECOND_PART) from None
    return replace(facts, unlabelled=replace(of_unlabelled, profile=facts.profile))


def _unlabelled_plan(
    mechanism: Algorithm,
    settled: Parameters,
    facts: PublicFacts,
    terms: Terms | None,
) -> UnlabelledPlan | None:
    if terms is None:
        return None
    assert isinstance(mechanism, TwoDatasetAlgorithm)  # see _facts_for
    assert facts.unlabelled is not None
    try:
        event = _event(
            mechanism, partial(mechanism.structure_event, settled), facts.unlabelled
        )
    except ParameterInvalid as invalid:
        raise invalid.inside(SECOND_PART) from None
    return UnlabelledPlan(event, terms)


def require_priced(plan: Plan, schema: Schema) -> None:
    """Prices the parameters of a stored plan again, and compares the events.

    Raises:
        PlanInvalid: the parameters cost other events than those of the plan, the events
            cost more than the plan's amount, or this version grows no forest by these
            parameters.
    """
    try:
        mechanism = algorithm(plan.algorithm)
        second = plan.unlabelled
        read_all(mechanism.parameters, plan.parameters)
        of_second = None if second is None else second.terms
        # A plan stores no size: the parameters that followed from it are settled, and
        # the event names the grid of private bins. Any size that gives this grid prices
        # the same event.
        request = PlanRequest(
            plan.algorithm,
            plan.parameters,
            plan.terms,
            public_size=quantile_bins.SIZES[plan.grid],
            profile=plan.profile,
            unlabelled=of_second,
        )
        facts = _facts_for(mechanism, request, schema)
        event = _event(mechanism, partial(mechanism.event, plan.parameters), facts)
        is_same = (
            event == plan.event
            and _unlabelled_plan(mechanism, plan.parameters, facts, of_second) == second
        )
        is_paid_for = is_same and _is_paid_for(plan)
    except (
        GrovekeeperError,
        ArithmeticError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise PlanInvalid from error
    if not is_paid_for:
        raise PlanInvalid


def _event(
    mechanism: Algorithm, event_of: Callable[[PublicFacts], Event], facts: PublicFacts
) -> Event:
    """The event of a mechanism for an account; an event priced in ε is fitted to
    accounts of another unit.
    """
    if facts.budget.accountant == pure.NAME or pure.NAME not in mechanism.accountants:
        return event_of(facts)
    return fitted(
        facts.budget,
        lambda strength: event_of(replace(facts, epsilon=strength)),
        start=facts.epsilon,
    )


def _is_paid_for(plan: Plan) -> bool:
    """Whether the event of each account costs at most the account's (ε, δ), for all
    rows of a privacy unit.
    """
    second = plan.unlabelled
    return plan.terms.covers(plan.event) and (
        second is None or second.terms.covers(second.event)
    )
