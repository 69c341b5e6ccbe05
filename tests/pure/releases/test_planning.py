"""Plans: legal requests, parameters that rules fix, and errors that repeat no value of
the request.
"""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.contract.plan import Plan, PlanInvalid
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import (
    AccountantMismatch,
    AdjacencyMismatch,
    ParameterInvalid,
)
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import (
    Adjacency,
    Event,
    EventCostsMore,
    Part,
    Sequential,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.support.plans import request_for
from tests.support.schemas import schema_of
from tests.support.stored_plans import read_priced


def wide(n_features: int = 3, n_classes: int = 2) -> Schema:
    return schema_of(
        *(
            {"name": f"f{i}", "type": "numeric", "lower": 0, "upper": 1}
            for i in range(n_features)
        ),
        classes=[f"c{i}" for i in range(n_classes)],
        label="y",
    )


def planned(
    slug: str = "mrf",
    schema: Schema | None = None,
    size: int | None = 10_000,
    **parameters: object,
) -> Plan:
    return plan(request(slug, parameters, Fraction(1), size), schema or wide())


def request(
    slug: str, parameters: dict[str, object], epsilon: Fraction, size: int | None
) -> PlanRequest:
    """A request on the first kind of account that the algorithm supports."""
    own = catalogue.algorithm(slug)
    accountant = own.accountants[0]
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    return request_for(
        slug, parameters, epsilon, size, accountant=accountant, delta=delta
    )


OF_PAPERS = ["rdt-jagannathan", "srt", "maxtree", "spe", "bms-rf"]
OF_TWO = ["sspe-1"]
OF_LABELS = ["sspe-2", "pte"]


def problems(call: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(ParameterInvalid) as refused:
        call()
    return [(error.place, error.problem) for error in refused.value.problems]


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_plan_settles_every_parameter(slug: str) -> None:
    settled = planned(slug)
    described = {algorithm["slug"]: algorithm for algorithm in catalogue.algorithms()}[
        slug
    ]

    assert list(settled.parameters) == [
        parameter["name"] for parameter in described["parameters"]
    ]
    assert all(isinstance(value, int | str) for value in settled.parameters.values())
    assert settled.n_trees == settled.parameters["n_estimators"]
    assert settled.warnings == ()


def test_requested_values_are_settled_unchanged() -> None:
    settled = planned(
        n_estimators=5,
        max_depth=3,
        n_bins=16,
        assignment="sharded",
        structure_share=Decimal("0.25"),
    )

    assert settled.parameters == {
        "n_estimators": 5,
        "max_depth": 3,
        "n_bins": 16,
        "assignment": "sharded",
        "structure_share": "0.25",
        "selection": "joint",
        "feature_share": "0.5",
        "utility": "gini",
        "leaf": "counts",
        "se": "none",
        "structure_rows": "0.5",
        "exploration": "0",
    }


@pytest.mark.parametrize("share", ["0.25", 0.25, Decimal("0.25"), "25e-2"])
def test_exact_number_may_come_as_text_or_as_a_json_number(share: object) -> None:
    assert planned(structure_share=share).parameters["structure_share"] == "0.25"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("n_estimators", 0, "too-small"),
        ("n_estimators", forest_limits.MAX_TREES + 1, "too-large"),
        ("n_estimators", "8", "not-an-integer"),
        ("n_estimators", True, "not-an-integer"),
        ("n_estimators", 8.0, "not-an-integer"),
        ("max_depth", -1, "too-small"),
        ("max_depth", forest_limits.MAX_DEPTH + 1, "too-large"),
        ("n_bins", 1, "too-small"),
        ("n_bins", 256, "too-large"),
        ("structure_share", 0, "too-small"),
        ("structure_share", 1, "too-large"),
        ("structure_share", "half", "not-a-number"),
        ("structure_share", float("nan"), "not-a-number"),
        ("structure_share", True, "not-a-number"),
        ("structure_share", [], "not-a-number"),
        ("structure_share", Decimal("0.1234567890123456"), "too-many-digits"),
        ("assignment", "random", "unknown-choice"),
        ("assignment", None, "unknown-choice"),
        ("utility", "entropy", "unknown-choice"),
    ],
)
def test_value_outside_its_rule_is_named_by_place_and_slug(
    name: str, value: object, problem: str
) -> None:
    assert problems(lambda: planned(**{name: value})) == [((name,), problem)]


