"""No row beside the entries decides which rows a job reads, how noise is scaled or what
is shown.

The list is made from the tables that a charge reads, and from the stored tasks of all
kinds of jobs: every column and every field is changed alone, so a new one is tested,
too. Each change is refused before a row is read, or changes nothing of what the child
gets, or is one of :data:`BELIEVED`, which neither reads another row nor lowers a noise.
"""

import copy
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import JSON, Column, Table, Update, event, select, update
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import Session

from app.core import stamps
from app.core.errors import BalanceMismatch
from app.datasets import catalog, private_rows
from app.datasets.catalog import DatasetRow
from app.datasets.private_rows import Selection
from app.db.base import Base, CanonicalJson
from app.db.database import Database
from app.jobs import queue
from app.jobs.queue import Claim
from app.jobs.tables import JobRow
from app.ledger import tables
from app.ledger.tables import AccountRow
from app.services.execution import run_job
from app.services.execution.charge import charge_claimed
from app.services.installation import Installation
from app.services.jobs.task import JobTask, PartRows
from app.services.ledger.external import quote_external
from app.wire.evaluations import EvaluationIn, SelectionIn
from app.wire.profiles import ProfileIn
from app.wire.reservations import ExternalIn
from app.wire.training import PlanIn, TrainIn
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy.partitions import Partitions
from tests.support import people
from tests.support.asking import (
    show_evaluation_quote,
    show_plan,
    show_profile_quote,
    submit_evaluation,
    submit_profile,
    submit_training,
)
from tests.support.crash_scene import OWNER, Scene
from tests.support.job_kinds import claimed, perform_here, request, run_here

pytestmark = pytest.mark.contract

SCHEMA = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 1000},
        {"name": "ward", "type": "categorical", "categories": ["A", "B"]},
        {"name": "site", "type": "categorical", "categories": ["A", "B"]},
    ],
    "label": {"name": "income", "classes": ["low", "high"]},
}
PARTITIONS: list[dict[str, Any]] = [
    {"name": "month", "kind": "epoch", "how": "one file per month"},
    {"name": "ward", "kind": "column", "column": "ward"},
    {"name": "land", "kind": "column", "column": "land", "categories": ["EU", "US"]},
    {"name": "shard", "kind": "hash", "cells": 2},
]
MAX_ROWS = 2
IN_EVERY_CHARGE = {
    "jobs",
    "reservations",
    "datasets",
    "epochs",
    "accounts",
    "entries",
    "keys",
    "grants",
}


@dataclass(frozen=True)
class Clinic:
    """A dataset with every kind of partition, two uploads, a profile and two models;
    and a second dataset.
    """

    installation: Installation
    dataset: str
    register: str
    uploads: list[str]
    models: list[str]
    profile: str

    @classmethod
    def opened(cls, installation: Installation) -> "Clinic":
        declared = {
            "schema": SCHEMA,
            "privacy_unit": people.per_patient(MAX_ROWS),
            "partitions": PARTITIONS,
        }
        dataset, register = (
            str(people.declared(installation, **declared)["id"]) for _ in range(2)
        )
        uploads = [_upload(installation, dataset, first_age) for first_age in (0, 100)]
        _upload(installation, register, 200)
        clinic = cls(installation, dataset, register, uploads, [], "")
        for key in ("a", "b"):
            clinic.models.append(str(clinic._ended(clinic.train(key)).release_id))
        return cls(
            installation,
            dataset,
            register,
            uploads,
            clinic.models,
            clinic._released(clinic.look("c")),
        )

    def train(self, key: str, **more: Any) -> str:
        """A forest on one ward in the first upload."""
        parameters = {"n_estimators": 2, "max_depth": 2}
        body = {
            "dataset": self.dataset,
            "algorithm": "rdt-ta",
            "epsilon": "0.01",
            "parameters": parameters,
        }
        body |= {
            "scope": {"ward": ["A"], "month": self.uploads[:1]},
            "purpose": "a pilot",
        }
        sent = request("POST /train", key)
        return _id(
            submit_training(
                self.installation,
                OWNER,
                TrainIn.model_validate(body | more),
                request=sent,
            )
        )

    def split(self, key: str) -> str:
        """A forest on two datasets."""
        return self.train(
            key,
            algorithm="sspe-1",
            unlabelled={"dataset": self.register, "epsilon": "0.02"},
        )

    def reuse(self, key: str) -> str:
        """A forest with the bins of a profile."""
        return self.train(key, algorithm="mrf", profile=self.profile)

    def look(self, key: str) -> str:
        """A profile."""
        body = ProfileIn.model_validate({"epsilon": "0.5", "scope": {"land": ["EU"]}})
        return _id(
            submit_profile(
                self.installation,
                OWNER,
                self.dataset,
                body,
                request=request("POST p", key),
            )
        )

    def judge(self, key: str) -> str:
        """An evaluation of a model."""
        body = EvaluationIn(
            epsilon="0.5", metrics=["confusion", "auroc"], scope={"shard": [1]}
        )  # type: ignore[arg-type]
        sent = request("POST e", key)
        return _id(
            submit_evaluation(
                self.installation, OWNER, self.models[:1], body, request=sent
            )
        )

    def choose(self, key: str) -> str:
        """The choice of the better of two models."""
        body = SelectionIn(models=self.models, epsilon="0.5", winner_accuracy=True)  # type: ignore[arg-type]
        return _id(
            submit_evaluation(
                self.installation,
                OWNER,
                self.models,
                body,
                request=request("POST b", key),
            )
        )

    def _ended(self, job_id: str) -> JobRow:
        run_here(self.installation, claimed(self.installation), perform_here)
        with self.installation.database.read() as session:
            return session.get_one(JobRow, job_id)

    def _released(self, job_id: str) -> str:
        return str(self._ended(job_id).release_id)


