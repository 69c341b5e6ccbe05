"""Opens an installation with one small dataset, and checks the history of its account.

Tests of the queue, of races and of crashes use it. The checks replay the ledger from
the entries alone, without code of the product.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.access import keys
from app.access.grants import Principal, Role
from app.access.idempotency import Answer, IdempotentRequest
from app.access.tables import KeyRow
from app.core.settings import Settings
from app.datasets.catalog import DatasetRow
from app.datasets.upload_bodies import BodyForm
from app.jobs import queue
from app.jobs.tables import JobRow
from app.ledger import accounts, statements, tables
from app.ledger.tables import Entry
from app.registry.tables import ReleaseRow
from app.services.datasets.declare import register_dataset
from app.services.datasets.upload import SpooledBody, UploadTerms, upload_rows
from app.services.installation import Installation
from app.services.ledger import history
from app.services.ledger.balances import change_cap
from app.services.ledger.external import charge_external
from app.services.ledger.heads import confirm_storage_keys, open_signer
from app.wire.datasets import DatasetIn
from app.wire.ledger import CapIn
from app.wire.reservations import ExternalIn
from app.wire.training import TrainIn
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_verifier.dataset_replay import Summary, verify
from tests.support.asking import submit_training
from tests.support.checked_exports import verdict

DELTA = "0.000001"
CELLS = 4
OWNER = Principal("key_owner", frozenset({Role.OWNER}))
ADMIN = Principal("key_admin", frozenset({Role.ADMIN}))
STRANGER = Principal("key_stranger", frozenset({Role.OWNER}))
EVENT = {
    "type": "discrete-laplace/1",
    "adjacency": "add_remove",
    "l1_sensitivity": "1",
    "inverse_scale": "1/4294967296",
    "coordinates": 1,
}
"""An event that costs less than one nano-ε, so that any amount pays for it."""

_ROWS = b"age,income\n" + b"".join(
    b"%d,%s\n" % (age, b"low" if age % 3 else b"high") for age in range(20, 60)
)


@dataclass(frozen=True)
class Scene:
    """An open installation whose dataset has rows, four hash cells and a cap."""

    installation: Installation
    dataset_id: str

    @classmethod
    def declared(cls, installation: Installation, *, epsilon: str = "3") -> "Scene":
        """A scene on an open installation; its dataset has one upload."""
        scene = cls(installation, _declare(installation, epsilon))
        scene.upload()
        return scene

    @classmethod
    def stored(cls, installation: Installation) -> "Scene":
        """The scene that the database of an installation has."""
        with installation.database.read() as session:
            return cls(
                installation, session.execute(select(DatasetRow.id)).scalar_one()
            )

    def with_leases(self, ttl_s: int) -> "Scene":
        """The scene with leases of another length."""
        settings = replace(self.installation.settings, lease_ttl_s=ttl_s)
        return Scene(replace(self.installation, settings=settings), self.dataset_id)

    def upload(self) -> None:
        """Uploads forty rows as a new epoch."""
        with self.installation.spool() as file:
            file.write(_ROWS)
            body = SpooledBody(
                file,
                UploadTerms(BodyForm.CSV, again=True),
                hashlib.sha256(_ROWS).digest(),
            )
            upload_rows(self.installation, OWNER, self.dataset_id, body, request=None)

    def submit(
        self,
        *,
        key: str,
        epsilon: str = "0.01",
        scope: dict[str, Any] | None = None,
        by: Principal = OWNER,
        digest: str | None = None,
        purpose: str | None = None,
        **parameters: object,
    ) -> Answer:
        """Submits a training of a tiny forest. Raises the service's errors.

        Args:
            key: the idempotency key.
            epsilon: the ε of the request.
            scope: the scope of the request.
            by: the caller.
            digest: stands for the digest of the body; by default, all bodies with a key
                count as equal.
            purpose: that the caller states.
            parameters: of the algorithm.
        """
        body = TrainIn(
            dataset=self.dataset_id,
            algorithm="rdt-ta",
            epsilon=epsilon,  # type: ignore[arg-type]  # as it comes over the wire
            parameters={"n_estimators": 2, "max_depth": 2, **parameters},
            scope=scope or {},
            purpose=purpose,
        )
        request = IdempotentRequest(
            by.key_id, "POST /train", key, (digest or key).encode().ljust(32, b".")
        )
        return submit_training(self.installation, by, body, request=request)

    def charge_external(self, *, key: str, epsilon: str = "0.5") -> Answer:
        """Charges for an external mechanism."""
        declared = {"adjacency": "add_remove", "epsilon": epsilon}
        body = ExternalIn.model_validate(
            {"description": "a mean", "per": "row", "declared": declared}
        )
        request = IdempotentRequest(
            OWNER.key_id, "POST", key, key.encode().ljust(32, b".")
        )
        return charge_external(
            self.installation, OWNER, self.dataset_id, body, request=request
        )

    def lower_cap(self, epsilon: str, *, key: str) -> Answer:
        """Lowers the cap of the account."""
        body = CapIn.model_validate({"cap": epsilon, "reason": "a test"})
        request = IdempotentRequest(
            OWNER.key_id, "POST", key, key.encode().ljust(32, b".")
        )
        return change_cap(
            self.installation, OWNER, self.dataset_id, body, request=request
        )

    def submit_job(self, **request: Any) -> str:
        """Submits a training as :meth:`submit` does, and returns the job's id."""
        return str(json.loads(self.submit(**request).body)["job_id"])

    def job(self, job_id: str) -> JobRow:
        """The row of a job."""
        with self.installation.database.read() as session:
            return queue.job(session, job_id)

    def end(self, job_id: str) -> tuple[str, str | None, list[str]]:
        """State and reason of a job, and the kinds of its entries."""
        row = self.job(job_id)
        return row.state, row.reason, self.kinds_of(job_id)

    def entries(self) -> list[Entry]:
        """All entries of the account."""
        with self.installation.database.read() as session:
            return _entries(session, self.dataset_id)

    def kinds_of(self, job_id: str) -> list[str]:
        """The kinds of a job's entries, in order."""
        return [entry.kind.value for entry in self.entries() if entry.job_id == job_id]

    def export(self) -> list[bytes]:
        """The lines of the account's export."""
        return list(
            history.export_json_lines(self.installation, OWNER, self.dataset_id)
        )

    def verified(self) -> Summary:
        """Checks the account's history and returns the verifier's summary.

        The balances equal those of the entries, no prefix exceeds the cap, the export
        verifies, and the checked function admits every entry again. Workers may run
        meanwhile: balances and entries are of one snapshot.
        """
        with self.installation.database.read() as session:
            cells = cell_balances(session, self.dataset_id)
            entries = _entries(session, self.dataset_id)
        assert replayed(entries, n_cells=CELLS) == cells
        lines = list(self.export())
        summary = verify(lines)
        assert verdict(lines) == (None, summary.tightest.load)
        return summary

    def assert_no_orphans(self) -> None:
        """Asserts that no job folder is left, and that the store has exactly the
        artifacts of models.
        """
        folder = self.installation.home / "jobs"
        assert not folder.exists() or not list(folder.iterdir())
        with self.installation.database.read() as session:
            digests = set(
                session.execute(
                    select(ReleaseRow.digest).where(ReleaseRow.kind == "train")
                ).scalars()
            )
        stored = {
            path.name for path in (self.installation.home / "artifacts").glob("*/*")
        }
        assert stored == {f"{digest}.safetensors" for digest in digests}


