"""Charges a training with Opacus before its first batch, and ends it where what was
paid ends.

>>> with adapter.Training(census, plan, net, sgd, description="incomes") as training:
...     for features, labels in training.open(read_rows):
...         loss(training.module(features), labels).backward()
...         training.optimizer.step()
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, Unpack

from grovekeeper_client.adapters import rounding
from grovekeeper_client.adapters.protocol import ChargeOptions, Mechanism
from grovekeeper_client.adapters.rounding import Unpriced
from grovekeeper_client.amounts import Amount, to_text
from grovekeeper_client.datasets import Dataset

_DRAWN_BITS = 2.0**-23
"""A row is drawn where a float32 is below the sample rate: at most this more often."""


class UnpaidStep(RuntimeError):
    """A step was not paid for: one too many, or with other noise. None was drawn."""


@dataclass(frozen=True)
class Plan:
    """What fixes the price of a training. All of it is public.

    Attributes:
        steps: number of noisy steps.
        noise_multiplier: standard deviation of the noise by ``max_grad_norm``.
        sample_rate: probability with which a step draws each row.
        expected_batch_size: what gradients are divided by, from ``public_size``. Opacus
            itself takes the number of rows, which is private and would be released.
        max_grad_norm: norm to which the gradient of each row is clipped.
        delta: δ at which sampling is priced.
    """

    steps: int
    noise_multiplier: float
    sample_rate: float
    expected_batch_size: int
    max_grad_norm: float = 1.0
    delta: Amount | None = None


class Training:
    """A training that reads rows inside ``with`` alone, which charges it.

    Neighbours differ in one row added or removed: Poisson sampling, and the gradient of
    each row clipped. The Rényi curve of a sampled Gaussian (Mironov, Talwar and Zhang
    2019) is no ρ-zCDP. So with a ``delta`` the price is the (ε, δ) of Opacus's own
    ``RDPAccountant``, for ``zcdp`` accounts that set a part of δ aside, and for rows or
    units of one row. Without it, a sample rate of 1 (every row in every step) is priced
    exactly: μ² = steps/σ², ρ = μ²/2; the rest is ``Unpriced``. A batch of the loader is
    one step, also in the parts of a ``BatchMemoryManager``. Not covered: PyTorch's floats.

    Attributes:
        module: computes gradients of single rows.
        optimizer: clips, adds noise, and raises :class:`UnpaidStep`.
    """

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        module: Any,
        optimizer: Any,
        *,
        description: str,
        **options: Unpack[ChargeOptions],
    ) -> None:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
        from opacus.validators import ModuleValidator

        self._plan = plan
        self._left = 0
        unit = dataset.facts["account"]["unit"]
        declared = {"adjacency": "add_remove", **_loss(plan, unit)}
        stated = {"description": description, "per": "row", "declared": declared}
        self._mechanism = Mechanism(dataset, stated | options, self._loader)
        ModuleValidator.validate(module, strict=True)
        self.module = GradSampleModule(module)
        self.module.forbid_grad_accumulation()
        self.optimizer = DPOptimizer(
            optimizer,
            noise_multiplier=plan.noise_multiplier,
            max_grad_norm=plan.max_grad_norm,
            expected_batch_size=plan.expected_batch_size,
        )
        self._add_noise = self.optimizer.add_noise
        self.optimizer.add_noise = self._add_paid_noise
        self.quote = self._mechanism.quote

    def __enter__(self) -> Self:
        self._paid = self._mechanism.charge()
        self._left = self._plan.steps
        return self

    def __exit__(self, *error: object) -> None:
        self._left = 0

    def open(self, open_rows: Callable[[], Any]) -> Any:
        """Opens the PRIVATE rows, a ``torch.utils.data.Dataset``, once, and returns a
        loader of as many batches as steps are paid.
        """
        return self._paid.run(open_rows)

    def _loader(self, rows: Any) -> Any:
        from opacus.data_loader import DPDataLoader

        loader = DPDataLoader(rows, sample_rate=self._plan.sample_rate)
        loader.batch_sampler.steps = self._plan.steps
        return loader

    def _add_paid_noise(self) -> None:
        optimizer, plan = self.optimizer, self._plan
        now = optimizer.noise_multiplier, optimizer.max_grad_norm
        is_paid = now == (plan.noise_multiplier, plan.max_grad_norm)
        if not (self._left and is_paid and optimizer.accumulated_iterations == 1):
            raise UnpaidStep(f"{self._left} paid steps are left, of {plan}")
        self._left -= 1
        self._add_noise()


def _loss(plan: Plan, unit: str) -> dict[str, str]:
    if plan.delta is not None:
        return _approximate(plan, to_text(plan.delta))
    mu_squared = plan.steps / Fraction(plan.noise_multiplier) ** 2
    if plan.sample_rate == 1 and unit == "rho":
        return {"rho": rounding.upward(mu_squared / 2)}
    if plan.sample_rate == 1 and unit == "mu_squared":
        return {"mu": rounding.upward(rounding.root_up(mu_squared))}
    raise Unpriced("sampled steps have no ρ and no μ: give the plan a delta")


def _approximate(plan: Plan, delta: str) -> dict[str, str]:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    rate = min(1.0, plan.sample_rate + _DRAWN_BITS)
    accountant.history = [(plan.noise_multiplier, rate, plan.steps)]
    epsilon = accountant.get_epsilon(float(delta)) * rounding.FLOAT_SLACK
    return {"epsilon": rounding.upward(epsilon), "delta": delta}