def test_every_broken_rule_is_reported_at_once_and_no_name_of_the_caller() -> None:
    result = problems(lambda: planned(n_estimators=0, max_depth="deep", secret_name=1))

    assert result == [
        (("parameters",), "unknown-field"),
        (("n_estimators",), "too-small"),
        (("max_depth",), "not-an-integer"),
    ]


def test_unknown_algorithm() -> None:
    assert problems(lambda: planned("breiman")) == [(("algorithm",), "unknown")]


def test_parameters_of_one_mechanism_are_unknown_to_another() -> None:
    assert problems(lambda: planned("rdt-ta", structure_share="0.5")) == [
        (("parameters",), "unknown-field")
    ]


@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        (lambda: planned("breiman"), ("auto", *catalogue.BY_SLUG)),
        (lambda: planned(assignment="random"), ("sequential", "sharded")),
        (lambda: planned(max_depth=-1), (f"0 to {forest_limits.MAX_DEPTH}",)),
        (
            lambda: planned("rdt-ta", breiman=1),
            tuple(p.name for p in catalogue.algorithm("rdt-ta").parameters),
        ),
    ],
)
def test_a_rejected_value_lists_what_is_accepted(
    call: Callable[[], object], accepted: tuple[str, ...]
) -> None:
    with pytest.raises(ParameterInvalid) as rejected:
        call()
    (error,) = rejected.value.problems
    assert error.accepted == accepted


def test_without_a_public_size_the_plan_states_its_assumption() -> None:
    assert planned(size=None).warnings == (
        "No public size is declared, so the defaults are those for a small table; see public_size.",
    )
    assert planned(size=None, n_estimators=2, max_depth=2).warnings == ()


@pytest.mark.parametrize("slug", ["mrf", "rdt-ta"])
def test_rules_grow_with_size_and_epsilon_and_stay_in_range(slug: str) -> None:
    def cells(size: int, epsilon: str) -> int:
        settled = plan(PlanRequest(slug, {}, Terms(Fraction(epsilon)), size), wide())
        return settled.n_trees * 2 ** int(settled.parameters["max_depth"])

    sizes = [cells(size, "1") for size in (1, 100, 10_000, 10**6, 10**12)]
    budgets = [
        cells(10_000, epsilon) for epsilon in ("0.001", "0.1", "1", "10", "1000")
    ]
    assert sizes == sorted(sizes)
    assert budgets == sorted(budgets)
    assert sizes[-1] > sizes[0] > 0


def test_depth_beyond_what_the_schema_allows_is_lowered_and_said() -> None:
    schema = schema_of(
        {"name": "bit", "type": "integer", "lower": 0, "upper": 1},
        classes=["a", "b"],
        label="y",
    )
    settled = planned(schema=schema, max_depth=6)

    assert settled.parameters["max_depth"] == 1
    assert settled.warnings == (
        "max_depth was lowered to 1: deeper, the public schema allows no further split.",
    )


def test_forest_over_the_public_limit_is_refused_and_a_default_is_cut() -> None:
    schema = wide(n_classes=1_000)
    over = problems(lambda: planned("rdt-ta", schema, n_estimators=1_024, max_depth=12))
    settled = planned("rdt-ta", schema, size=10**12, n_estimators=1_024)

    assert over == [(("max_depth",), "too-large")]
    with pytest.raises(ParameterInvalid) as refused:
        planned("rdt-ta", schema, n_estimators=1_024, max_depth=12)
    (limit,) = [error.limit for error in refused.value.problems]
    assert limit is not None
    assert (
        planned("rdt-ta", schema, n_estimators=1_024, max_depth=limit).parameters[
            "max_depth"
        ]
        == limit
    )
    assert (
        problems(
            lambda: planned("rdt-ta", schema, n_estimators=1_024, max_depth=limit + 1)
        )
        == over
    )
    assert (
        1_024 * 1_000 << int(settled.parameters["max_depth"])
        <= forest_limits.MAX_TREE_LEAF_CELLS
    )
    assert (
        1_024 * 1_000 << int(settled.parameters["max_depth"]) + 1
        > forest_limits.MAX_TREE_LEAF_CELLS
    )


