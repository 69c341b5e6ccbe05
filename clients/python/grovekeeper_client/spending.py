"""Adds up what an estimator and its clones spend, so that a loop or a search ends at a
limit.
"""

import secrets
import threading
from decimal import Decimal
from weakref import WeakKeyDictionary, WeakValueDictionary


class SpendingLimit(RuntimeError):
    """An estimator and its clones would spend more than ``max_epsilon``. Nothing was
    charged for the refused fit.

    Args:
        spent: ε of all accepted fits.
        requested: ε of the refused fit.
        max_epsilon: the limit.
    """

    def __init__(
        self, spent: Decimal, requested: Decimal, max_epsilon: Decimal
    ) -> None:
        super().__init__(spent, requested, max_epsilon)
        self.spent = spent
        self.requested = requested
        self.max_epsilon = max_epsilon

    def __str__(self) -> str:
        return (
            f"ε = {self.requested} requested, and this estimator and its clones spent {self.spent} of "
            f"max_epsilon = {self.max_epsilon}"
        )


class UnsharedSpending(RuntimeError):
    """An estimator came from another process, where its clones may have spent budget."""

    def __str__(self) -> str:
        return (
            "an estimator from another process cannot know what its clones spent: run searches with n_jobs=1, or make "
            "an estimator from get_params()"
        )


class Meter:
    """The sum of ε of the fits of an estimator and its clones in this process.

    Attributes:
        name: random, so that a pickle names the meter of its process and no other.
    """

    def __init__(self) -> None:
        self.name = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._spent = Decimal(0)

    def add(self, epsilon: Decimal, *, limit: Decimal) -> None:
        """Counts a fit before it is requested.

        Raises:
            SpendingLimit: the sum would exceed the limit; nothing is counted.
        """
        with self._lock:
            if self._spent + epsilon > limit:
                raise SpendingLimit(self._spent, epsilon, limit)
            self._spent += epsilon

    def give_back(self, epsilon: Decimal) -> None:
        """Takes back a fit that the service refused."""
        with self._lock:
            self._spent -= epsilon


_LOCK = threading.Lock()
_METERS: "WeakKeyDictionary[object, Meter | None]" = WeakKeyDictionary()
_BY_NAME: "WeakValueDictionary[str, Meter]" = WeakValueDictionary()


def meter_of(estimator: object) -> Meter:
    """The meter of an estimator, made at the first use.

    Raises:
        UnsharedSpending: the estimator was pickled in another process.
    """
    with _LOCK:
        meter = _METERS.setdefault(estimator, Meter())
        if meter is None:
            raise UnsharedSpending
        return meter


def share(original: object, clone: object) -> None:
    """Lets a clone count its fits on the meter of the original; of an original without
    a meter, it has none.
    """
    with _LOCK:
        _METERS[clone] = _METERS.setdefault(original, Meter())


def name_of_meter(estimator: object) -> str | None:
    """A name by which a pickle of the estimator finds the meter again in this process,
    and in no other.
    """
    with _LOCK:
        meter = _METERS.setdefault(estimator, Meter())
        if meter is None:
            return None
        _BY_NAME[meter.name] = meter
        return meter.name


def restore(estimator: object, name: str | None) -> None:
    """Gives an estimator that was read from a pickle its meter, or none if the pickle
    is of another process.
    """
    with _LOCK:
        _METERS[estimator] = None if name is None else _BY_NAME.get(name)
