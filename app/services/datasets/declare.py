"""Declares datasets and checks declarations.

A budget survives its dataset: the name of an erased dataset leads to its account
(:func:`take_up`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import Principal, Role
from app.access.idempotency import Answer, IdempotentRequest, once
from app.core import limits, stamps
from app.core.errors import FieldProblem, InvalidRequest, NameTaken, SameSubmitter
from app.core.sealed_files import DataKey, StorageKeys
from app.datasets import catalog, unit_names
from app.datasets.catalog import Dataset, DatasetRow
from app.db.database import transaction_time
from app.ledger import accounts, control, statements
from app.ledger.populations import find as find_population
from app.ledger.tables import EntryKind
from app.services.authorization import write_as
from app.services.datasets import membership
from app.services.datasets.declaration_rules import checked_columns, read_partitions
from app.services.datasets.show import dataset_out, declared_out
from app.services.guarantees import guarantee_of
from app.services.installation import Installation
from app.services.ledger.balances import cap_of
from app.wire.datasets import DatasetIn, DatasetOut, DeclarationOut, PrivacyUnitIn
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.number_text import two_significant_digits
from grovekeeper_forests import amounts
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.accountants import Amount
from grovekeeper_forests.privacy.partitions import Partitions

_NO_VISIBILITY = (
    "no value: leave it out. The forests without privacy, for tables that everybody has, are in "
    "research/papers/forests of the source code"
)


def register_dataset(
    installation: Installation,
    principal: Principal,
    declaration: DatasetIn,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Declares a dataset. The calling key becomes its owner."""
    checked = _Checked.of(declaration)  # before anything is locked
    keys = installation.storage_keys
    with write_as(installation, principal) as (session, principal):
        principal.require(Role.OWNER)

        def work() -> Answer:
            declared = checked.declared(session, principal, keys)
            owner = principal.key_id
            dataset_id = declared.dataset.id
            grants.put(
                session,
                dataset_id=dataset_id,
                key_id=owner,
                role=Role.OWNER,
                by=owner,
            )
            control.record(
                session,
                EntryKind.DATASET_DECLARED,
                actor=owner,
                dataset=dataset_id,
                **declared.act,
            )
            return Answer.of(
                201,
                declared.shown(session, principal),
                location=f"/datasets/{dataset_id}",
            )

        return once(session, request, work)


def check_declaration(
    installation: Installation, principal: Principal, declaration: DatasetIn
) -> DeclarationOut:
    """States what a declaration would become, and stores nothing.

    A form asks for it at every pause in typing, so it only reads, unless the name was
    that of an erased dataset: then it declares the dataset, which may continue an
    account, and rolls everything back.
    """
    checked = _Checked.of(declaration)
    keys = installation.storage_keys
    with installation.database.read() as session:
        caller = grants.confirm(session, principal)
        caller.require(Role.OWNER)
        erased = catalog.erased(session, declaration.name)
        is_new = declaration.other_people is None and not erased
        if is_new:
            facts = checked.facts(session, caller, keys)
    if not is_new:
        with write_as(installation, principal) as (session, caller):
            caller.require(Role.OWNER)
            declared = checked.declared(session, caller, keys)
            limit = statements.printable(session, declared.dataset.id)
            facts = {
                **dict(declared.shown(session, caller)),
                "guarantee": guarantee_of(declared.dataset, limit),
            }
            session.rollback()
    return DeclarationOut(**{name: facts[name] for name in DeclarationOut.model_fields})


@dataclass(frozen=True)
class _Declared:
    """A stored declaration, further details of its act in the control chain, and
    warnings for its owner alone.
    """

    dataset: Dataset
    act: Mapping[str, str]
    warnings: Sequence[str]

    def shown(self, session: Session, principal: Principal) -> DatasetOut:
        shown = dataset_out(session, self.dataset, principal)
        return with_warnings(shown, self.warnings)


