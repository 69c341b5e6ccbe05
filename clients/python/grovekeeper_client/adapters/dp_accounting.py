"""Charges what events of dp_accounting describe, before it reads a row.

>>> noisy = adapter.mechanism(census, GaussianDpEvent(20), noisy_sum, **statement)
>>> total = noisy.run(lambda: read_ages("census.csv"))
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from fractions import Fraction
from typing import Any, Literal, Required, Unpack

from grovekeeper_client.adapters import rounding
from grovekeeper_client.adapters.protocol import ChargeOptions, Mechanism, T
from grovekeeper_client.adapters.rounding import Unpriced
from grovekeeper_client.amounts import Amount, to_text
from grovekeeper_client.datasets import Dataset


class EventOptions(ChargeOptions):
    """What an attester states beside an event.

    Attributes:
        description: what is released; public, for good.
        per: whose change the sensitivities, and the sampling, are about.
    """

    description: Required[str]
    per: Required[Literal["row", "unit"]]


@dataclass(frozen=True)
class _Loss:
    """Upper bounds in each unit, ``None`` where none is known."""

    epsilon: Fraction | None
    rho: Fraction | None
    mu_squared: Fraction | None

    def __post_init__(self) -> None:
        if any(bound is not None and bound < 0 for bound in astuple(self)):
            raise Unpriced("a part of the event has a loss below zero")


_NOTHING = _Loss(Fraction(0), Fraction(0), Fraction(0))


def mechanism(
    dataset: Dataset,
    event: Any,
    function: Callable[[Any], T],
    *,
    adjacency: str,
    delta: Amount | None = None,
    **options: Unpack[EventOptions],
) -> Mechanism[T]:
    """States an event at a loss that the dataset's account counts.

    Without ``delta``, losses of the parts add up, also of adaptive ones.

    * Gaussian of noise multiplier σ: ρ = 1/(2σ²), μ = 1/σ (Bun and Steinke 2016,
      Proposition 1.6; Dong, Roth and Su 2022, Theorem 2.7, Corollary 3.3); zCDP: ρ;
    * Laplace of noise multiplier b: ε = 1/b; discrete Laplace: ε = noise parameter by
      sensitivity; ρ = ε·tanh(ε/2) and μ² = ε²·π/2 of both (docs/proofs/external.md);
    * Poisson sampling, with probability q, of what has an ε: log(1 + q(e^ε − 1)) (Balle,
      Barthe and Gaboardi 2018, Theorem 8), for ``add_remove`` alone.

    With ``delta``, the loss is the (ε, δ) of the library's RDP accountant, for ``zcdp``
    accounts that set a part of δ aside. A sampled Gaussian has no other price.

    Args:
        dataset: whose account pays.
        event: a ``DpEvent``; its neighbours differ as ``adjacency`` says.
        function: what the event describes, a function of the opened rows.
        adjacency: ``add_remove`` or ``label``, of the sensitivities; events name none.
        delta: δ at which the event is priced.
        options: see :class:`EventOptions`.

    Raises:
        Unpriced: no sound price is known; the text names the event and what would do.
    """
    if delta is None:
        loss = _exact(event, dataset.facts["account"]["unit"], adjacency)
    elif adjacency == "add_remove":
        loss = _approximate(event, to_text(delta))
    else:
        raise Unpriced(f"(ε, δ) is for add_remove here, not for {adjacency}")
    stated = {**options, "declared": {"adjacency": adjacency, **loss}}
    return Mechanism(dataset, stated, function)


def _exact(event: Any, unit: str, adjacency: str) -> dict[str, str]:
    bound = getattr(_loss(event, adjacency), unit)
    if not bound:  # unknown, or zero
        raise Unpriced(f"{event} has no bound in {unit} here: pass delta")
    if unit == "mu_squared":
        return {"mu": rounding.upward(rounding.root_up(bound))}
    return {unit: rounding.upward(bound)}


def _approximate(event: Any, delta: str) -> dict[str, str]:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(None, NeighboringRelation.ADD_OR_REMOVE_ONE)
    if not accountant.supports(event):
        raise Unpriced(f"the RDP accountant of dp_accounting does not support {event}")
    epsilon = accountant.compose(event).get_epsilon(float(delta))
    return {"epsilon": rounding.upward(epsilon * rounding.FLOAT_SLACK), "delta": delta}


def _loss(event: Any, adjacency: str) -> _Loss:
    """The loss of an event, by the theorems that :func:`mechanism` names."""
    match type(event).__name__:
        case "NoOpDpEvent":
            return _NOTHING
        case "GaussianDpEvent" if event.noise_multiplier > 0:
            mu_squared = 1 / Fraction(event.noise_multiplier) ** 2
            return _Loss(None, mu_squared / 2, mu_squared)
        case "LaplaceDpEvent" if event.noise_multiplier > 0:
            return _of_pure(1 / Fraction(event.noise_multiplier))
        case "DiscreteLaplaceDpEvent":
            return _of_pure(Fraction(event.noise_parameter) * event.sensitivity)
        case "ZCDpEvent" if event.xi == 0:
            return _Loss(None, Fraction(event.rho), None)
        case "SelfComposedDpEvent":
            return _sum([_loss(event.event, adjacency)], times=event.count)
        case "ComposedDpEvent":
            return _sum([_loss(part, adjacency) for part in event.events])
        case "PoissonSampledDpEvent" if adjacency == "add_remove":
            pure = _loss(event.event, adjacency).epsilon
            share = event.sampling_probability
            if pure is not None:
                return _of_pure(rounding.amplified(pure, Fraction(share)))
    raise Unpriced(
        f"no ε, ρ or μ is known for {event}: pass delta, on a zcdp account with a part of δ set aside"
    )


def _of_pure(epsilon: Fraction) -> _Loss:
    return _Loss(
        epsilon, rounding.rho_of_pure(epsilon), rounding.mu_squared_of_pure(epsilon)
    )


def _sum(losses: list[_Loss], *, times: int = 1) -> _Loss:
    columns = zip(*(astuple(loss) for loss in [_NOTHING, *losses]), strict=True)
    return _Loss(*(None if None in each else times * sum(each) for each in columns))
