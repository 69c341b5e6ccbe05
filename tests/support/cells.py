"""Sends the request of every cell of the table of roles, to a dataset in every state,
with a key of every caller.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx
import pytest
from sqlalchemy.orm import Session

from app.api.main import create_app
from app.core import stamps
from app.datasets import erasure
from app.db.base import Base
from app.db.database import Database
from app.jobs.tables import JobRow
from app.registry.tables import ReleaseRow
from tests.support.estate import (
    Estate,
    name_model,
    upload_of,
    waiting_job,
    with_person,
    with_unit,
)
from tests.support.in_process import InProcess, in_process
from tests.support.operations import EXTERNAL, REQUESTS, WEBHOOK, Ask, Targets
from tests.support.role_table import Caller, Place
from tests.support.server import Server, new_idempotency_key

_Row = TypeVar("_Row", bound=Base)


@dataclass(frozen=True)
class Cells:
    """An estate whose API also runs in this process.

    Attributes:
        estate: the living dataset and its objects, and a real server.
        api: the API of the same installation in this process.
        database: of that API.
        places: what requests name, by its state.
        special: objects in a state that one operation needs, in place of those in
            ``places``.
        granted: datasets on which the callers have their grants.
    """

    estate: Estate
    api: InProcess
    database: Database
    places: dict[Place, Targets]
    special: dict[tuple[str, Place], dict[str, str]]
    granted: tuple[str, ...]
    _keys: dict[Caller, str] = field(default_factory=dict, repr=False)

    def key(self, caller: Caller) -> str:
        """The text of a key of a kind of caller, made at the first use."""
        if caller not in self._keys:
            admin = self.estate.server.admin.key
            roles = [] if caller.role is None else [caller.role]
            made = self.api.request(
                "POST", "/keys", key=admin, json={"name": "test", "roles": roles}
            ).json()
            for dataset in self.granted if caller.grant is not None else ():
                path = f"/datasets/{dataset}/grants/{made['id']}"
                assert (
                    self.api.request(
                        "PUT", path, key=admin, json={"role": caller.grant}
                    ).status_code
                    == 200
                )
            self._keys[caller] = made["key"]
        return self._keys[caller]

    def answer(self, operation: str, place: Place, key: str | None) -> httpx.Response:
        """The answer to a valid request that names something in a state."""
        targets = self.places[Place.LIVING if place is Place.NOTHING else place]
        method, path, options = REQUESTS[operation](
            replace(targets, **self.special.get((operation, place), {}))
        )
        return self.api.request(method, path, key=key, **options)

    def send(self, request: Ask, key: str) -> httpx.Response:
        """The answer to a request, whose effects stay."""
        method, path, options = request
        return self.api.request(method, path, key=key, **options)


@contextmanager
def undone(database: Database) -> Iterator[None]:
    """Rolls back every write transaction that would commit, after the database has
    checked its statements.

    The rows of an erased unit stay, too, so that the next caller can erase them.
    """
    begin = database.write

    @contextmanager
    def rolled_back() -> Iterator[Session]:
        with suppress(_Undo), begin() as session:
            yield session
            session.flush()
            # a rollback expires the rows, which services read after a commit
            session.expunge_all()
            raise _Undo

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "write", rolled_back)
        patched.setattr(erasure, "erase_rows", lambda *_, **__: 1)
        yield


class _Undo(Exception):
    """Ends a transaction whose writes are rolled back."""


@contextmanager
def opened_cells(estate: Estate) -> Iterator[Cells]:
    """Opens the API of an estate in this process, and makes a deleted dataset and a
    foreign dataset.
    """
    server, living = estate.server, estate.targets
    deleted, foreign = _copied(server, living), _copied(server, living)
    of_place = {Place.LIVING: living, Place.DELETED: deleted, Place.FOREIGN: foreign}
    special = {
        ("cancel_job", place): {"job": _queued(server, named.dataset)}
        for place, named in of_place.items()
    }
    special["erase_person", Place.POPULATION] = {"population": with_person(server)}
    for place in (Place.LIVING, Place.FOREIGN):
        special["delete_dataset", place] = {"dataset": server.declared()["id"]}
        special["erase_unit", place] = {"dataset": with_unit(server)}
        uploaded = server.uploaded()["id"]
        special["erase_upload", place] = {
            "dataset": uploaded,
            "upload": upload_of(server, uploaded),
        }
        special["decide_job", place] = _with_waiting_job(server)
    of_callers = [
        named["dataset"]
        for (_, place), named in special.items()
        if place is Place.LIVING and "dataset" in named
    ]
    granted = (living.dataset, deleted.dataset, *of_callers)
    assert server.admin.http.delete(f"/datasets/{deleted.dataset}").status_code == 204
    missing = {
        name: f"{made.partition('_')[0]}_{secrets.token_hex(8)}"
        for name, made in vars(living).items()
    }
    of_place[Place.MISSING] = Targets(**missing | {"key": living.key})
    of_place[Place.POPULATION] = replace(living, dataset=living.population)
    app = create_app(server.settings)
    try:
        with in_process(app) as api:
            yield Cells(
                estate, api, app.state.installation.database, of_place, special, granted
            )
    finally:
        app.state.installation.close()


def _queued(server: Server, dataset: str) -> str:
    """An unfinished job."""
    return str(server.submitted(dataset).json()["job_id"])


def _with_waiting_job(server: Server) -> dict[str, str]:
    """A dataset and a job of another key that waits there for an approval."""
    dataset = server.uploaded()["id"]
    return {"dataset": dataset, "job": waiting_job(server, dataset)}


def _copied(server: Server, of: Targets) -> Targets:
    """Another dataset with copies of the trained objects."""
    dataset = server.uploaded(budget={"accountant": "pure", "epsilon": "1000"})["id"]
    with server.database.write() as session:
        copies = {
            "job": _copy(session, JobRow, of.job, stamps.JOB, dataset),
            "model": _copied_release(session, of.model, stamps.MODEL, dataset),
            "rival": _copied_release(session, of.rival, stamps.MODEL, dataset),
            "profile": _copied_release(session, of.profile, stamps.PROFILE, dataset),
            "statistics": _copied_release(
                session, of.statistics, stamps.STATISTICS, dataset
            ),
            "evaluation": _copied_release(
                session, of.evaluation, stamps.EVALUATION, dataset
            ),
        }
    name_model(server, dataset, copies["rival"])
    headers = new_idempotency_key()
    charged = server.admin.http.post(
        f"/ledger/{dataset}/reservations", json=EXTERNAL, headers=headers
    )
    upload = upload_of(server, dataset)
    webhook = server.admin.http.post(
        f"/datasets/{dataset}/webhooks", json=WEBHOOK
    ).json()["id"]
    charge = charged.json()["reservation_id"]
    return replace(
        of,
        dataset=dataset,
        reservation=charge,
        upload=upload,
        webhook=webhook,
        **copies,
    )


def _copy(
    session: Session,
    kind: type[_Row],
    row_id: str,
    prefix: str,
    dataset: str,
    **changes: Any,
) -> str:
    row = session.get_one(kind, row_id)
    values = {
        column.name: getattr(row, column.name) for column in kind.__table__.columns
    }
    copy_id = stamps.new(prefix)
    session.add(kind(**values | {"id": copy_id, "dataset_id": dataset} | changes))
    return copy_id


def _copied_release(
    session: Session, release_id: str, prefix: str, dataset: str
) -> str:
    job_id = _copy(
        session,
        JobRow,
        session.get_one(ReleaseRow, release_id).job_id,
        stamps.JOB,
        dataset,
    )
    return _copy(session, ReleaseRow, release_id, prefix, dataset, job_id=job_id)