@dataclass(frozen=True)
class _Checked:
    """A declaration that breaks no rule by itself. Its name and its population are
    checked when it is stored.
    """

    declaration: DatasetIn
    schema: Schema
    cap: int
    partitions: Partitions

    @classmethod
    def of(cls, declaration: DatasetIn) -> Self:
        """Checks all rules before it refuses, so that a declaration is mended once.

        Raises:
            InvalidRequest: every broken rule.
        """
        schema, problems = checked_columns(declaration)
        unit_column = declaration.privacy_unit.column
        cap = 0
        if "visibility" in declaration.model_fields_set:
            problem = "every-dataset-is-private"
            problems.append(
                FieldProblem("/visibility", problem, accepted=(_NO_VISIBILITY,))
            )
        try:
            cap = cap_of(declaration.budget)
        except InvalidRequest as invalid:
            problems.extend(invalid.errors)
        if problems:
            raise InvalidRequest(list(dict.fromkeys(problems)))
        return cls(
            declaration,
            schema,
            cap,
            read_partitions(declaration.partitions, schema, unit_column=unit_column),
        )

    def declared(
        self, session: Session, principal: Principal, keys: StorageKeys
    ) -> _Declared:
        """Stores the declaration, its account and its membership."""
        row = self._row(session, principal, keys)
        dataset = catalog.declare(session, row)
        accounts.open_account(
            session, self._new_account(dataset), actor=principal.key_id
        )
        act, warnings = take_up(session, principal, dataset, self.declaration)
        named = self.declaration.population
        if named is not None:
            dataset.row.population = membership.join(
                session, principal, dataset.id, population=named
            )
        return _Declared(
            dataset, act, [*warnings, *same_columns(session, principal, dataset)]
        )

    def facts(
        self, session: Session, principal: Principal, keys: StorageKeys
    ) -> JsonObject:
        """What :meth:`declared` would store under a name that no dataset ever had;
        raises what :func:`app.datasets.catalog.require_free` and
        :func:`app.services.datasets.membership.with_new_member` raise.
        """
        dataset = Dataset(self._row(session, principal, keys))
        catalog.require_free(session, dataset.name)
        account = accounts.account_row(self._new_account(dataset))
        totals = None
        named = self.declaration.population
        if named is not None:
            dataset.row.population, totals = membership.with_new_member(
                session, principal, account, population=named
            )
        highest = statements.Limit(
            Amount(account.accountant, self.cap), account.split_delta
        )
        limit = statements.printable_at(highest, cap=self.cap, load=0)
        facts = dict(
            declared_out(dataset, statements.balance_of_new(account, self.cap, totals))
        )
        facts["warnings"] = [
            *facts["warnings"],
            *same_columns(session, principal, dataset),
        ]
        return {**facts, "guarantee": guarantee_of(dataset, limit)}

    def _row(
        self, session: Session, principal: Principal, keys: StorageKeys
    ) -> DatasetRow:
        declaration = self.declaration
        dataset_id = stamps.new(stamps.DATASET)
        size = declaration.public_size
        return DatasetRow(
            id=dataset_id,
            name=declaration.name,
            living_name=declaration.name,
            schema=self.schema.to_json(),
            privacy_unit=_stored_unit(declaration.privacy_unit),
            protects=declaration.protects,
            partitions=self.partitions.to_json(),
            public_size=None if size is None else two_significant_digits(size),
            population=declaration.population,
            wrapped_key=keys.wrap(DataKey.random(), dataset_id=dataset_id),
            declared_by=principal.key_id,
            created_at=transaction_time(session),
            deleted_at=None,
        )

    def _new_account(self, dataset: Dataset) -> accounts.NewAccount:
        budget = self.declaration.budget
        return accounts.NewAccount(
            id=dataset.id,
            name=dataset.name,
            accountant=budget.accountant,
            adjacency=dataset.adjacency.value,
            cap=self.cap,
            delta=amounts.text_or_none(budget.delta),
            privacy_unit=dataset.row.privacy_unit,
            partitions=dataset.partitions,
            delta_set_aside=amounts.text_or_none(budget.delta_set_aside),
        )


