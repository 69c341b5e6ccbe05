"""Calls a Grovekeeper service: trains private forests, asks for prices and balances,
and predicts.

>>> from grovekeeper_client import Grovekeeper
>>> census = Grovekeeper().dataset("census")
>>> model = census.train("rpf", epsilon="0.5").wait()
>>> model.predict(frame)

Names are loaded at their first use, so that the command line starts without httpx and
without scikit-learn.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grovekeeper_client.datasets import Balance, Dataset, Entry
    from grovekeeper_client.errors import (
        ApiProblem,
        FieldError,
        JobFailed,
        JobUnfinished,
        NoKey,
        Refused,
        Unreachable,
    )
    from grovekeeper_client.estimator import (
        LeakWarning,
        PrivateForestClassifier,
        PrivateForestRegressor,
    )
    from grovekeeper_client.jobs import Job
    from grovekeeper_client.models import Evaluation, Model, Quote
    from grovekeeper_client.service import Grovekeeper
    from grovekeeper_client.spending import SpendingLimit
    from grovekeeper_client.statistics import Statistics, Table

__all__ = [
    "ApiProblem",
    "Balance",
    "Dataset",
    "Entry",
    "Evaluation",
    "FieldError",
    "Grovekeeper",
    "Job",
    "JobFailed",
    "JobUnfinished",
    "LeakWarning",
    "Model",
    "NoKey",
    "PrivateForestClassifier",
    "PrivateForestRegressor",
    "Quote",
    "Refused",
    "SpendingLimit",
    "Statistics",
    "Table",
    "Unreachable",
]

_MODULES = {
    "datasets": ("Balance", "Dataset", "Entry"),
    "errors": (
        "ApiProblem",
        "FieldError",
        "JobFailed",
        "JobUnfinished",
        "NoKey",
        "Refused",
        "Unreachable",
    ),
    "estimator": (
        "LeakWarning",
        "PrivateForestClassifier",
        "PrivateForestRegressor",
    ),
    "jobs": ("Job",),
    "models": ("Evaluation", "Model", "Quote"),
    "service": ("Grovekeeper",),
    "spending": ("SpendingLimit",),
    "statistics": ("Statistics", "Table"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