def _upload(installation: Installation, dataset: str, first_age: int) -> str:
    lines = [
        f"p{first_age + at},{first_age + at},{'AB'[at % 2]},{'AB'[at // 2 % 2]},{'low' if at % 3 else 'high'},EU"
        for at in range(40)
    ]
    body = "\n".join(["patient,age,ward,site,income,land", *lines, ""]).encode()
    return str(people.upload(installation, dataset, body)["epoch"])


def _id(answer: Any) -> str:
    return str(json.loads(answer.body)["job_id"])


KINDS: Mapping[str, Callable[[Clinic, str], str]] = {
    "train": Clinic.train,
    "two-parts": Clinic.split,
    "reused-profile": Clinic.reuse,
    "profile": Clinic.look,
    "evaluation": Clinic.judge,
    "best": Clinic.choose,
}


@dataclass(frozen=True)
class Seen:
    """What a charge lets happen: the child's task, the entries, and the facts that are
    registered with an output.
    """

    task: JobTask
    text: str
    entries: list[Any]
    output: list[Any]

    def decides(self) -> list[Any]:
        """The rows that are read, and the noise that is drawn."""
        parts = [
            (part.row_files, part.partitions, part.scope, part.data_key.secret)
            for part in self.task.parts
        ]
        plan = self.task.work["plan"]
        return [
            self.task.kind,
            parts,
            plan["event"],
            plan.get("unlabelled"),
            self.task.n_trees,
            self.entries,
        ]

    def everything(self) -> list[Any]:
        """Whatever the child gets, and whatever is shown of the job."""
        return [self.text, self.entries, self.output]

    def ids_read(self, installation: Installation) -> list[list[bytes]] | None:
        """The ids of the rows that the child reads of each part; ``None`` if it reads
        none and fails.
        """
        try:
            return [
                _ids_of(part) for part in run_job.located(installation, self.task).parts
            ]
        except (GrovekeeperError, ValueError):
            return None


def _ids_of(part: PartRows) -> list[bytes]:
    selection = Selection(
        Schema.from_json(part.schema), Partitions.from_json(part.partitions), part.scope
    )
    return [
        row_id.tobytes() for row_id in private_rows.read(part.files, selection).row_ids
    ]


def attempted(
    installation: Installation, claim: Claim, *changes: Update
) -> Seen | None:
    """What a charge would let happen after some changes; ``None`` if nothing.
    Everything is rolled back.
    """
    database = installation.database
    with database.write() as session:
        before = session.execute(
            select(JobRow.dataset_id).where(JobRow.id == claim.job_id)
        ).scalar_one()
        try:
            for change in changes:
                session.execute(change)
            session.expire_all()
            with patch.object(Database, "write", lambda _: nullcontext(session)):
                task = charge_claimed(installation, claim)
            row = session.get_one(JobRow, claim.job_id)
            output = [
                row.name,
                row.dataset_id,
                row.dataset_name,
                row.algorithm,
                row.submitted_at,
                row.submitted_by,
            ]
            seen = Seen(
                task, task.to_text(), _charged(session, before, claim.job_id), output
            )
        except (
            GrovekeeperError,
            StatementError,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ):
            seen = None
        session.rollback()
    return seen


