"""``auto``: the algorithm that it chooses, and that the choice depends on public
numbers alone.
"""

from contextlib import suppress
from fractions import Fraction

import pytest

from grovekeeper_forests import catalogue, expected_accuracy
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.schema import Label
from grovekeeper_forests.errors import GrovekeeperError, ParameterInvalid
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.support.schemas import schema_of

DELTA = Fraction(1, 10**6)
SCHEMA = schema_of(
    *({"name": f"f{i}", "type": "numeric", "lower": 0, "upper": 1} for i in range(4)),
    classes=["a", "b", "c"],
    label="y",
)


def planned(
    algorithm: str,
    accountant: str,
    *,
    epsilon: str = "1",
    size: int | None = 5_000,
    **parameters: object,
) -> Plan:
    delta = None if accountant == "pure" else DELTA
    return plan(
        PlanRequest(
            algorithm, parameters, Terms(Fraction(epsilon), accountant, delta), size
        ),
        SCHEMA,
    )


@pytest.mark.parametrize(
    ("accountant", "slug"), [("pure", "rpf"), ("zcdp", "nbrt"), ("gdp", "nbrt")]
)
def test_auto_plans_what_the_chosen_algorithm_plans(accountant: str, slug: str) -> None:
    assert planned("auto", accountant) == planned(slug, accountant)


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
def test_a_hopeless_budget_plans_class_proportions_with_a_warning(
    accountant: str,
) -> None:
    epsilon = "0.05" if accountant == "pure" else "0.1"
    settled = planned("auto", accountant, epsilon=epsilon, size=200)

    assert settled.parameters["max_depth"] == 0
    assert settled.n_trees == 1
    assert any("noisy class proportions" in warning for warning in settled.warnings)
    assert not any(
        "class proportions" in warning
        for warning in planned("auto", accountant).warnings
    )


def test_a_budget_is_hopeless_below_a_threshold_of_rows_times_mu() -> None:
    mu = 0.2367  # the μ of ε = 1 at δ = 10⁻⁶
    line = round(catalogue.MIN_SIZE_TIMES_MU / mu)
    assert planned("auto", "gdp", size=line - 2).parameters["max_depth"] == 0
    assert planned("auto", "gdp", size=line + 2).parameters["max_depth"] >= 2


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL])
@pytest.mark.parametrize("accountant", ["pure", "gdp"])
def test_auto_takes_no_parameters_and_names_the_algorithms_of_the_account(
    accountant: str, adjacency: Adjacency
) -> None:
    delta = None if accountant == "pure" else DELTA
    terms = Terms(Fraction(1), accountant, delta, adjacency)
    with pytest.raises(ParameterInvalid) as refused:
        plan(PlanRequest("auto", {"max_depth": 3}, terms, 5_000), SCHEMA)
    [error] = refused.value.problems
    assert (error.place, error.problem) == (("parameters",), "not-with-auto")
    usable = []
    for slug in catalogue.BY_SLUG:
        with suppress(GrovekeeperError):
            plan(PlanRequest(slug, {}, terms, 5_000), SCHEMA)
            usable.append(slug)
    assert list(error.accepted) == usable
    assert set(usable) < catalogue.BY_SLUG.keys()


def test_without_a_public_size_auto_assumes_a_small_table() -> None:
    settled = planned("auto", "gdp", size=None)
    assert settled.algorithm == "nbrt"
    assert any("public size" in warning for warning in settled.warnings)


def test_a_quote_says_why_auto_chose_an_algorithm() -> None:
    best = "the most accurate algorithm of this service on"
    assert [catalogue.AUTO.reason(slug) for slug in ("rpf", "nbrt")] == [
        f"auto chose rpf, {best} pure accounts (δ = 0)",
        f"auto chose nbrt, {best} accounts with a δ",
    ]


@pytest.mark.parametrize(
    ("slug", "accountant", "of_classes"),
    [
        ("rpf", "pure", {"calibration"}),
        ("nbrt", "gdp", {"start"}),
        ("mrf", "pure", set()),
    ],
)
def test_parameters_of_classes_alone_are_not_shown_beside_a_number(
    slug: str, accountant: str, of_classes: set[str]
) -> None:
    settled = planned(slug, accountant)
    number = Label("days", bounds=(0.0, 9.0))
    assert catalogue.shown_parameters(settled, SCHEMA.label) == settled.parameters
    assert catalogue.shown_parameters(settled, number) == {
        name: value
        for name, value in settled.parameters.items()
        if name not in of_classes
    }
    assert of_classes <= settled.parameters.keys()


def test_a_model_of_no_known_label_offers_every_read_out() -> None:
    offered = catalogue.read_outs("rdt-mv")
    assert offered == catalogue.read_outs("rdt-mv", SCHEMA.label)
    assert offered == catalogue.algorithm("rdt-mv").read_outs
    number = Label("days", bounds=(0.0, 9.0))
    assert catalogue.read_outs("rpf", number) == ("number",)


def test_every_entry_has_what_its_algorithm_says_of_itself() -> None:
    listed = (catalogue.AUTO, *catalogue.BY_SLUG.values())
    n_read_outs = set[int]()
    for entry, algorithm in zip(catalogue.algorithms(), listed, strict=True):
        accuracy = expected_accuracy.at_epsilon_one(algorithm.slug)
        assert entry["about"] == {**vars(algorithm.about), "accuracy": accuracy}
        assert entry["read_outs"] == list(algorithm.read_outs)
        n_read_outs.add(len(algorithm.read_outs))
    assert max(n_read_outs) > 1
