"""Validates the scope of a request and adds the uploads that exist."""

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from app.core.errors import InvalidRequest
from app.datasets import catalog
from app.privacy.composition import CellProblem, Scope, UnknownPartition


def read_scope(session: Session, dataset: catalog.Dataset, value: Mapping[str, object]) -> Scope:
    """Reads a scope in normal form.

    Raises:
        InvalidRequest: a partition that was not declared, or a list that names no cell.
    """
    try:
        scope = dataset.partitions.read_scope(value)
    except UnknownPartition:
        names = [partition.name for partition in dataset.partitions.declared]
        raise InvalidRequest.at("/scope", "unknown-partition", accepted=names) from None
    except CellProblem as problem:
        cells = dataset.partitions.cells_of(problem.partition)
        raise InvalidRequest.at(f"/scope/{problem.partition}", problem.problem, accepted=map(str, cells)) from None
    by_upload = dataset.partitions.epoch_partition
    if by_upload is not None and by_upload.name in scope:
        existing = set(catalog.upload_ids(session, dataset.id))
        if not existing.issuperset(scope[by_upload.name]):
            raise InvalidRequest.at(f"/scope/{by_upload.name}", "unknown-cell")
    return scope


def resolved(session: Session, dataset: catalog.Dataset, scope: Scope) -> Scope:
    """Resolves the scope that would be charged now; see :func:`with_uploads`."""
    return with_uploads(dataset, scope, catalog.upload_ids(session, dataset.id))


def with_uploads(dataset: catalog.Dataset, scope: Scope, uploads: Sequence[str]) -> Scope:
    """Resolves the scope that is charged: where uploads are cells, it lists the present uploads only.

    Acceptance reads ``uploads`` under the dataset's lock, in the transaction that reserves. Before the first upload
    the scope lists no upload.
    """
    by_upload = dataset.partitions.epoch_partition
    if by_upload is None or by_upload.name in scope or not uploads:
        return scope
    return dict(sorted({**scope, by_upload.name: tuple(sorted(uploads))}.items()))


def uploads_in(dataset: catalog.Dataset, scope: Scope, uploads: Sequence[str]) -> list[str]:
    """Finds the uploads whose rows lie in a scope, in the order of their arrival."""
    by_upload = dataset.partitions.epoch_partition
    if by_upload is None or by_upload.name not in scope:
        return list(uploads)
    return [upload for upload in uploads if upload in scope[by_upload.name]]
