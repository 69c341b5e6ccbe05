"""Receives an upload of rows as it arrives, for the API and for the dashboard."""

import hashlib
from collections.abc import AsyncIterator

from anyio import to_thread
from fastapi import Request

from app.access.grants import MANAGE_DATASET, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.api.capacity import Work, capacities
from app.core.sealed_files import Spool
from app.services.authorization import require_role
from app.services.datasets.upload_rows import SpooledBody, UploadTerms, upload_rows
from app.services.installation import Installation


async def receive_upload(
    request: Request,
    caller: Principal,
    dataset: str,
    chunks: AsyncIterator[bytes],
    *,
    terms: UploadTerms,
    key: str | None,
) -> Answer:
    """Write a file to a spool as it arrives, then sanitise and store its rows as an epoch.

    Args:
        request: whose body the file is, or is a part of.
        caller: has to be the owner; no byte is received for another key.
        dataset: id or name.
        chunks: the file.
        terms: how the file is read.
        key: the idempotency key, if the request has one.
    """
    installation: Installation = request.app.state.installation
    run = capacities(request).run
    dataset_id = await run(Work.AUTHENTICATION, lambda: require_role(installation, caller, dataset, MANAGE_DATASET))
    with installation.spool() as file:
        spool = Spool(file)
        digest = hashlib.sha256()
        async for chunk in chunks:
            digest.update(chunk)
            await to_thread.run_sync(spool.write, chunk)
        body = SpooledBody(await to_thread.run_sync(spool.reader), terms, digest.digest())
        # By id, so that an idempotency key does not depend on whether the URL names the dataset by id or by name.
        route = f"POST /datasets/{dataset_id}/rows"
        identity = None if key is None else IdempotentRequest(caller.key_id, route, key, digest.digest())
        return await run(Work.UPLOAD, lambda: upload_rows(installation, caller, dataset_id, body, request=identity))