def _charged(session: Session, dataset: str, job_id: str) -> list[Any]:
    entries = tables.entries(session, dataset, after=0, limit=10_000)
    return [
        (entry.kind, entry.amount, entry.scope, entry.event, entry.details, entry.actor)
        for entry in entries
        if entry.job_id == job_id
    ]


@pytest.fixture
def clinic(installation: Installation) -> Clinic:
    return Clinic.opened(installation)


def tables_read(installation: Installation, claim: Claim) -> set[str]:
    """The tables that a charge names in its statements."""
    sent: list[str] = []
    event.listen(
        installation.database.engine,
        "before_cursor_execute",
        lambda *it: sent.append(it[2]),
    )
    assert attempted(installation, claim) is not None
    named = {
        name
        for text in sent
        for name in re.findall(r"\b(?:FROM|JOIN|UPDATE|INTO) (\w+)", text)
    }
    return named & Base.metadata.tables.keys()


@dataclass(frozen=True)
class Change:
    """Another value of one column of a row, or of one field of its JSON; ``name``
    leaves out positions in lists.
    """

    name: str
    value: str
    statement: Update


def changes_of(
    session: Session, table: Table, rows: Iterable[Mapping[str, Any]]
) -> Iterator[Change]:
    """Changes of every column of rows, one at a time."""
    for row in rows:
        is_row = [column == row[column.name] for column in table.primary_key.columns]
        for column in table.columns:
            is_json = (
                isinstance(column.type, CanonicalJson | JSON)
                and table.name in IN_EVERY_CHARGE
            )
            others = (
                _others_of_json(row[column.name])
                if is_json
                else _others_of(column, row[column.name])
            )
            for path, other in others:
                name = "/".join([f"{table.name}.{column.name}", *path])
                yield Change(
                    name,
                    f"{other!r:.80}",
                    update(table).where(*is_row).values({column.name: other}),
                )


def _others_of(column: Column[Any], value: Any) -> Iterator[tuple[list[str], Any]]:
    if value is None:  # whatever the column takes
        yield from (([], other) for other in ("x", 1, stamps.now(), b"x"))
        return
    yield from (([], other) for other in _other_values(value))
    if column.nullable:
        yield [], None


def _other_values(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, max(value - 1, 0)]
        case float():
            return [value / 2]
        case bytes():
            return [value[:-1] + bytes([value[-1] ^ 1])]
        case datetime():
            return [value + timedelta(days=1), value - timedelta(days=1)]
        case str():
            return [f"{value}x", *_other_numbers(value)]
        case _:
            return ["x"]


def _other_numbers(text: str) -> list[str]:
    """Half and twice a number in text, in the form of the text."""
    try:
        number = Fraction(text)
    except ValueError:
        return []
    numbers = [number / 2, number * 2]
    return [
        str(other) if "/" in text else f"{float(other):.12f}".rstrip("0").rstrip(".")
        for other in numbers
    ]


