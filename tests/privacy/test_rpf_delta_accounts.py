"""T1 on the reweighted forest on accounts in ρ or μ²: its exact law against the whole
curve of its charge.

Paths end after different numbers of choices, and a leaf gets the part of the budget
that its path did not spend: all paths cost equal ε, but different ρ or μ². The charge
is that of the most expensive path.
"""

from fractions import Fraction

import pytest

from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.privacy.enumeration import TOLERANCE
from tests.privacy.test_delta_accounts import DELTA, share_of_curve
from tests.privacy.test_rpf_exact_loss import SIXTEEN_ROWS, Case


class OnDelta(Case):
    """A case on an account with a δ."""

    def __init__(
        self,
        n_values: int,
        epsilon: str,
        accountant: str,
        *,
        n_rows: int,
        **parameters: object,
    ) -> None:
        shape = {
            name: parameters.pop(name)
            for name in ("window", "units", "n_features")
            if name in parameters
        }
        super().__init__(n_values, epsilon, n_rows=n_rows, **shape, **parameters)  # type: ignore[arg-type]
        request = PlanRequest(
            "rpf",
            {"n_estimators": 1, **parameters},
            Terms(Fraction(epsilon), accountant, DELTA),
            1_000,
        )
        self.plan = plan(request, self._schema)

    @property
    def charge(self) -> Fraction:
        return accountants.by_name(self.plan.terms.accountant).loss(
            self.plan.event, adjacency=Adjacency.ADD_REMOVE_ONE
        )

    def share(self, charge: Fraction | None = None) -> float:
        """The largest share of the charge, or of another curve, that any pair, order
        and point of the curve reaches.
        """
        pairs = (
            (self.law(rows), self.law(rows[:gone] + rows[gone + 1 :]))
            for rows in self.datasets()
            for gone in range(len(rows))
        )
        return share_of_curve(
            pairs, charge or self.charge, accountant=self.plan.terms.accountant
        )


CASES = [
    pytest.param(2, 3, {"max_depth": 0}, 0.3, id="one-leaf"),
    pytest.param(3, 2, {"max_depth": 2, "splits": "node"}, 0.1, id="stops"),
    pytest.param(3, 1, {"max_depth": 2, "at_once": 1}, 0.1, id="stops-by-level"),
    pytest.param(
        4,
        2,
        {"max_depth": 3, "splits": "node", "window": (0, 0), "structure_share": "0.99"},
        0.1,
        id="choices-only",
    ),
    pytest.param(
        2,
        2,
        {
            "n_estimators": 2,
            "max_depth": 1,
            "structure_share": "0.01",
            "units": SIXTEEN_ROWS,
        },
        0.1,
        id="two-trees",
        marks=pytest.mark.long,
    ),
]


@pytest.mark.covering("n_values, n_rows, parameters", "accountant")
@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
@pytest.mark.parametrize(("n_values", "n_rows", "parameters", "reached"), CASES)
def test_forest_stays_below_the_curve_of_its_charge(
    accountant: str, n_values: int, n_rows: int, parameters: dict, reached: float
) -> None:
    assert (
        reached
        < OnDelta(n_values, "3", accountant, n_rows=n_rows, **parameters).share()
        <= 1.0 + TOLERANCE
    )


@pytest.mark.parametrize("accountant", ["zcdp", "gdp"])
def test_half_of_the_charge_would_be_too_little(accountant: str) -> None:
    """The control: without it, the cases above could pass with too little noise."""
    leaf = OnDelta(2, "3", accountant, n_rows=3, max_depth=0)

    assert leaf.share(leaf.charge / 2) > 1.0