@pytest.mark.parametrize(("n_trees", "deepest"), [(1_024, 12), (65, 15), (64, 16)])
def test_a_forest_has_a_public_number_of_leaves(n_trees: int, deepest: int) -> None:
    def settled(depth: int) -> Plan:
        return planned("rdt-ta", wide(), n_estimators=n_trees, max_depth=depth)

    assert settled(deepest).parameters["max_depth"] == deepest
    assert n_trees << deepest <= forest_limits.MAX_LEAVES
    with pytest.raises(ParameterInvalid) as refused:
        settled(deepest + 1)
    (problem,) = refused.value.problems
    of_range = deepest == forest_limits.MAX_DEPTH
    assert problem.problem == "too-large"
    assert problem.limit == (None if of_range else deepest)


def test_tables_of_a_selection_stay_below_the_public_limit() -> None:
    schema = wide(n_features=2_000)
    settled = planned("mrf", schema, size=10**12, n_bins=255)
    over = problems(lambda: planned("mrf", schema, n_bins=255, max_depth=12))

    assert settled.parameters["max_depth"] == 6
    assert over == [(("max_depth",), "too-large")]
    assert (
        planned("rdt-ta", schema, n_bins=255, n_estimators=1, max_depth=12).parameters[
            "max_depth"
        ]
        == 12
    )


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
@pytest.mark.parametrize("assignment", ["sequential", "sharded"])
def test_plan_survives_json(slug: str, assignment: str) -> None:
    known = {parameter.name for parameter in catalogue.algorithm(slug).parameters}
    body = {"assignment": assignment} if "assignment" in known else {}
    settled = plan(request(slug, body, Fraction(1, 3), None), wide())

    assert read_priced(settled.to_json(), wide()) == settled


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_accounts_with_a_delta_are_used_up_and_survive_json(
    slug: str, accountant: str
) -> None:
    delta = Fraction(1, 10**6)
    settled = plan(
        request_for(slug, {}, Fraction(1), 10_000, accountant=accountant, delta=delta),
        wide(),
    )
    budget = Terms(Fraction(1), accountant, delta, settled.terms.adjacency).budget()

    assert budget.covers(settled.event)
    assert budget.loss(settled.event) > Fraction(99, 100) * budget.limit
    assert read_priced(settled.to_json(), wide()) == settled
    cheaper = {**settled.to_json(), "epsilon": "9/10"}
    with pytest.raises(PlanInvalid):
        read_priced(cheaper, wide())


@pytest.mark.parametrize(
    ("accountant", "delta", "problem"),
    [
        ("pure", Fraction(1, 10), (("delta",), "not-for-pure")),
        ("gdp", None, (("delta",), "required")),
        ("zcdp", Fraction(0), (("delta",), "not-positive")),
        ("gdp", Fraction(1), (("delta",), "not-below-one")),
    ],
)
def test_delta_is_required_exactly_on_accounts_with_a_delta(
    accountant: str, delta: Fraction | None, problem: tuple[str, str]
) -> None:
    plan_request = PlanRequest("mrf", {}, Terms(Fraction(1), accountant, delta))
    assert problems(lambda: plan(plan_request, wide())) == [problem]


def test_an_algorithm_without_a_bound_in_the_unit_is_refused_by_name() -> None:
    with pytest.raises(AccountantMismatch) as refused:
        plan(PlanRequest("nbrt", {}, Terms(Fraction(1))), wide())
    assert refused.value.accepted_by == ("gdp", "zcdp")


