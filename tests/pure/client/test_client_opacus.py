"""A training with Opacus takes the steps that were paid, and no other. Opacus itself,
which takes 5.4 GB with PyTorch, is replaced by classes that count; see
``tests/server/test_adapters_opacus.py``.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grovekeeper_client.adapters import opacus
from grovekeeper_client.adapters.opacus import Plan, Training, UnpaidStep

PLAN = Plan(steps=2, noise_multiplier=4.0, sample_rate=1.0, expected_batch_size=10)


class Optimizer:
    """Counts the steps that draw noise."""

    accumulated_iterations = 1

    def __init__(self, _: object, **settings: Any) -> None:
        self.n_drawn = 0
        vars(self).update(settings)

    def add_noise(self) -> None:
        self.n_drawn += 1


class Accountant:
    """Its ε is the sample rate of its only part."""

    history: Sequence[tuple[float, float, int]] = ()

    def get_epsilon(self, _delta: float) -> float:
        ((_, sample_rate, _),) = self.history
        return sample_rate


class Service:
    """Admits every charge."""

    def __init__(self) -> None:
        self.n_charges = 0

    def charge_external(self, *_: object, **__: object) -> dict[str, str]:
        self.n_charges += 1
        return {"reservation_id": f"rs_{self.n_charges}"}


def _checked(*_: object, **__: object) -> None:
    """Every module is legal."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    names: dict[str, dict[str, Any]] = {
        "opacus": {
            "GradSampleModule": lambda _: SimpleNamespace(
                forbid_grad_accumulation=_checked
            )
        },
        "opacus.accountants": {"RDPAccountant": Accountant},
        "opacus.optimizers": {"DPOptimizer": Optimizer},
        "opacus.validators": {"ModuleValidator": SimpleNamespace(validate=_checked)},
    }
    for name, members in names.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return Service()


@pytest.fixture
def training(service: Service) -> Training:
    """Two steps on every row."""
    facts = {"account": {"unit": "mu_squared"}}
    dataset: Any = SimpleNamespace(id="ds_a", facts=facts, client=service)
    return opacus.Training(dataset, PLAN, None, None, description="incomes")


def _is_refused(step: Callable[[], None]) -> bool:
    with pytest.raises(UnpaidStep):
        step()
    return True


def test_steps_that_were_left_are_paid_in_no_later_run(
    service: Service, training: Training
) -> None:
    step = training.optimizer.add_noise
    assert _is_refused(step), "nothing was charged"
    with training:
        step()
    assert _is_refused(step), "the run has ended"
    with training:
        step()
        step()
        assert _is_refused(step)
    assert (service.n_charges, training.optimizer.n_drawn) == (2, 3)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("noise_multiplier", 0.5), ("max_grad_norm", 0.5), ("accumulated_iterations", 2)],
)
def test_a_step_with_other_noise_or_several_batches_is_not_paid(
    training: Training, setting: str, value: float
) -> None:
    with training:
        setattr(training.optimizer, setting, value)
        assert _is_refused(training.optimizer.add_noise)
    assert training.optimizer.n_drawn == 0


@pytest.mark.usefixtures("service")
def test_a_sample_costs_what_the_floats_draw() -> None:
    """A row is drawn where a float32, of 24 bits, is below the rate."""
    sampled = replace(PLAN, sample_rate=0.25, delta="1e-8")
    epsilon = opacus._loss(sampled, "rho")["epsilon"]
    assert Fraction(epsilon) >= Fraction(1, 4) + Fraction(1, 2**23)