def _stored_unit(unit: PrivacyUnitIn) -> dict[str, object]:
    """The privacy unit as the opening entry fixes it. A unit column that is declared
    without a form is text.
    """
    stored: dict[str, object] = {"column": unit.column, "max_rows": unit.max_rows}
    if unit.column is not None:
        stored["form"] = unit.form or unit_names.TEXT
    return stored


def take_up(
    session: Session, principal: Principal, dataset: Dataset, declaration: DatasetIn
) -> tuple[dict[str, str], list[str]]:
    """Continues the account of the erased dataset of the name, or records that the rows
    are about other people.

    The new dataset holds the name, so no other declaration takes up the same account.
    Of several erased datasets the newest that spent something counts: its account has
    the loads of those before it, unless its owner stated that its rows were about other
    people. One that spent nothing leaves nothing to continue.

    Args:
        session: of the transaction that stored the declaration and opened its account.

    Returns:
        Further details of the declaration's act in the control chain, and warnings for
        the owner.

    Raises:
        InvalidRequest: the declaration is told apart from an erased dataset, and there
            is none.
        NameTaken: the erased dataset belongs to other owners.
        SameSubmitter: the key declared the erased dataset of which it states that it
            was about other people.
    """
    reason = declaration.other_people
    ids = catalog.erased(session, dataset.name)
    if not ids:
        if reason is not None:
            raise InvalidRequest.at("/other_people", "no-erased-dataset")
        return {}, []
    erased = catalog.find(session, accounts.newest_with_load(session, ids) or ids[0])
    # The error of a living dataset: it does not say whether one was erased.
    role = grants.granted(session, principal, erased.id)
    if Role.OWNER not in principal.acts_as(role):
        raise NameTaken
    if reason is not None:
        if erased.row.declared_by == principal.key_id and not principal.is_admin:
            raise SameSubmitter(
                "an admin, or an owner other than the one who declared the erased dataset, states that the rows are "
                "about other people"
            )
        return {"erased": erased.id, "other_people": reason}, []
    population = None
    if declaration.population is not None:
        population = find_population(session, declaration.population)
    population_id = None if population is None else population.id
    if not accounts.continue_account(
        session,
        dataset.id,
        erased.id,
        population_id=population_id,
        actor=principal.key_id,
    ):
        return {}, []
    balance = statements.balance(session, dataset.id)
    warning = (
        f"The account of the erased dataset {erased.name} ({erased.id}) goes on here: "
        f"{balance.text(balance.charged)} of the cap of {balance.text(balance.cap)} is spent."
    )
    return {"continues": erased.id}, [warning]


def same_columns(session: Session, principal: Principal, dataset: Dataset) -> list[str]:
    """A warning where other datasets of the owner have the columns of a new dataset:
    their budgets do not add up by themselves. Datasets of its population add up, and
    are left out.
    """
    owned = grants.granted_as(session, principal, Role.OWNER)
    # by name: the erased datasets of a name lead to the account of the newest
    newest: dict[str, str] = {}
    for dataset_id, named in catalog.of_same_columns(session, dataset, owned).items():
        state = ", erased" if named.deleted_at else ""
        newest.setdefault(named.name, f"{named.name} ({dataset_id}{state})")
    if not newest:
        return []
    shown = ", ".join(list(newest.values())[: limits.MAX_SHOWN_SAME_COLUMNS])
    if len(newest) > limits.MAX_SHOWN_SAME_COLUMNS:
        shown += f" and {len(newest) - limits.MAX_SHOWN_SAME_COLUMNS} more"
    return [
        f"You have other datasets of the same columns: {shown}. If the rows are about the same people, "
        "their losses add up: name all of them in one population, or take the name of an erased dataset, whose account "
        "then goes on."
    ]


def with_warnings(shown: DatasetOut, warnings: Sequence[str]) -> DatasetOut:
    """The facts of a dataset, with further warnings for the owner who asked."""
    return shown.model_copy(update={"warnings": [*shown.warnings, *warnings]})
