"""``POST /plans``: the price of a request, before and without any look at rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import TRAIN, Principal
from app.core import amounts
from app.core.errors import FieldProblem, InvalidRequest
from app.datasets import catalog
from app.forests.plan import Plan
from app.forests.planning import PlanRequest, plan, price_of
from app.ledger import service as ledger
from app.privacy import accountants, receipts
from app.privacy.composition import CellProblem, Scope, UnknownPartition
from app.services.installation import Installation
from app.wire.training import PlanIn, PlanOut, PriceOut

_LARGE_DELTA = (
    "δ is above one in a million, or above a tenth of one over the public size. Publishing a whole row now and then "
    "could be within such a δ."
)


@dataclass(frozen=True)
class Quote:
    """A request with everything public worked out: what it would run, where, and what it costs."""

    dataset: catalog.Dataset
    scope: Scope
    plan: Plan
    balance: ledger.Balance
    amount: int
    epsilon: Fraction
    delta: Fraction | None

    @property
    def price(self) -> PriceOut:
        """Exactly what was asked for, in the account's unit."""
        return PriceOut(
            accountant=self.balance.accountant,
            unit=self.balance.unit,
            amount=self.balance.text(self.amount),
            epsilon=amounts.to_text(self.epsilon),
            delta=None if self.delta is None else amounts.to_text(self.delta),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about the numbers that were asked for."""
        size = self.dataset.row.public_size or 0
        return (_LARGE_DELTA,) if self.delta is not None and self.delta > _usual_delta(size) else ()

    @property
    def largest_that_fits(self) -> str:
        """The largest ε that the same request could carry now."""
        unit = accountants.by_name(self.balance.accountant)
        return amounts.to_text(unit.largest_that_fits(self.balance.remaining, self.delta))


def show_plan(installation: Installation, principal: Principal, wanted: PlanIn) -> PlanOut:
    """Answers a question about a price.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
        InvalidRequest: algorithm, parameters or scope break a rule.
        NotSupported: a documented choice that is not built yet.
        DatasetDeleted: only the tombstone is left.
        AccountantMismatch: the algorithm has no bound in the account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and the account more.
    """
    with installation.database.read() as session:
        quoted = quote(session, permitted_dataset(session, principal, wanted.dataset).living(), wanted)
    event = quoted.plan.event
    return PlanOut(
        dataset=quoted.dataset.id,
        dataset_name=quoted.dataset.name,
        algorithm=quoted.plan.algorithm,
        parameters=dict(quoted.plan.parameters),
        scope={name: list(cells) for name, cells in quoted.scope.items()},
        price=quoted.price,
        event=event.to_json(),
        receipt=receipts.in_words(
            event,
            accountant=quoted.balance.accountant,
            adjacency=quoted.dataset.adjacency,
            max_rows=quoted.dataset.max_rows,
        ),
        fits=quoted.amount <= quoted.balance.remaining,
        largest_that_fits=quoted.largest_that_fits,
        warnings=[*quoted.plan.warnings, *quoted.warnings],
    )


def permitted_dataset(session: Session, principal: Principal, reference: str) -> catalog.Dataset:
    """The dataset that a request names, if the principal may train on it."""
    dataset = catalog.find(session, reference)
    grants.require(session, principal, dataset.id, TRAIN, kind="dataset")
    return dataset


def quote(session: Session, dataset: catalog.Dataset, wanted: PlanIn) -> Quote:
    """Works out plan, scope and price from public facts alone: what it reads of the ledger is the balance."""
    scope = read_scope(dataset, wanted.scope)
    balance = ledger.balance(session, dataset.id, scope)
    amount = price_of(wanted.epsilon, accountant=balance.accountant, delta=wanted.delta)
    request = PlanRequest(
        algorithm=wanted.algorithm,
        parameters=wanted.parameters,
        epsilon=wanted.epsilon,
        public_size=_public_size(dataset, scope),
        accountant=balance.accountant,
        delta=wanted.delta,
        adjacency=dataset.adjacency,
        max_rows=dataset.max_rows,
    )
    planned = plan(request, dataset.schema)
    return Quote(dataset, scope, planned, balance, amount, epsilon=wanted.epsilon, delta=wanted.delta)


def _usual_delta(public_size: int) -> Fraction:
    return min(Fraction(1, 10**6), Fraction(1, 10 * max(public_size, 1)))


def read_scope(dataset: catalog.Dataset, value: Mapping[str, object]) -> Scope:
    """A scope in normal form.

    Raises:
        InvalidRequest: a partition that was not declared, or a list that names no cell.
    """
    try:
        return dataset.partitions.read_scope(value)
    except UnknownPartition:
        raise InvalidRequest([FieldProblem("/scope", "unknown-partition")]) from None
    except CellProblem as found:
        raise InvalidRequest.at(f"/scope/{found.partition}", found.problem) from None


def _public_size(dataset: catalog.Dataset, scope: Scope) -> int | None:
    size = dataset.row.public_size
    if size is None:
        return None
    inside, all_cells = dataset.partitions.share(scope, n_epochs=0)
    return max(size * inside // all_cells, 1)
