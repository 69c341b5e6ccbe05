"""Validates the scope of a request and adds the uploads that exist."""

from collections.abc import Mapping

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
        existing = {epoch.id for epoch in catalog.epochs(session, dataset.id)}
        if not existing.issuperset(scope[by_upload.name]):
            raise InvalidRequest.at(f"/scope/{by_upload.name}", "unknown-cell")
    return scope


def resolved(session: Session, dataset: catalog.Dataset, scope: Scope) -> Scope:
    """Resolves the scope that is charged: where uploads are cells, it lists the present uploads only.

    Acceptance calls this function under the dataset's lock, in the transaction that reserves. Before the first upload
    the scope lists no upload.
    """
    by_upload = dataset.partitions.epoch_partition
    if by_upload is None or by_upload.name in scope:
        return scope
    epochs = tuple(sorted(epoch.id for epoch in catalog.epochs(session, dataset.id)))
    return dict(sorted({**scope, by_upload.name: epochs}.items())) if epochs else scope


def epochs_of(session: Session, dataset: catalog.Dataset, scope: Scope) -> list[str]:
    """Finds the uploads whose rows lie in a scope, in the order of their arrival."""
    by_upload = dataset.partitions.epoch_partition
    existing = [epoch.id for epoch in catalog.epochs(session, dataset.id)]
    if by_upload is None or by_upload.name not in scope:
        return existing
    return [epoch for epoch in existing if epoch in scope[by_upload.name]]