@contextmanager
def opened(
    url: str, home: Path, *, epsilon: str = "3", lease_ttl_s: int = 3
) -> Iterator[Scene]:
    """Opens a scene on a migrated, empty database."""
    installation = open_installation(url, home, lease_ttl_s=lease_ttl_s)
    try:
        yield Scene.declared(installation, epsilon=epsilon)
    finally:
        installation.close()


def open_installation(
    url: str, home: Path, *, lease_ttl_s: int = 3, pool_size: int = 8
) -> Installation:
    """Opens an installation with short leases and polls, in which the callers of the
    tests have their keys.
    """
    return open_with(_settings(url, home, lease_ttl_s), pool_size=pool_size)


def open_copy(url: str, home: Path, *, lease_ttl_s: int = 3) -> Installation:
    """Opens a copy of what :func:`open_installation` made."""
    return Installation.open(_settings(url, home, lease_ttl_s), pool_size=8)


def _settings(url: str, home: Path, lease_ttl_s: int) -> Settings:
    return Settings(
        home=home, database_url=url, lease_ttl_s=lease_ttl_s, poll_interval_s=0.05
    )


def open_with(settings: Settings, *, pool_size: int = 8) -> Installation:
    """Opens an installation in which the callers of the tests have their keys."""
    with ExitStack() as closes:
        installation = Installation.open(settings, pool_size=pool_size)
        closes.callback(installation.close)
        confirm_storage_keys(installation)
        open_signer(settings, [], make=True)
        with installation.database.write() as session:
            for caller in (OWNER, ADMIN, STRANGER):
                if session.get(KeyRow, caller.key_id) is None:
                    roles = sorted(caller.roles)
                    keys.add(
                        session,
                        key_id=caller.key_id,
                        secret="s" * 43,
                        name="test",
                        roles=roles,
                    )
        closes.pop_all()
    return installation


