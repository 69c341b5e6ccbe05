"""Declares datasets whose privacy unit is a column, uploads rows through the services,
and reads stored rows.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable
from typing import Any

from app.access.grants import Principal, Role
from app.access.idempotency import IdempotentRequest
from app.core.sealed_files import DataKey, SealedFile
from app.datasets import admission, catalog, row_files
from app.datasets.admission import digest_key
from app.datasets.upload_bodies import BodyForm
from app.services.datasets.declare import register_dataset
from app.services.datasets.upload import SpooledBody, UploadTerms, upload_rows
from app.services.installation import Installation
from app.services.keys import put_grant
from app.wire.datasets import DatasetIn
from tests.support.crash_scene import OWNER
from tests.support.uploads import stored_table

SCHEMA = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 1000}],
    "label": {"name": "income", "classes": ["low", "high"]},
}
BODY_SHA256 = b"." * 32
"""The digest of every body that is uploaded with an idempotency key."""


def declared(
    installation: Installation, *, principal: Principal = OWNER, **changes: object
) -> dict[str, Any]:
    """Declares a dataset with a new name; by default a row is the privacy unit."""
    value = {
        "name": f"people-{secrets.token_hex(6)}",
        "schema": SCHEMA,
        "budget": {"accountant": "pure", "epsilon": "3"},
    }
    answer = register_dataset(
        installation, principal, DatasetIn.model_validate(value | changes), request=None
    )
    return dict(json.loads(answer.body))


def own_another(installation: Installation, principal: Principal) -> None:
    """Makes a caller the owner of a dataset that nothing else is about."""
    other = declared(installation)["id"]
    put_grant(installation, OWNER, other, principal.key_id, role=Role.OWNER.value)


def per_patient(max_rows: int) -> dict[str, Any]:
    """A privacy unit by patient, with at most ``max_rows`` rows."""
    return {"column": "patient", "max_rows": max_rows}


def visits(rows: Iterable[tuple[str, int]]) -> bytes:
    """An upload of (patient, age) rows."""
    return b"patient,age,income\n" + b"".join(
        f"{patient},{age},low\n".encode() for patient, age in rows
    )


def upload(
    installation: Installation,
    dataset_id: str,
    body: bytes,
    *,
    key: str | None = None,
    principal: Principal = OWNER,
    form: BodyForm = BodyForm.CSV,
    **terms: Any,
) -> dict[str, Any]:
    """Uploads rows and returns the owner's report, nothing for a check. ``terms``: of
    :class:`UploadTerms`. Raises the service's errors.
    """
    route = f"POST /datasets/{dataset_id}/rows"
    request = (
        None
        if key is None
        else IdempotentRequest(principal.key_id, route, key, BODY_SHA256)
    )
    with installation.spool() as file:
        file.write(body)
        spooled = SpooledBody(
            file, UploadTerms(form, **terms), hashlib.sha256(body).digest()
        )
        answer = upload_rows(
            installation, principal, dataset_id, spooled, request=request
        )
    return dict(json.loads(answer.body or b"{}"))


def row_files_of(installation: Installation, dataset_id: str) -> set[str]:
    """Names of the files of rows and fingerprints of a dataset, without the admission
    book.
    """
    files = (
        path
        for kind in ("rows", "prints")
        for path in (installation.home / kind / dataset_id).iterdir()
    )
    return {path.name for path in files if not path.name.startswith("units.")}


def data_key(installation: Installation, dataset_id: str) -> DataKey:
    """The data key of a dataset."""
    with installation.database.read() as session:
        return catalog.find(session, dataset_id).data_key(installation.storage_keys)


def files(installation: Installation, dataset_id: str) -> list[SealedFile]:
    """The files of the rows of a dataset, by epoch."""
    key = data_key(installation, dataset_id)
    with installation.database.read() as session:
        epochs = [epoch.id for epoch in catalog.epochs(session, dataset_id)]
    return [
        row_files.sealed_rows(installation.files, dataset_id, epoch, key=key)
        for epoch in epochs
    ]


def stored_rows(
    installation: Installation, dataset_id: str
) -> list[list[tuple[bytes, int]]]:
    """(row id, age) of every stored row, by epoch."""
    tables = [stored_table(file) for file in files(installation, dataset_id)]
    return [
        [
            (row["row_id"], int(row["f0"]))
            for row in table.select(["row_id", "f0"]).to_pylist()
        ]
        for table in tables
    ]


def id_of(installation: Installation, dataset_id: str, patient: str) -> bytes:
    """The row id of a patient's rows."""
    key = digest_key(data_key(installation, dataset_id))
    return admission.unit_row_ids([patient], dataset_key=key)[0]