def _with(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda plan: {**plan, **changes}


@pytest.mark.parametrize(
    "break_it",
    [
        lambda plan: None,
        lambda plan: [],
        lambda plan: {name: value for name, value in plan.items() if name != "event"},
        _with(surprise=1),
        _with(algorithm="nbrt"),
        _with(epsilon="2/2"),
        _with(epsilon="1/0"),
        _with(epsilon=1),
        _with(epsilon="-1"),
        _with(epsilon="1/2"),
        _with(n_trees=4),
        _with(max_rows=2),
        _with(max_rows=1),
        _with(max_rows=0),
        _with(max_rows=-1),
        _with(max_rows="2"),
        _with(n_trees=True),
        _with(warnings=[1]),
        _with(event={"type": "unknown/1"}),
        _with(event={"type": "sequential/1", "parts": []}),
        lambda plan: {**plan, "parameters": {**plan["parameters"], "n_bins": 1}},
        lambda plan: {**plan, "parameters": {**plan["parameters"], "surprise": 1}},
        lambda plan: {
            **plan,
            "parameters": {
                n: v for n, v in plan["parameters"].items() if n != "max_depth"
            },
        },
        lambda plan: {
            **plan,
            "parameters": {**plan["parameters"], "structure_share": "0.50"},
        },
    ],
)
def test_plan_that_this_code_cannot_have_made_is_refused(
    break_it: Callable[[dict[str, Any]], object],
) -> None:
    with pytest.raises(PlanInvalid):
        read_priced(
            break_it(planned(n_estimators=3, structure_share="0.5").to_json()), wide()
        )


@pytest.mark.parametrize("pays", ["the first account", "the second account"])
@pytest.mark.parametrize(
    ("accountant", "max_rows"), [("pure", 1), ("pure", 3), ("gdp", 1)]
)
def test_an_event_above_the_amount_is_never_planned(
    monkeypatch: pytest.MonkeyPatch, pays: str, accountant: str, max_rows: int
) -> None:
    """A mechanism that prices twice what it was given is a bug that no plan survives,
    on either account.
    """
    own = catalogue.algorithm("sspe-1")
    name = "event" if pays == "the first account" else "structure_event"
    honest = getattr(own, name)

    def too_dear(parameters: Any, facts: Any) -> Event:
        return Sequential((Part(2, honest(parameters, facts)),))

    delta = None if accountant == "pure" else Fraction(1, 10**6)
    terms = {"accountant": accountant, "delta": delta, "max_rows": max_rows}
    asked = request_for("sspe-1", {"n_estimators": 3}, Fraction(1), 10_000, **terms)  # type: ignore[arg-type]
    stored = plan(asked, wide()).to_json()
    monkeypatch.setattr(
        type(own), name, lambda _, parameters, facts: too_dear(parameters, facts)
    )
    monkeypatch.setattr(
        forest_price, "fitted", lambda budget, event_at, *, start: event_at(start)
    )
    with pytest.raises(EventCostsMore):
        plan(asked, wide())
    twice = {"type": "sequential/1", "parts": [{"times": 2, "event": stored["event"]}]}
    with pytest.raises(PlanInvalid):
        read_priced({**stored, "event": twice}, wide())


def test_no_draw_has_less_noise_than_that_of_the_largest_scale() -> None:
    largest = noisy_counts.LARGEST_INVERSE_SCALE
    assert noisy_counts.draw_scale(largest, 1) == largest
    assert noisy_counts.draw_scale(5 * largest, 2) == largest
    assert noisy_counts.draw_scale(largest, 2) == largest / 2


def test_a_stored_plan_for_two_datasets_is_read_and_priced_as_a_whole() -> None:
    """The second account's event is compared with the parameters, as the first one's
    is.
    """
    schema, asked = wide(), {"n_estimators": 3, "max_depth": 2}
    settled = planned("sspe-1", schema, **asked)
    dearer = plan(request("sspe-1", asked, Fraction(2), 10_000), schema)
    assert settled.unlabelled is not None
    assert dearer.unlabelled is not None
    forest_price.require_priced(settled, schema)
    for other in (
        replace(settled, event=dearer.event),
        replace(
            settled,
            unlabelled=replace(settled.unlabelled, event=dearer.unlabelled.event),
        ),
        replace(settled, unlabelled=None),
        replace(planned("spe", schema, **asked), unlabelled=settled.unlabelled),
    ):
        with pytest.raises(PlanInvalid):
            forest_price.require_priced(other, schema)
    shallow = planned("sspe-1", schema, n_estimators=3, max_depth=1)
    assert shallow.unlabelled is not None
    with pytest.raises(PlanInvalid):
        forest_price.require_priced(
            replace(settled, unlabelled=shallow.unlabelled), schema
        )


@pytest.mark.parametrize("first", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
@pytest.mark.parametrize("second", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
def test_a_plan_warns_if_any_of_its_accounts_protects_labels(
    first: Adjacency, second: Adjacency
) -> None:
    terms, of_second = (
        replace(Terms(Fraction(1)), adjacency=adjacency)
        for adjacency in (first, second)
    )
    asked = PlanRequest("sspe-1", {}, terms, 10_000, unlabelled=of_second)
    warns = forest_price._TWO_STEPS in plan(asked, wide()).warnings
    assert warns is (Adjacency.LABEL in {first, second})


def test_a_second_dataset_is_required_by_those_that_learn_from_two_and_by_no_other() -> (
    None
):
    asked = request("sspe-1", {}, Fraction(1), 10_000)
    alone, beside = replace(asked, unlabelled=None), replace(asked, algorithm="spe")
    assert problems(lambda: plan(alone, wide())) == [(("unlabelled",), "required")]
    assert problems(lambda: plan(beside, wide())) == [
        (("unlabelled",), "not-for-this-algorithm")
    ]


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_an_amount_of_which_a_label_gets_less_than_one_step_is_too_small(
    slug: str, accountant: str
) -> None:
    """A label account gives half of the ε, or a quarter of the ρ or μ², to an algorithm
    that protects rows.
    """
    own = catalogue.algorithm(slug)
    if accountant not in own.accountants or own.adjacency is Adjacency.LABEL:
        return
    epsilon, delta = {
        "pure": (Fraction(1, 10**9), None),
        "zcdp": (Fraction("0.0000100"), Fraction(1, 10**12)),
        "gdp": (Fraction("0.0000060"), Fraction(1, 10**12)),
    }[accountant]
    terms = {"accountant": accountant, "delta": delta, "adjacency": Adjacency.LABEL}
    assert 0 < Terms(epsilon, accountant, delta).price() < 4
    assert problems(
        lambda: plan(request_for(slug, {}, epsilon, 10_000, **terms), wide())
    ) == [  # type: ignore[arg-type]
        (("epsilon",), "too-small")
    ]


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_a_stored_plan_without_a_later_parameter_has_its_default(slug: str) -> None:
    settled = planned(slug, n_estimators=3)
    stored = settled.to_json()
    parameters: dict[str, object] = dict(stored["parameters"])
    for parameter in catalogue.algorithm(slug).parameters:
        rest = {name: own for name, own in parameters.items() if name != parameter.name}
        older = {**stored, "parameters": rest}
        if parameters[parameter.name] == parameter.default:
            assert forest_price.read_plan(older) == settled
        else:
            # without a default, or of another value: the event costs something else, or
            # the plan is none
            with pytest.raises(PlanInvalid):
                read_priced(older, wide())


def test_a_stored_plan_states_parameters_as_they_are_settled() -> None:
    stored = planned("spe").to_json()
    parameters: dict[str, object] = dict(stored["parameters"])
    for other in ("1.50", 1.5, ["1.5"], "3"):
        with pytest.raises((PlanInvalid, ParameterInvalid)):
            forest_price.read_plan(
                {**stored, "parameters": {**parameters, "level_ratio": other}}
            )


def test_true_is_not_a_number_of_trees() -> None:
    stored = planned(n_estimators=1).to_json()

    assert forest_price.read_plan(stored).n_trees == 1
    with pytest.raises(PlanInvalid):
        forest_price.read_plan({**stored, "n_trees": True})


def test_algorithms_are_described_with_ranges_and_defaults() -> None:
    described = {algorithm["slug"]: algorithm for algorithm in catalogue.algorithms()}

    ours = ["auto", "rpf", "nbrt", "mrf", "rdt-mv", "rdt-ta", "rdt-pa"]
    assert list(described) == [*ours, *OF_PAPERS, *OF_TWO, *OF_LABELS]
    assert all(
        algorithm["source"] and algorithm["title"] for algorithm in described.values()
    )
    assert [algorithm["accountants"][0] for algorithm in described.values()] == [
        "pure",
        "pure",
        "gdp",
        *["pure"] * 12,
    ]
    assert described["nbrt"]["accountants"] == ["gdp", "zcdp"]
    assert all(
        set(each["accountants"]) == {"pure", "zcdp", "gdp"}
        for slug, each in described.items()
        if slug != "nbrt"
    )
    assert [
        slug for slug, each in described.items() if each["adjacency"] == "label"
    ] == OF_LABELS
    assert [slug for slug, each in described.items() if each["unlabelled"]] == OF_TWO
    assert described["auto"]["read_outs"] == []
    defaults = [
        algorithm["read_outs"][0]
        for algorithm in described.values()
        if algorithm["read_outs"]
    ]
    assert defaults == [
        "log",
        "calibrated",
        "log",
        "mv",
        "ta",
        "pa",
        "ta",
        "mv",
        *["log"] * 5,
        "ta",
    ]
    by_name = {
        parameter["name"]: parameter for parameter in described["mrf"]["parameters"]
    }
    assert by_name["n_estimators"] | {"description": ""} == {
        "name": "n_estimators",
        "type": "integer",
        "minimum": 1,
        "maximum": forest_limits.MAX_TREES,
        "default": None,
        "description": "",
    }
    assert by_name["structure_share"]["minimum"] == "0.01"
    assert by_name["structure_share"]["default"] is None
    assert by_name["selection"]["choices"] == ["joint", "two_stage"]
    assert all(parameter["description"].endswith(".") for parameter in by_name.values())


def test_more_teachers_than_trees_are_refused() -> None:
    over = problems(lambda: planned("pte", n_estimators=4, n_teachers=5))

    assert over == [(("n_teachers",), "too-large")]
    assert planned("pte", n_estimators=4).parameters["n_teachers"] == 4
    assert planned("pte", n_teachers=3).parameters["n_estimators"] == 53


def test_label_mechanisms_are_refused_where_rows_are_protected() -> None:
    for slug in OF_LABELS:
        with pytest.raises(AdjacencyMismatch):
            plan(PlanRequest(slug, {}, Terms(Fraction(1)), 10_000), wide())


def test_a_stored_plan_of_another_adjacency_than_its_event_is_none() -> None:
    stored = planned("sspe-2").to_json()
    assert stored["adjacency"] == "label"
    for broken in (
        {name: value for name, value in stored.items() if name != "adjacency"},
        {**stored, "adjacency": "x"},
    ):
        with pytest.raises(PlanInvalid):
            read_priced(broken, wide())


@pytest.mark.parametrize(
    ("slug", "usual"), [("mrf", "0.6"), ("maxtree", "0.5"), ("bms-rf", "0.6")]
)
def test_selections_get_more_where_they_are_cheap_and_counts_carry_normal_noise(
    slug: str, usual: str
) -> None:
    def share(accountant: str, **parameters: object) -> object:
        delta = None if accountant == "pure" else Fraction(1, 10**6)
        settled = plan(
            PlanRequest(
                slug, parameters, Terms(Fraction(1), accountant, delta), 10_000
            ),
            wide(),
        )
        return settled.parameters["structure_share"]

    assert share("pure") == usual
    assert share("zcdp") == share("gdp") == "0.85"
    assert share("gdp", structure_share="0.3") == "0.3"
    if slug != "maxtree":
        assert share("gdp", leaf="label") == usual


@pytest.mark.parametrize("slug", ["sspe-2", "pte"])
def test_few_labels_make_larger_leaves(slug: str) -> None:
    """The share is the analyst's guess: rules depend on it, prices do not."""
    every, few = planned(slug), planned(slug, labelled_share="0.2")

    assert few.parameters["min_rows"] == 5 * int(every.parameters["min_rows"])
    assert int(few.parameters["max_depth"]) < int(every.parameters["max_depth"])
    assert pure.loss(few.event, adjacency=few.terms.adjacency) == pure.loss(
        every.event, adjacency=every.terms.adjacency
    )


@pytest.mark.parametrize(
    ("idle", "value", "active"),
    [
        ("structure_rows", "0.3", {"se": "hash"}),
        ("feature_share", "0.3", {"selection": "two_stage"}),
        ("structure_share", "0.3", {"se": "none"}),
    ],
)
@pytest.mark.parametrize("slug", ["mrf", "bms-rf"])
def test_a_parameter_without_effect_causes_a_warning(
    slug: str, idle: str, value: str, active: dict[str, object]
) -> None:
    other, choice = next(iter(active.items()))
    against = (
        {"se": "none", "selection": "joint"} if choice != "none" else {"se": "hash"}
    )

    (warning,) = planned(slug, **{**against, idle: value}).warnings
    assert (
        warning == f"{idle} has no effect: it is used only where {other} is {choice}."
    )
    assert planned(slug, **active, **{idle: value}).warnings == ()
    assert planned(slug, **against).warnings == (), "a default is nobody's wish"
    assert (
        planned(slug, **{**against, idle: value}).event
        == planned(slug, **against).event
    )


def test_splits_that_are_all_random_are_said_to_waste_their_share() -> None:
    (warning,) = planned("mrf", exploration=1).warnings

    assert "exploration is 1" in warning
    assert planned("mrf", exploration="0.99").warnings == ()
    assert planned("mrf", exploration=1, max_depth=0).warnings == ()