FOUR_CELLS = Partitions((HashPartition("shard", CELLS),))


def open_account(
    installation: Installation,
    account_id: str,
    *,
    cap: int,
    accountant: str = "pure",
    partitions: Partitions = FOUR_CELLS,
) -> None:
    """Opens an account without a dataset; ``cap`` is in steps of its unit."""
    new_account = accounts.NewAccount(
        id=account_id,
        name="census",
        accountant=accountant,
        adjacency="add_remove",
        cap=cap,
        delta=None if accountant == "pure" else DELTA,
        privacy_unit={"column": None, "max_rows": 1},
        partitions=partitions,
    )
    with installation.database.write() as session:
        accounts.open_account(session, new_account, actor=OWNER.key_id)


def cell_balances(session: Session, account_id: str) -> list[tuple[int, int]]:
    """(charged, reserved) of every cell of the only partition; one pair if the account
    has no partition.
    """
    for cells in statements.detail(session, account_id).cells.values():
        return [(cell.charged, cell.reserved) for cell in cells]
    balance = statements.balance(session, account_id)
    return [(balance.charged, balance.reserved)]


def _entries(session: Session, account_id: str) -> list[Entry]:
    return tables.entries(session, account_id, after=0, limit=1_000_000)


@dataclass
class _Replay:
    n_cells: int
    cap: int = 0
    charged: Counter[int] = field(default_factory=Counter)
    reserved: Counter[int] = field(default_factory=Counter)
    open: dict[str, Entry] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)

    def take(self, entry: Entry) -> None:
        cells = list(entry.scope.get("shard", range(self.n_cells)))
        if entry.kind.value in ("open", "cap"):
            self.cap = entry.amount
            return
        job_id = str(entry.job_id)
        if entry.kind.value == "reserve":
            assert job_id not in self.open.keys() | self.settled
            self.open[job_id] = entry
            self.reserved.update(dict.fromkeys(cells, entry.amount))
            loads = [self.charged[cell] + self.reserved[cell] for cell in cells]
            assert max(loads) <= self.cap, f"over the cap after entry {entry.sequence}"
        else:
            reservation = self.open.pop(job_id)
            assert (entry.amount, entry.scope) == (
                reservation.amount,
                reservation.scope,
            )
            self.settled.add(job_id)
            self.reserved.subtract(dict.fromkeys(cells, entry.amount))
            if entry.kind.value == "charge":
                self.charged.update(dict.fromkeys(cells, entry.amount))


def replayed(entries: Sequence[Entry], *, n_cells: int) -> list[tuple[int, int]]:
    """(charged, reserved) of every cell after all entries.

    Asserts that no admission exceeds the cap, and that a reservation is settled at most
    once.
    """
    replay = _Replay(n_cells)
    for sequence, entry in enumerate(entries, start=1):
        assert entry.sequence == sequence
        replay.take(entry)
    return [(replay.charged[cell], replay.reserved[cell]) for cell in range(n_cells)]


def open_reservations(entries: Iterable[Entry]) -> set[str]:
    """Ids of the jobs whose reservations are not settled."""
    job_ids: set[str] = set()
    for entry in entries:
        if entry.kind.value == "reserve":
            job_ids.add(str(entry.job_id))
        else:
            job_ids.discard(str(entry.job_id))
    return job_ids


def _declare(installation: Installation, epsilon: str) -> str:
    declaration = DatasetIn.model_validate(
        {
            "name": "census",
            "schema": {
                "features": [
                    {"name": "age", "type": "integer", "lower": 0, "upper": 120}
                ],
                "label": {"name": "income", "classes": ["low", "high"]},
            },
            "budget": {"accountant": "pure", "epsilon": epsilon},
            "partitions": [{"name": "shard", "kind": "hash", "cells": CELLS}],
        }
    )
    answer = register_dataset(installation, OWNER, declaration, request=None)
    return str(json.loads(answer.body)["id"])
