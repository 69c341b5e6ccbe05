"""States, quotes, charges and runs a mechanism outside the service, in this order.

**Privacy.** The service believes what is stated here and cannot check it: the loss,
the rows that are read, and that nobody read them before the charge
(docs/proofs/external.md). A charge is final. No reservation is open in between, so
nothing is there to be voided: whatever can fail without rows is done before the charge,
and a charge whose run opened no row yet pays for that run later.

All losses are for *adding or removing* one row or unit, or for a changed label on
accounts that protect labels: a loss for replacing one row implies none of adding one,
so it is refused.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypedDict, TypeVar

from grovekeeper_client.datasets import Dataset
from grovekeeper_client.rows import plain
from grovekeeper_common.json_types import JsonMapping, JsonObject

T = TypeVar("T")


class ChargeOptions(TypedDict, total=False):
    """What is stated beside a loss.

    Attributes:
        scope: the cells that the mechanism reads, such as ``{"shard": [0, 1]}``;
            default all.
    """

    scope: JsonMapping


class AlreadyRun(RuntimeError):
    """A charge pays for one run, which has begun. A new run needs a new charge."""


class PaidRun(Generic[T]):
    """The one run that a charge pays for. It cannot be pickled, so no other process runs
    it again.

    Attributes:
        reservation: the charge, as ``GET /ledger/{dataset}/reservations/{id}`` shows it.
    """

    def __init__(self, reservation: JsonObject, mechanism: Callable[[Any], T]) -> None:
        self.reservation = reservation
        self._mechanism = mechanism
        self._unused = Lock()

    def run(self, open_rows: Callable[[], Any]) -> T:
        """Opens the rows and runs the mechanism on them, once.

        Args:
            open_rows: returns the PRIVATE rows. From its call on, the charge is used up,
                whatever fails.

        Raises:
            AlreadyRun: the run has begun before; no row is read.
        """
        if not self._unused.acquire(blocking=False):
            raise AlreadyRun(self.reservation["reservation_id"])
        return self._mechanism(open_rows())


class Mechanism(Generic[T]):
    """A mechanism whose loss is stated, and which has read no row.

    Args:
        dataset: whose account pays; the key needs the role ``attester`` there.
        stated: the body of ``POST /ledger/{dataset}/quotes``.
        function: the mechanism, a function of what ``open_rows`` returns.
    """

    def __init__(
        self, dataset: Dataset, stated: JsonObject, function: Callable[[Any], T]
    ) -> None:
        self.stated = plain(stated)
        self._dataset = dataset
        self._function = function

    def quote(self) -> JsonObject:
        """The price, whether it fits, and what is left. Costs nothing."""
        return self._dataset.client.quote_external(self._dataset.id, self.stated)

    def charge(self, *, idempotency_key: str | None = None) -> PaidRun[T]:
        """Charges the account for good, and returns the run that this pays for.

        Args:
            idempotency_key: that of ``Unreachable``, to continue the request whose
                answer was lost; never that of an earlier run.

        Raises:
            Refused: the budget does not cover the price; nothing was charged.
            ApiProblem: the account takes no such statement; nothing was charged.
            Unreachable: no answer arrived, so do not run the mechanism.
        """
        reservation = self._dataset.client.charge_external(
            self._dataset.id, self.stated, idempotency_key=idempotency_key
        )
        return PaidRun(reservation, self._function)

    def run(self, open_rows: Callable[[], Any]) -> T:
        """Charges, then opens the rows and runs; see :meth:`PaidRun.run`."""
        return self.charge().run(open_rows)


def has_unit(dataset: Dataset) -> bool:
    """Whether the account protects units of a column, not single rows."""
    return dataset.facts["privacy_unit"]["column"] is not None
