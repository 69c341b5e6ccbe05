"""Counts, in this process, what jobs on the same rows cost together, and refuses what
exceeds a limit.

It is no ledger: it ends with the process, and another process counts for itself. A
lifetime budget needs the service.
"""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, NoReturn, Self

from grovekeeper_forests import amounts
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.errors import GrovekeeperError, ParameterInvalid
from grovekeeper_forests.privacy import accountants, receipts
from grovekeeper_forests.privacy.accountants import Amount, gdp, pure
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency, Event

_ONE_PROCESS = "an account counts in the process that made it; jobs in several processes need the service"


@dataclass(eq=False)
class LimitExceeded(GrovekeeperError):
    """A job costs more than is left. Amounts are exact decimal text in the unit of the
    account.
    """

    unit: str
    requested: str
    remaining: str

    def __str__(self) -> str:
        symbol = amounts.SYMBOLS[self.unit]
        return f"{self.requested} {symbol} requested, {self.remaining} {symbol} left of the limit of this account"


@dataclass(frozen=True)
class Receipt:
    """What one job was charged for.

    Attributes:
        event: the releases and their noise, as the ledger of the service states them.
        amount: in the unit of the account, as exact decimal text.
        text: the event in words.
    """

    event: Event
    amount: str
    text: str


def terms_of(epsilon: object, delta: object = None) -> Terms:
    """What a job of (ε, δ) pays for one row: in ε without a δ, else in μ² (Gaussian
    differential privacy).

    Args:
        epsilon: above zero. Text, ``Decimal`` and ``Fraction`` are exact; a float means
            its shortest decimal.
        delta: above zero and below 1, or ``None``.

    Raises:
        ParameterInvalid: not such a number, or less than one step of the unit.
    """
    accountant = pure.NAME if delta is None else gdp.NAME
    terms = Terms(
        _amount("epsilon", epsilon),
        accountant,
        None if delta is None else _amount("delta", delta),
    )
    terms.price()
    return terms


def _amount(name: str, value: Any) -> Fraction:
    if isinstance(value, Fraction):
        return value
    try:
        return amounts.parse(_as_text(value), above_zero=True)
    except amounts.NotAnAmount as refusal:
        accepted = [refusal.accepted]
        raise ParameterInvalid.named(name, refusal.problem, accepted=accepted) from None


def _as_text(value: Any) -> Any:
    """A number of Python or NumPy as its shortest text; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return str(int(value)) if isinstance(value, Integral) else repr(float(value))


class InProcessAccount:
    """A limit for all jobs on the same rows in this process.

    Estimators that share an account, their clones and their fits spend from it
    together. A copy of it is the same account, and it charges in the process that made
    it alone: others would spend the limit again.

    Args:
        epsilon: the limit ε.
        delta: δ at which the limit is stated; ``None``: a limit for jobs without a δ.

    Raises:
        ParameterInvalid: see :func:`terms_of`.
    """

    def __init__(self, epsilon: object, delta: object = None) -> None:
        self._terms = terms_of(epsilon, delta)
        self._limit = accountants.by_name(self._terms.accountant).cap(
            self._terms.epsilon, self._terms.delta
        )
        self._process_id = os.getpid()
        self._spent = 0
        self._receipts: list[Receipt] = []
        self._turn = threading.Lock()

    @property
    def unit(self) -> str:
        """``epsilon``, or ``mu_squared`` with a δ."""
        return self._of(self._limit).unit

    @property
    def limit(self) -> str:
        """The limit in the unit, as exact decimal text."""
        return self._of(self._limit).text

    @property
    def spent(self) -> str:
        """What was charged, in the unit, as exact decimal text."""
        return self._of(self._spent).text

    @property
    def remaining(self) -> str:
        """What is left, in the unit, as exact decimal text."""
        return self._of(self._limit - self._spent).text

    @property
    def receipts(self) -> Sequence[Receipt]:
        """What was charged, oldest first."""
        return tuple(self._receipts)

    def charge(self, plan: Plan) -> Receipt:
        """Charges a job before it draws noise, whether or not it then succeeds.

        Sequential composition: the losses of jobs on the same rows add up in each of
        both units (docs/proofs/accounting.md A3), also where later jobs are chosen by
        what earlier ones released.

        Raises:
            LimitExceeded: the job costs more than is left; nothing was charged.
            ParameterInvalid: the job is priced in another unit.
            ValueError: the plan is for other accounts than this one, or its event costs
                more than its price.
            RuntimeError: this process is not the one that made the account.
        """
        if os.getpid() != self._process_id:
            raise RuntimeError(_ONE_PROCESS)
        self._require_own(plan)
        if plan.terms.accountant != self._terms.accountant:
            needs_delta = "required"
            if plan.terms.delta is not None:
                needs_delta = f"not-for-{self._terms.accountant}"
            raise ParameterInvalid.named("delta", needs_delta)
        price = plan.terms.price()
        with self._turn:
            if price > self._limit - self._spent:
                raise LimitExceeded(self.unit, self._of(price).text, self.remaining)
            self._spent += price
            receipt = receipt_of(plan)
            self._receipts.append(receipt)
        return receipt

    def _require_own(self, plan: Plan) -> None:
        """Checks that a plan is one for rows of which one is added or removed, and that
        its price covers its event.
        """
        terms = plan.terms
        is_for_rows = (
            terms.adjacency is Adjacency.ADD_REMOVE_ONE
            and terms.max_rows == 1
            and plan.unlabelled is None
        )
        if not is_for_rows or not terms.covers(plan.event):
            raise ValueError(
                "the plan is not one for single rows of one dataset, or costs more than it states"
            )

    def _of(self, steps: int) -> Amount:
        return Amount(self._terms.accountant, steps)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(_ONE_PROCESS)


def receipt_of(plan: Plan) -> Receipt:
    """What a plan costs, and for what."""
    terms = plan.terms
    text = receipts.in_words(
        plan.event, accountant=terms.accountant, adjacency=terms.adjacency
    )
    return Receipt(plan.event, Amount(terms.accountant, terms.price()).text, text)