def _others_of_json(value: Any) -> Iterator[tuple[list[str], Any]]:
    """Copies of a JSON value, each with another value of one field, and with a list
    shorter or an item twice.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            path = [] if name in _OF_THE_SCENE else [name]
            if name in _WHOLE:
                yield (
                    path,
                    {
                        **value,
                        name: {
                            "type": "sequential/1",
                            "parts": [{"times": 2, "event": item}],
                        },
                    },
                )
            else:
                yield from (
                    ([*path, *deeper], {**value, name: other})
                    for deeper, other in _others_of_json(item)
                )
    elif isinstance(value, list):
        if value:
            yield [], value[:-1]
        yield [], [*value, copy.deepcopy(value[-1]) if value else "x"]
        of_a_kind = (
            value if any(isinstance(item, dict) for item in value) else value[:1]
        )
        for at, item in enumerate(of_a_kind):
            yield from (
                (deeper, [*value[:at], other, *value[at + 1 :]])
                for deeper, other in _others_of_json(item)
            )
    else:
        yield from (([], other) for other in _other_values(value))


_WHOLE = {"event"}
"""Fields that are changed as a whole: an event that costs twice as much."""

_OF_THE_SCENE = {"month", "ward", "land", "shard"}
"""Names of fields that the declaration chose."""

BELIEVED: Mapping[str, str] = {
    "jobs.name": "a word of the submitter, for people",
    "jobs.submitted_at": "the time that an output shows",
    "jobs.task/work/warnings": "sentences for people",
    "jobs.task/work/plan/warnings": "sentences for people",
    "jobs.task/work/plan/parameters/n_bins": "the same draws by other public bins: another forest, at no other loss",
    "jobs.task/work/plan/parameters/feature_share": "the same draws on other features, which public coins choose",
    "jobs.task/work/plan/parameters/structure_rows": "without effect where the structure is not honest",
    "jobs.task/work/plan/profile/cuts": "public numbers: another forest, at no other loss",
    "jobs.task/work/plan/profile/prior": "public numbers: another forest, at no other loss",
    "datasets.public_size": "a declared number, for the expected accuracy and for a cluster; no price follows it",
    "datasets.population": "a name in a sentence; the entries say who is a member",
    "datasets.schema/features/lower": "numbers are clamped again, each by itself",
    "datasets.schema/features/upper": "numbers are clamped again, each by itself",
    "datasets.schema/label/name": "a name: the label is stored by its position",
    "datasets.schema/features/ordered": "how categories are split, which is public",
}
"""What no entry states and a charge believes: it changes no row that is read, no noise
and no price.
"""


def _rows_of(
    session: Session, clinic: Clinic, table: Table, job_id: str
) -> list[Mapping[str, Any]]:
    """The rows of a table that a charge of the job reads."""
    task = session.get_one(JobRow, job_id).task
    datasets = [part["dataset"] for part in task["parts"]]
    ids = {
        "jobs": [table.columns.get("id") == job_id],
        "datasets": [table.columns.get("id").in_(datasets)]
        if table.name == "datasets"
        else [],
        "accounts": [table.columns.get("id").in_(datasets)]
        if table.name == "accounts"
        else [],
        "epochs": [table.columns.get("dataset_id").in_(datasets)]
        if table.name == "epochs"
        else [],
        "reservations": [table.columns.get("job_id") == job_id],
        "entries": [table.columns.get("job_id") == job_id],
        "releases": [table.columns.get("id").in_([*clinic.models, clinic.profile])]
        if table.name == "releases"
        else [],
        "keys": [table.columns.get("id") == OWNER.key_id],
        "grants": [table.columns.get("key_id") == OWNER.key_id],
    }
    return [
        dict(row)
        for row in session.execute(select(table).where(*ids[table.name])).mappings()
    ]


WITHOUT_ROWS = {"rules", "webhooks"}
"""Tables that a charge looks into, and that are empty here: they open no row and change
no noise (tests of rules).
"""


def _belongs_to(kind: str, name: str) -> bool:
    """Whether a name of :data:`BELIEVED` has to be seen with a kind of job."""
    if name.startswith("datasets."):
        return kind == "two-parts"
    if name == "jobs.task/work/warnings":
        return kind in ("evaluation", "best")
    return kind == "reused-profile" if name.startswith("jobs.task") else True


ON_BOTH_DATABASES = [
    *(("sqlite", kind) for kind in KINDS),
    *(
        pytest.param(
            "postgresql", kind, marks=[] if kind == "two-parts" else pytest.mark.long
        )
        for kind in KINDS
    ),
]


@pytest.mark.parametrize(
    ("database_url", "kind"), ON_BOTH_DATABASES, indirect=["database_url"]
)
def test_no_column_beside_the_entries_decides_what_a_job_reads_draws_or_shows(
    clinic: Clinic, kind: str
) -> None:
    """Columns that all kinds have in common are changed for one of them, which reads
    two datasets.
    """
    installation, job_id = clinic.installation, KINDS[kind](clinic, "tampered")
    claim = claimed(installation)
    honest = attempted(installation, claim)
    assert honest is not None
    rows_read = honest.ids_read(installation)
    assert rows_read is not None
    assert all(rows_read)
    read = tables_read(installation, claim) - WITHOUT_ROWS
    changed = read if kind == "two-parts" else {"jobs"} | (read - IN_EVERY_CHARGE)
    assert read >= IN_EVERY_CHARGE
    with installation.database.read() as session:
        changes = [
            change
            for table in (Base.metadata.tables[name] for name in sorted(changed))
            for change in changes_of(
                session, table, _rows_of(session, clinic, table, job_id)
            )
        ]
    assert {change.name.partition(".")[0] for change in changes} == changed
    # the comparisons are the same code: one change of each name
    if installation.database.dialect == "postgresql":
        changes = list({change.name: change for change in changes}.values())
    believed = set()
    for change in changes:
        seen = attempted(installation, claim, change.statement)
        if seen is None or seen.everything() == honest.everything():
            continue
        ids_read = seen.ids_read(installation)
        if ids_read is not None:
            what = (
                f"{change.name} = {change.value} is neither refused nor without effect"
            )
            assert change.name in BELIEVED, what
            assert (ids_read, seen.decides()) == (rows_read, honest.decides()), what
            believed.add(change.name)
    stale = {
        name for name in BELIEVED if name not in believed and _belongs_to(kind, name)
    }
    assert not stale or installation.database.dialect == "postgresql", stale


UNIT = {"column": "patient", "form": "text"}
DECLARED: Mapping[str, dict[str, Any]] = {
    "fewer rows of a unit": {"privacy_unit": {**UNIT, "max_rows": 1}},
    "more rows of a unit": {"privacy_unit": {**UNIT, "max_rows": MAX_ROWS + 1}},
    "rows as units": {"privacy_unit": {"column": None, "max_rows": 1}},
    "another column of units": {
        "privacy_unit": {"column": "land", "form": "text", "max_rows": MAX_ROWS}
    },
    "labels alone": {"protects": "label"},
    "no cells": {"partitions": []},
    "more cells": {
        "partitions": [*PARTITIONS[:1], {"name": "shard", "kind": "hash", "cells": 3}]
    },
}
ACTS: Mapping[str, Callable[[Clinic], object]] = {
    "train": lambda clinic: clinic.train("k"),
    "split": lambda clinic: clinic.split("k"),
    "profile": lambda clinic: clinic.look("k"),
    "evaluation": lambda clinic: clinic.judge("k"),
    "quote": lambda clinic: show_plan(
        clinic.installation, OWNER, PlanIn(dataset=clinic.dataset, epsilon="1")
    ),  # type: ignore[arg-type]
    "quote of a profile": lambda clinic: show_profile_quote(
        clinic.installation,
        OWNER,
        clinic.dataset,
        ProfileIn(epsilon="1"),  # type: ignore[arg-type]
    ),
    "quote of an evaluation": lambda clinic: show_evaluation_quote(
        clinic.installation,
        OWNER,
        clinic.models[:1],
        EvaluationIn(epsilon="1"),  # type: ignore[arg-type]
    ),
    "external quote": lambda clinic: quote_external(
        clinic.installation, OWNER, clinic.dataset, EXTERNAL
    ),
    "external charge": lambda clinic: Scene(
        clinic.installation, clinic.dataset
    ).charge_external(key="k"),
    "upload": lambda clinic: _upload(clinic.installation, clinic.dataset, 300),
    "charge": lambda clinic: charge_claimed(
        clinic.installation, claimed(clinic.installation)
    ),
}
EXTERNAL = ExternalIn.model_validate(
    {
        "description": "a mean",
        "per": "row",
        "declared": {"adjacency": "add_remove", "epsilon": "0.5"},
    }
)


def test_a_dataset_that_is_not_as_its_account_states_prices_stores_and_reads_nothing(
    clinic: Clinic,
) -> None:
    waiting = clinic.train("waiting")
    database = clinic.installation.database

    with database.read() as session:
        row, account = (
            session.get_one(DatasetRow, clinic.dataset),
            session.get_one(AccountRow, clinic.dataset),
        )
        honest = {
            name: getattr(row, name)
            for name in ("privacy_unit", "protects", "partitions")
        }
        facts = {
            name: getattr(account, name)
            for name in ("privacy_unit", "adjacency", "partitions")
        }
        n_before = (
            account.last_sequence,
            len(catalog.upload_ids(session, clinic.dataset)),
        )
    for (change, values), and_account in product(DECLARED.items(), (False, True)):
        with database.write() as session:
            session.execute(
                update(DatasetRow).where(DatasetRow.id == clinic.dataset).values(values)
            )
            if and_account:
                of_account = {
                    "adjacency" if name == "protects" else name: value
                    for name, value in values.items()
                }
                session.execute(
                    update(AccountRow)
                    .where(AccountRow.id == clinic.dataset)
                    .values(of_account)
                )
        for act, perform in ACTS.items():
            with pytest.raises(BalanceMismatch):
                perform(clinic)
                pytest.fail(f"{act} with {change}")
        with database.write() as session:
            session.execute(
                update(DatasetRow).where(DatasetRow.id == clinic.dataset).values(honest)
            )
            session.execute(
                update(AccountRow).where(AccountRow.id == clinic.dataset).values(facts)
            )
            queue.requeue(session.get_one(JobRow, waiting))
    with database.read() as session:
        account = session.get_one(AccountRow, clinic.dataset)
        assert (
            account.last_sequence,
            len(catalog.upload_ids(session, clinic.dataset)),
        ) == n_before
    for perform in reversed(ACTS.values()):
        perform(clinic)
