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
from app.forests.plan import Plan, PlanRequest, plan
from app.forests.schema import Schema
from app.ledger import service as ledger
from app.privacy import receipts
from app.privacy.accountants import pure
from app.privacy.composition import CellProblem, Scope, UnknownPartition
from app.services.installation import Installation
from app.wire.training import PlanIn, PlanOut, PriceOut


@dataclass(frozen=True)
class Quote:
    """A request with everything public worked out: what it would run, where, and what it costs."""

    dataset: catalog.Dataset
    schema: Schema
    scope: Scope
    plan: Plan
    amount: int
    epsilon: Fraction

    @property
    def price(self) -> PriceOut:
        """Exactly what was asked for, in the account's unit."""
        return PriceOut(
            accountant=pure.NAME,
            unit=pure.UNIT,
            amount=amounts.from_nano(self.amount),
            epsilon=amounts.to_text(self.epsilon),
            delta=None,
        )


def show_plan(installation: Installation, principal: Principal, wanted: PlanIn) -> PlanOut:
    """Answers a question about a price.

    Raises:
        NotFound: no such dataset, or none that this key may know of.
        RoleMissing: the key may not train on it.
        InvalidRequest: algorithm, parameters or scope break a rule.
        NotSupported: a documented choice that is not built yet.
        DatasetDeleted: only the tombstone is left.
    """
    with installation.database.read() as session:
        quoted = quote(permitted_dataset(session, principal, wanted.dataset).living(), wanted)
        balance = ledger.balance(session, quoted.dataset.id, quoted.scope)
    event = quoted.plan.event
    return PlanOut(
        dataset=quoted.dataset.id,
        dataset_name=quoted.dataset.name,
        algorithm=quoted.plan.algorithm,
        parameters=dict(quoted.plan.parameters),
        scope={name: list(cells) for name, cells in quoted.scope.items()},
        price=quoted.price,
        event=event.to_json(),
        receipt=receipts.in_words(event, accountant=pure.NAME),
        fits=quoted.amount <= balance.remaining,
        largest_that_fits=amounts.from_nano(max(balance.remaining, 0)),
        warnings=list(quoted.plan.warnings),
    )


def permitted_dataset(session: Session, principal: Principal, reference: str) -> catalog.Dataset:
    """The dataset that a request names, if the principal may train on it."""
    dataset = catalog.find(session, reference)
    grants.require(session, principal, dataset.id, TRAIN, kind="dataset")
    return dataset


def quote(dataset: catalog.Dataset, wanted: PlanIn) -> Quote:
    """Works out plan, scope and price from public facts alone."""
    if wanted.delta is not None:
        raise InvalidRequest.at("/delta", "not-for-pure")
    schema = dataset.schema
    scope = read_scope(dataset, wanted.scope)
    request = PlanRequest(
        algorithm=wanted.algorithm,
        parameters=wanted.parameters,
        epsilon=wanted.epsilon,
        public_size=_public_size(dataset, scope),
    )
    planned = plan(request, schema)
    return Quote(dataset, schema, scope, planned, pure.price(wanted.epsilon), wanted.epsilon)


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
    inside, all_cells = dataset.partitions.share(scope)
    return max(size * inside // all_cells, 1)
