"""Tests declarations and erasures of one name at the same time, on both databases: no
load is lost or counted twice.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Lock

import pytest

from app.access.idempotency import IdempotentRequest
from app.core.errors import (
    ChangedMeanwhile,
    DeclarationFixed,
    NameTaken,
    RowsInvalid,
    Unavailable,
)
from app.datasets.upload_bodies import BodyForm
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services.datasets.change import change_columns
from app.services.datasets.declare import register_dataset
from app.services.datasets.erase import delete_dataset
from app.services.datasets.membership import join_population
from app.services.datasets.show import show_dataset
from app.services.datasets.upload import SpooledBody, UploadTerms, upload_rows
from app.services.installation import Installation
from app.services.ledger.external import charge_external
from app.wire.datasets import DatasetIn, DatasetOut, SchemaIn
from app.wire.reservations import ExternalIn
from tests.support.crash_scene import OWNER, open_installation

N_THREADS = 6
DECLARATION = DatasetIn.model_validate(
    {
        "name": "clinic",
        "schema": {
            "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 120}],
            "label": {"name": "income", "classes": ["low", "high"]},
        },
        "budget": {"accountant": "pure", "epsilon": "3"},
        "population": "people",
    }
)


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> Iterator[Installation]:
    """An installation without datasets."""
    opened = open_installation(database_url, tmp_path / "home")
    yield opened
    opened.close()


def _declare(installation: Installation) -> DatasetOut | None:
    try:
        return DatasetOut.model_validate_json(
            register_dataset(installation, OWNER, DECLARATION, request=None).body
        )
    except NameTaken:
        return None


def _spend(installation: Installation, dataset: str, epsilon: str) -> None:
    declared = {"adjacency": "add_remove", "epsilon": epsilon}
    body = ExternalIn.model_validate(
        {"description": "a mean", "per": "row", "declared": declared}
    )
    request = IdempotentRequest(OWNER.key_id, "POST", f"{dataset} {epsilon}", b"." * 32)
    charge_external(installation, OWNER, dataset, body, request=request)


def _together(work: Callable[[], object]) -> list[object]:
    """The results of threads that begin at the same moment."""
    start = Barrier(N_THREADS)

    def run() -> object:
        start.wait(60)
        return work()

    with ThreadPoolExecutor(N_THREADS) as pool:
        return [
            future.result(120)
            for future in [pool.submit(run) for _ in range(N_THREADS)]
        ]


def _sent(work: Callable[[], object]) -> bool:
    try:
        work()
    except (ChangedMeanwhile, DeclarationFixed, RowsInvalid, Unavailable):
        return False
    return True


@pytest.mark.parametrize("kind", ["upload", "charge", "join"])
def test_columns_do_not_change_under_what_follows_from_them(
    installation: Installation, kind: str
) -> None:
    columns = DECLARATION.schema_.model_dump(exclude_none=True)
    columns["features"][0]["name"] = "years"
    other = SchemaIn.model_validate(columns)
    rows = b"age,income\n40,low\n"
    for number in range(8):
        name = f"{kind}{number}"
        body = DECLARATION.model_copy(update={"name": name, "population": None})
        declared = DatasetOut.model_validate_json(
            register_dataset(installation, OWNER, body, request=None).body
        )
        spooled = SpooledBody(
            io.BytesIO(rows), UploadTerms(BodyForm.CSV), hashlib.sha256(rows).digest()
        )
        follow = {
            "upload": partial(
                upload_rows, installation, OWNER, name, spooled, request=None
            ),
            "charge": partial(_spend, installation, name, "0.1"),
            "join": partial(
                join_population, installation, OWNER, name, population="people"
            ),
        }[kind]
        change = partial(change_columns, installation, OWNER, name, other)
        turns = [follow, *[change] * (N_THREADS - 1)]
        lock = Lock()

        def run(turns: list[Callable[[], object]] = turns, lock: Lock = lock) -> object:
            with lock:
                work = turns.pop(0)
            return work, _sent(work)

        results = dict(_together(run))  # type: ignore[arg-type]
        shown = show_dataset(installation, OWNER, name)
        with installation.database.read() as session:
            acts = [
                act
                for act in control.details_of(session, EntryKind.DATASET_CHANGED)
                if act["dataset"] == declared.id
            ]
        assert len(acts) <= 1
        assert (shown.schema_ != declared.schema_) == bool(acts)
        if kind == "upload":
            assert results[follow] is not bool(acts), (
                "the rows were read by the columns that the dataset has"
            )
        if results[follow]:
            with pytest.raises(DeclarationFixed):
                not_in_force = DECLARATION.schema_ if acts else other
                change_columns(installation, OWNER, name, not_in_force)


def test_one_of_many_declarations_takes_up_a_name(installation: Installation) -> None:
    erased = _declare(installation)
    assert erased is not None
    _spend(installation, erased.id, "1")
    delete_dataset(installation, OWNER, erased.id)
    [winner] = [
        dataset
        for dataset in _together(lambda: _declare(installation))
        if isinstance(dataset, DatasetOut)
    ]
    assert (winner.continues, winner.account.charged) == (erased.id, "1")


def test_every_load_of_a_name_is_found_again_whoever_declares_and_erases_when(
    installation: Installation,
) -> None:
    def declare_spend_and_erase() -> list[str]:
        continued = []
        while len(continued) < 3:
            if (dataset := _declare(installation)) is not None:
                _spend(installation, dataset.id, "0.1")
                delete_dataset(installation, OWNER, dataset.id)
                continued.append(json.dumps([dataset.id, dataset.continues]))
        return continued

    links = [
        json.loads(link)
        for result in _together(declare_spend_and_erase)
        for link in result
    ]  # type: ignore[attr-defined]
    last = _declare(installation)
    assert last is not None
    assert last.account.charged == "1.8"
    chain, names = [last.continues], dict(links)
    while chain[-1] is not None:
        chain.append(names.pop(chain[-1]))
    assert not names, "every dataset is continued once"
