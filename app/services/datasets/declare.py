"""Declares datasets, checks declarations, and makes datasets members of populations.

A budget survives its dataset: the name of an erased dataset leads to its account
(:func:`take_up`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import MANAGE_DATASET, Principal, Role
from app.access.idempotency import Answer, IdempotentRequest, once
from app.core import limits, stamps
from app.core.errors import (
    FieldProblem,
    InvalidRequest,
    NameTaken,
    SameSubmitter,
    field_problem,
)
from app.core.sealed_files import DataKey, StorageKeys
from app.datasets import catalog, unit_names
from app.datasets.catalog import PROTECTS_LABEL, Dataset, DatasetRow
from app.ledger import accounts, control, statements
from app.ledger.populations import find as find_population
from app.ledger.statements import Limit
from app.ledger.tables import EntryKind
from app.services import populations
from app.services.authorization import authorized_dataset, refreshed, write_as
from app.services.datasets.show import dataset_out, declared_out
from app.services.guarantees import guarantee_of
from app.services.installation import Installation
from app.services.ledger.balances import cap_of
from app.wire.datasets import (
    DatasetIn,
    DatasetOut,
    DeclarationOut,
    LabelIn,
    PartitionIn,
    PrivacyUnitIn,
)
from grovekeeper_forests import amounts
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.schema import (
    Feature,
    Schema,
    column_name_problem,
    composed,
    value_list_problem,
)
from grovekeeper_forests.privacy.accountants import Amount
from grovekeeper_forests.privacy.partitions import (
    MISSING_CELL,
    OTHER_CELL,
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partition,
    Partitions,
)

_NO_VISIBILITY = (
    "no value: leave it out. The forests without privacy, for tables that everybody has, are in "
    "research/papers/forests of the source code"
)

_FIELDS = {
    "hash": ("cells",),
    "column": ("column", "categories", "sizes"),
    "epoch": ("how",),
}
_REQUIRED = {"hash": "cells", "column": "column", "epoch": "how"}
_READABLE = (
    "a text with a visible character, without marks that turn the direction of the text"
)
_OBEYED = re.compile("[\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Line separators, and marks that reverse the direction of a text."""


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
        at = installation.database.now(session)

        def work() -> Answer:
            declared = checked.declared(session, principal, keys, at=at)
            owner = principal.key_id
            dataset_id = declared.dataset.id
            grants.put(
                session,
                dataset_id=dataset_id,
                key_id=owner,
                role=Role.OWNER,
                by=owner,
                at=at,
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

        return once(session, request, at=at, work=work)


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
        caller = refreshed(installation, session, principal)
        caller.require(Role.OWNER)
        erased = catalog.erased(session, declaration.name)
        is_new = declaration.other_people is None and not erased
        if is_new:
            now = installation.database.now(session)
            facts = checked.facts(session, caller, keys, at=now)
    if not is_new:
        with write_as(installation, principal) as (session, caller):
            caller.require(Role.OWNER)
            declared = checked.declared(
                session, caller, keys, at=installation.database.now(session)
            )
            limit = statements.printable(session, declared.dataset.id)
            facts = {
                **dict(declared.shown(session, caller)),
                "guarantee": guarantee_of(declared.dataset, limit),
            }
            session.rollback()
    return DeclarationOut(**{name: facts[name] for name in DeclarationOut.model_fields})


def join_population(
    installation: Installation, principal: Principal, reference: str, *, population: str
) -> DatasetOut:
    """Makes a dataset a member of a population, for good, on the owner's public
    statement.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        locked = catalog.locked(session, dataset.id).living()
        at = installation.database.now(session)
        locked.row.population = populations.join(
            session, principal, dataset.id, population=population, at=at
        )
        return dataset_out(session, locked, principal)


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
        self, session: Session, principal: Principal, keys: StorageKeys, *, at: datetime
    ) -> _Declared:
        """Stores the declaration, its account and its membership."""
        dataset = catalog.declare(
            session, self._row(keys, declared_by=principal.key_id, at=at)
        )
        accounts.open_account(
            session, self._new_account(dataset), actor=principal.key_id
        )
        act, warnings = take_up(session, principal, dataset, self.declaration)
        named = self.declaration.population
        if named is not None:
            dataset.row.population = populations.join(
                session, principal, dataset.id, population=named, at=at
            )
        return _Declared(
            dataset, act, [*warnings, *same_columns(session, principal, dataset)]
        )

    def facts(
        self, session: Session, principal: Principal, keys: StorageKeys, *, at: datetime
    ) -> dict[str, Any]:
        """What :meth:`declared` would store under a name that no dataset ever had;
        raises what :func:`app.datasets.catalog.require_free` and
        :func:`app.services.populations.with_new_member` raise.
        """
        dataset = Dataset(self._row(keys, declared_by=principal.key_id, at=at))
        catalog.require_free(session, dataset.name)
        account = accounts.account_row(self._new_account(dataset))
        totals = None
        named = self.declaration.population
        if named is not None:
            dataset.row.population, totals = populations.with_new_member(
                session, principal, account, population=named
            )
        highest = Limit(Amount(account.accountant, self.cap), account.split_delta)
        limit = statements.printable_at(highest, cap=self.cap, load=0)
        facts = dict(
            declared_out(dataset, statements.balance_of_new(account, self.cap, totals))
        )
        facts["warnings"] = [
            *facts["warnings"],
            *same_columns(session, principal, dataset),
        ]
        return {**facts, "guarantee": guarantee_of(dataset, limit)}

    def _row(self, keys: StorageKeys, *, declared_by: str, at: datetime) -> DatasetRow:
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
            declared_by=declared_by,
            created_at=at,
            deleted_at=None,
        )

    def _new_account(self, dataset: Dataset) -> accounts.NewAccount:
        budget = self.declaration.budget
        delta = delta_set_aside = None
        if budget.delta is not None:
            delta = amounts.to_text(budget.delta)
        if budget.delta_set_aside is not None:
            delta_set_aside = amounts.to_text(budget.delta_set_aside)
        return accounts.NewAccount(
            id=dataset.id,
            name=dataset.name,
            accountant=budget.accountant,
            adjacency=dataset.adjacency.value,
            cap=self.cap,
            delta=delta,
            privacy_unit=dataset.row.privacy_unit,
            partitions=dataset.partitions,
            delta_set_aside=delta_set_aside,
        )


def checked_columns(declaration: DatasetIn) -> tuple[Schema, list[FieldProblem]]:
    """The columns of a declaration, and each rule that they break by themselves or
    beside the privacy unit and the partitions.
    """
    schema = Schema.unchecked(declaration.schema_.model_dump(exclude_none=True))
    return schema, [
        *map(field_problem, schema.problems(is_list=bool(declaration.schema_.labels))),
        *_alike_names(declaration),
        *_misread_texts(declaration),
        *_protected_numbers(declaration, schema),
        *_unit_problems(declaration),
        *partition_problems(
            declaration.partitions, schema, unit_column=declaration.privacy_unit.column
        ),
    ]


def _protected_numbers(declaration: DatasetIn, schema: Schema) -> list[FieldProblem]:
    """An account that protects labels is proven for classes. A number that changes moves
    a sum by twice what an added row adds, in one cell: more than two cells by one each.
    """
    is_number = any(label.is_number for label in schema.labels)
    if declaration.protects == PROTECTS_LABEL and is_number:
        return [FieldProblem("/protects", "not-for-numbers", accepted=("row",))]
    return []


def _stored_unit(unit: PrivacyUnitIn) -> dict[str, object]:
    """The privacy unit as the opening entry fixes it. A unit column that is declared
    without a form is text.
    """
    stored: dict[str, object] = {"column": unit.column, "max_rows": unit.max_rows}
    if unit.column is not None:
        stored["form"] = unit.form or unit_names.TEXT
    return stored


def _unit_problems(declaration: DatasetIn) -> list[FieldProblem]:
    """The unit column is neither a feature nor the label: it is not learned from and
    not predicted.
    """
    unit = declaration.privacy_unit
    if unit.column is None:
        problems = []
        if unit.max_rows != 1:
            problems.append(
                FieldProblem("/privacy_unit/max_rows", "needs-a-unit-column")
            )
        if unit.form is not None:
            problems.append(FieldProblem("/privacy_unit/form", "needs-a-unit-column"))
        return problems
    problem = column_name_problem(unit.column)
    names = {name for at, name in _columns(declaration) if at.startswith("/schema/")}
    if unit.column in names:
        problem = "not-distinct"
    if problem is None:
        return []
    return [FieldProblem("/privacy_unit/column", problem)]


def read_partitions(
    declared: Sequence[PartitionIn], schema: Schema, *, unit_column: str | None
) -> Partitions:
    """Reads the partitions of a declaration.

    Args:
        schema: the schema of the declaration; a column partition may name one of its
            categorical features.
        unit_column: the unit column of the declaration; no partition may use this
            column.

    Raises:
        InvalidRequest: with a pointer below ``/partitions`` and a slug for every broken
            rule.
    """
    if problems := partition_problems(declared, schema, unit_column=unit_column):
        raise InvalidRequest(problems)
    return Partitions(tuple(_read(partition, schema) for partition in declared))


def partition_problems(
    declared: Sequence[PartitionIn], schema: Schema, *, unit_column: str | None
) -> list[FieldProblem]:
    """The rules that partitions break; see :func:`read_partitions`."""
    problems = []
    for index, partition in enumerate(declared):
        earlier = declared[:index]
        for name, problem in _problems(partition, earlier, schema, unit_column):
            problems.append(FieldProblem(f"/partitions/{index}/{name}", problem))
    return problems


def _problems(
    partition: PartitionIn,
    earlier: Sequence[PartitionIn],
    schema: Schema,
    unit_column: str | None,
) -> Iterator[tuple[str, str]]:
    if partition.name in (other.name for other in earlier):
        yield "name", "not-distinct"
    of_other_kinds = set[str]().union(*_FIELDS.values()) - set(_FIELDS[partition.kind])
    for name in sorted(of_other_kinds):
        if getattr(partition, name) is not None:
            yield name, f"not-for-{partition.kind}"
    required = _REQUIRED[partition.kind]
    if getattr(partition, required) is None:
        yield required, "required"
    elif partition.kind == "column":
        labels = [label.name for label in schema.labels]
        taken = [*labels, unit_column, *(other.column for other in earlier)]
        yield from _column_problems(partition, schema, taken)
    elif partition.kind == "epoch":
        if any(other.kind == "epoch" for other in earlier):
            yield "kind", "not-distinct"
        problem = value_list_problem([partition.how or ""], smallest=1, largest=1)
        if problem:
            yield "how", problem


def _column_problems(
    partition: PartitionIn, schema: Schema, taken: Sequence[str | None]
) -> Iterator[tuple[str, str]]:
    name = partition.column or ""
    problem = "not-distinct" if name in taken else column_name_problem(name)
    if problem:
        yield "column", problem
        return
    feature = _feature(partition, schema)
    if feature is None and partition.categories is None:
        yield "categories", "required"
        return
    if feature is None:
        problem = value_list_problem(
            partition.categories or (), smallest=1, largest=forest_limits.MAX_CATEGORIES
        )
        at = "categories"
        categories = tuple(partition.categories or ())
    else:
        problem = None if feature.is_categorical else "not-categorical"
        at = "column"
        categories = feature.categories
        if partition.categories is not None:
            yield "categories", "not-for-a-feature"
    if problem is None and {OTHER_CELL, MISSING_CELL} & set(categories):
        problem = "reserved-cell"
    if problem:
        yield at, problem
    elif partition.sizes is not None:
        yield from _size_problems(partition, _read_column(partition, schema))


def _size_problems(
    partition: PartitionIn, column: ColumnPartition
) -> Iterator[tuple[str, str]]:
    sized = [size.cell for size in partition.sizes or ()]
    if sorted(sized) != sorted(column.listed_cells):
        yield "sizes", "not-the-cells"
    elif not any(size.rows for size in partition.sizes or ()):
        yield "sizes", "not-positive"


def _read(partition: PartitionIn, schema: Schema) -> Partition:
    if partition.kind == "hash":
        return HashPartition(partition.name, partition.cells or 0)
    if partition.kind == "epoch":
        return EpochPartition(partition.name, partition.how or "")
    column = _read_column(partition, schema)
    if partition.sizes is None:
        return column
    rows = {size.cell: two_significant_digits(size.rows) for size in partition.sizes}
    sizes = tuple(rows[cell] for cell in column.listed_cells)
    return ColumnPartition(
        column.name,
        column.column,
        column.is_feature,
        column.categories,
        has_missing=column.has_missing,
        sizes=sizes,
    )


def _read_column(partition: PartitionIn, schema: Schema) -> ColumnPartition:
    """A column partition without its sizes. An additional column always has a MISSING
    cell, for empty values.
    """
    name = partition.column or ""
    feature = _feature(partition, schema)
    if feature is None:
        return ColumnPartition(
            partition.name,
            name,
            False,
            tuple(partition.categories or ()),
            has_missing=True,
        )
    return ColumnPartition(
        partition.name, name, True, feature.categories, has_missing=feature.missing
    )


def _feature(partition: PartitionIn, schema: Schema) -> Feature | None:
    return next(
        (feature for feature in schema.features if feature.name == partition.column),
        None,
    )


def two_significant_digits(size: int) -> int:
    """A declared size rounded to two significant digits, half up; below 100 as it was
    declared. No row is counted.
    """
    scale: int = 10 ** max(len(str(size)) - 2, 0)
    return (2 * size + scale) // (2 * scale) * scale


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


def _alike_names(declaration: DatasetIn) -> list[FieldProblem]:
    """A problem for each column whose name has other characters than an earlier name,
    and looks the same.

    Equal names are the subject of other rules: a partition may name a feature, and no
    other two columns may be equal.
    """
    seen: dict[str, str] = {}
    return [
        FieldProblem(at, "not-distinct")
        for at, name in _columns(declaration)
        if seen.setdefault(_look(name), name) != name
    ]


def _misread_texts(declaration: DatasetIn) -> list[FieldProblem]:
    """Texts that a person reads wrong. New declarations have none; earlier declarations
    stay readable.
    """
    problems = []
    for pointer, texts in _texts(declaration):
        if "".join(texts).isascii():
            continue
        problem = None
        accepted = _READABLE
        if any(map(_OBEYED.search, texts)):
            problem = "control-character"
        elif any(text and not _look(text) for text in texts):
            problem = "not-visible"
        elif any(text.startswith("\ufeff") for text in texts):
            # a byte order mark, which readers of a file drop from its first name
            problem = "not-visible"
        elif len(set(map(_look, texts))) < len(set(texts)):
            problem = "not-distinct"
            accepted = "texts that look different"
        if problem is not None:
            problems.append(FieldProblem(pointer, problem, accepted=(accepted,)))
    return problems


def _look(text: str) -> str:
    """What two texts have in common that look the same: Unicode's composed form without
    invisible signs.
    """
    return composed(unit_names.without_invisible(text))


def _texts(declaration: DatasetIn) -> Iterator[tuple[str, Sequence[str]]]:
    """Each name of a column, and each list of categories or classes, with its place."""
    yield from ((at, [name]) for at, name in _columns(declaration))
    for index, feature in enumerate(declaration.schema_.features):
        yield f"/schema/features/{index}/categories", feature.categories or ()
    for at, label in _labels(declaration):
        yield f"{at}/classes", label.classes or ()
    yield "/schema/missing_values", declaration.schema_.missing_values or ()
    for index, partition in enumerate(declaration.partitions):
        yield f"/partitions/{index}/categories", partition.categories or ()


def _labels(declaration: DatasetIn) -> Iterator[tuple[str, LabelIn]]:
    """The labels with their places."""
    schema = declaration.schema_
    if schema.label is not None:
        yield "/schema/label", schema.label
    for index, label in enumerate(schema.labels or ()):
        yield f"/schema/labels/{index}", label


def _columns(declaration: DatasetIn) -> Iterator[tuple[str, str]]:
    for index, feature in enumerate(declaration.schema_.features):
        yield f"/schema/features/{index}/name", feature.name
    for at, label in _labels(declaration):
        yield f"{at}/name", label.name
    if declaration.privacy_unit.column is not None:
        yield "/privacy_unit/column", declaration.privacy_unit.column
    for index, partition in enumerate(declaration.partitions):
        if partition.column is not None:
            yield f"/partitions/{index}/column", partition.column
