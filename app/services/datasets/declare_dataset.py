"""Serves ``POST /datasets`` and ``POST /declarations``: declares a dataset, or only checks a declaration."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.access.idempotency import Answer, IdempotentRequest, once
from app.core import amounts, stamps
from app.core.errors import FieldProblem, InvalidRequest
from app.core.sealed_files import DataKey, StorageKeys
from app.datasets import catalog
from app.datasets.tables import DatasetRow
from app.forests.data.schema import Schema, column_name_problem
from app.ledger import control, statements
from app.ledger import service as ledger
from app.ledger.entries import EntryKind
from app.ledger.statements import Limit
from app.privacy.composition import Partitions
from app.services import populations
from app.services.authorization import refreshed, write_as
from app.services.datasets import erased_names
from app.services.datasets.alike_names import alike_names
from app.services.datasets.declare_partitions import read_partitions, two_significant_digits
from app.services.datasets.erased_names import TakenUp, same_columns
from app.services.datasets.show_datasets import dataset_out, declared_out
from app.services.guarantees import guarantee_of
from app.services.installation import Installation
from app.services.ledger.caps import cap_of
from app.wire.datasets import BudgetIn, DatasetIn, DatasetOut, DeclarationOut

_NO_VISIBILITY = (
    "no value: leave it out. The forests without privacy, for tables that everybody has, are in "
    "benchmarks/papers/forests of the source code"
)


def register_dataset(
    installation: Installation, principal: Principal, declaration: DatasetIn, *, request: IdempotentRequest | None
) -> Answer:
    """Declares a dataset. The calling key becomes its owner.

    Raises:
        InvalidRequest: a rule of the declaration is broken.
        RoleMissing: the key may not declare datasets.
        NameTaken: a living dataset has the name, or an erased dataset of other owners had it.
        AccountDiffers: an erased dataset of the name has spent, and the declaration cannot continue its account.
        SameSubmitter: the key declared the erased dataset of which it states that it was about other people.
        NotFound: another key opened the population.
        PopulationMismatch: the dataset's loss cannot be added to the losses of the population's members.
        Unavailable: reservations of the erased dataset of the name are still being given back.
    """
    checked = _Checked.of(declaration)  # before anything is locked
    keys = installation.storage_keys
    with write_as(installation, principal) as (session, principal):
        principal.require(Role.OWNER)
        at = installation.database.now(session)

        def work() -> Answer:
            declared = checked.declared(session, principal, keys, at=at)
            owner, dataset_id = principal.key_id, declared.dataset.id
            grants.put(session, dataset_id=dataset_id, key_id=owner, role=Role.OWNER, by=owner, at=at)
            control.record(session, EntryKind.DATASET_DECLARED, actor=owner, dataset=dataset_id, **declared.name.act)
            return Answer.of(201, declared.shown(session), location=f"/datasets/{dataset_id}")

        return once(session, request, at=at, work=work)


def check_declaration(installation: Installation, principal: Principal, declaration: DatasetIn) -> DeclarationOut:
    """States what a declaration would become, and stores nothing.

    A form asks for it at every pause in typing, so it only reads, unless the name was that of an erased dataset: then
    it declares the dataset, which may continue an account, and rolls everything back.

    Raises:
        InvalidRequest, RoleMissing, NameTaken, AccountDiffers, SameSubmitter, NotFound, PopulationMismatch,
        Unavailable: see :func:`register_dataset`.
    """
    checked = _Checked.of(declaration)
    keys = installation.storage_keys
    with installation.database.read() as session:
        caller = refreshed(installation, session, principal)
        caller.require(Role.OWNER)
        is_new = declaration.other_people is None and catalog.newest_erased(session, declaration.name) is None
        facts = checked.facts(session, caller, keys, at=installation.database.now(session)) if is_new else {}
    if not is_new:
        with write_as(installation, principal) as (session, caller):
            caller.require(Role.OWNER)
            declared = checked.declared(session, caller, keys, at=installation.database.now(session))
            limit = statements.printable(session, declared.dataset.id)
            facts = {**dict(declared.shown(session)), "guarantee": guarantee_of(declared.dataset, limit)}
            session.rollback()
    return DeclarationOut(**{name: facts[name] for name in DeclarationOut.model_fields})


@dataclass(frozen=True)
class _Declared:
    """A stored declaration, and what its name and its columns say about its account."""

    dataset: catalog.Dataset
    name: TakenUp
    warnings: Sequence[str]

    def shown(self, session: Session) -> DatasetOut:
        """The answer to the owner, with warnings that nobody else sees."""
        shown = dataset_out(session, self.dataset)
        return shown.model_copy(update={"warnings": [*shown.warnings, *self.warnings]})


@dataclass(frozen=True)
class _Checked:
    """A declaration that breaks no rule by itself. Its name and its population are checked when it is stored."""

    declaration: DatasetIn
    schema: Schema
    cap: int
    partitions: Partitions

    @classmethod
    def of(cls, declaration: DatasetIn) -> Self:
        schema = Schema.from_json(declaration.schema_.model_dump(exclude_none=True))
        alike = alike_names(declaration)
        if alike:
            raise InvalidRequest(alike)
        cap = _checked_cap(declaration)
        unit_column = declaration.privacy_unit.column
        partitions = read_partitions(declaration.partitions, schema, unit_column=unit_column)
        return cls(declaration, schema, cap, partitions)

    def declared(self, session: Session, principal: Principal, keys: StorageKeys, *, at: datetime) -> _Declared:
        """Stores the declaration, its account and its membership."""
        actor = principal.key_id
        row = _row(self.declaration, self.schema, self.partitions, keys=keys, declared_by=actor, at=at)
        dataset = catalog.declare(session, row)
        ledger.open_account(session, _new_account(dataset, self.declaration.budget, cap=self.cap), actor=actor)
        name = erased_names.take_up(session, principal, dataset, self.declaration)
        named = self.declaration.population
        if named is not None:
            row.population = populations.join(session, principal, row.id, population=named, at=at)
        return _Declared(dataset, name, [*name.warnings, *same_columns(session, principal, dataset)])

    def facts(self, session: Session, principal: Principal, keys: StorageKeys, *, at: datetime) -> dict[str, Any]:
        """What :meth:`declared` would store under a name that no dataset ever had; raises what it raises."""
        actor = principal.key_id
        row = _row(self.declaration, self.schema, self.partitions, keys=keys, declared_by=actor, at=at)
        catalog.require_free(session, row.name)
        dataset = catalog.Dataset(row)
        account, totals = ledger.account_row(_new_account(dataset, self.declaration.budget, cap=self.cap)), None
        named = self.declaration.population
        if named is not None:
            row.population, totals = populations.with_new_member(session, principal, account, population=named)
        limit = statements.printable_at(Limit.of(account, self.cap), cap=self.cap, load=0)
        facts = dict(declared_out(dataset, statements.balance_of_new(account, self.cap, totals)))
        facts["warnings"] = [*facts["warnings"], *same_columns(session, principal, dataset)]
        return {**facts, "guarantee": guarantee_of(dataset, limit)}


def _checked_cap(declaration: DatasetIn) -> int:
    """The cap in steps.

    Raises:
        InvalidRequest: a rule about the account, or the declaration wants a dataset that nobody protects.
    """
    if "visibility" in declaration.model_fields_set:
        raise InvalidRequest.at("/visibility", "every-dataset-is-private", accepted=[_NO_VISIBILITY])
    problems = _unit_problems(declaration)
    cap = 0
    try:
        cap = cap_of(declaration.budget)
    except InvalidRequest as invalid:
        problems.extend(invalid.errors)
    if problems:
        raise InvalidRequest(problems)
    return cap


def _unit_problems(declaration: DatasetIn) -> list[FieldProblem]:
    """The unit column is neither a feature nor the label: it is not learned from and not predicted."""
    unit, schema = declaration.privacy_unit, declaration.schema_
    if unit.column is None:
        return [FieldProblem("/privacy_unit/max_rows", "needs-a-unit-column")] if unit.max_rows != 1 else []
    problem = column_name_problem(unit.column)
    if unit.column in (schema.label.name, *(feature.name for feature in schema.features)):
        problem = "not-distinct"
    return [FieldProblem("/privacy_unit/column", problem)] if problem else []


def _row(
    declaration: DatasetIn,
    schema: Schema,
    partitions: Partitions,
    *,
    keys: StorageKeys,
    declared_by: str,
    at: datetime,
) -> DatasetRow:
    size = declaration.public_size
    dataset_id = stamps.new(stamps.DATASET)
    row = DatasetRow(
        id=dataset_id,
        name=declaration.name,
        living_name=declaration.name,
        schema=schema.to_json(),
        privacy_unit=declaration.privacy_unit.model_dump(),
        protects=declaration.protects,
        partitions=partitions.to_json(),
        public_size=None if size is None else two_significant_digits(size),
        population=declaration.population,
        declared_by=declared_by,
        created_at=at,
        deleted_at=None,
    )
    row.wrapped_key = keys.wrap(DataKey.random(), dataset_id=row.id)
    return row


def _new_account(dataset: catalog.Dataset, budget: BudgetIn, *, cap: int) -> ledger.NewAccount:
    unit: dict[str, Any] = dataset.row.privacy_unit
    return ledger.NewAccount(
        id=dataset.id,
        name=dataset.name,
        accountant=budget.accountant,
        adjacency=dataset.adjacency.value,
        cap=cap,
        delta=None if budget.delta is None else amounts.to_text(budget.delta),
        privacy_unit=unit,
        partitions=dataset.partitions,
        delta_set_aside=None if budget.delta_set_aside is None else amounts.to_text(budget.delta_set_aside),
    )
