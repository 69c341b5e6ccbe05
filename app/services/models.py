"""Serves ``/models``: lists, shows, downloads and deletes models."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import SEE_DATASET, SEE_MODEL, TAKE_MODEL, Principal
from app.access.keys import wait_for_revocation
from app.core import stamps
from app.forests import catalogue
from app.ledger import control
from app.ledger.entries import EntryKind
from app.privacy import guarantees
from app.registry import aliases, models
from app.registry.models import ALL_MODELS, ModelFilter
from app.registry.tables import ModelRow
from app.services.authorization import refreshed, write_as
from app.services.guarantees import of_population
from app.services.installation import Installation
from app.services.model_addresses import addressed_model
from app.services.pages import PageRequest, page_of
from app.wire.models import ModelList, ModelOut, ModelSummary


def show_model(installation: Installation, principal: Principal, address: str) -> ModelOut:
    """Shows the card of a model, which is read from its artifact.

    The guarantee is the present one: it follows later changes of the cap, and names a population that the dataset
    joined later.

    Raises:
        NotFound: no such model, or it is not visible to this key.
        RoleMissing: the key's role on its dataset does not allow this.
    """
    with installation.database.read() as session:
        row = addressed_model(session, principal, address, SEE_MODEL)
        facts = installation.cache.get(row.digest).metadata
        guarantee = _guarantee(session, row.dataset_id, facts["guarantee"])
        second = _unlabelled(session, principal, facts)
        names = aliases.of_models(session, [row.id])
    return _card(
        installation,
        row,
        guarantee=guarantee,
        unlabelled=second,
        addresses=names.get(row.id, []),
        trained={"scope": facts.get("scope"), "only_answer": facts.get("only_answer")},
    )


def list_models(
    installation: Installation, principal: Principal, page: PageRequest, matching: ModelFilter = ALL_MODELS
) -> ModelList:
    """Lists the models of all datasets on which the key may predict, newest first."""
    with installation.database.read() as session:
        visible = grants.datasets_with(session, principal, SEE_MODEL)
        shown, following = page_of(
            page,
            lambda limit: models.page(session, dataset_ids=visible, before=page.cursor, limit=limit, matching=matching),
            models.cursor,
        )
        names = aliases.of_models(session, [row.id for row in shown])
        return ModelList(models=[_summary(row, names.get(row.id, [])) for row in shown], next=following)


def take_artifact(installation: Installation, principal: Principal, address: str) -> BinaryIO:
    """Opens the file of a model's artifact.

    Raises:
        Unauthenticated: the key was revoked while the request waited for its turn.
        NotFound: no such model, or it is not visible to this key.
        RoleMissing: the key may predict, but not download.
    """
    return installation.store.open(_taken(installation, principal, address).digest)


def take_onnx(
    installation: Installation, principal: Principal, address: str, *, read_out: str | None = None
) -> BinaryIO:
    """Exports the model for ONNX Runtime, with the artifact's digest, guarantee and receipt, to a file without a name.

    Args:
        installation: the installation that holds the model.
        principal: the caller.
        address: id or alias of the model.
        read_out: a read-out of the algorithm; ``None``: its default.

    Raises:
        Unauthenticated: the key was revoked while the request waited for its turn.
        InvalidRequest: the algorithm has no such read-out.
        NotFound: no such model, or it is not visible to this key.
        RoleMissing: the key may predict, but not download.
        NotSupported: the algorithm cannot be exported to ONNX yet.
    """
    from app.forests.onnx import model  # 0.25 s to import, needed by an export only

    row = _taken(installation, principal, address)
    with ExitStack() as closes:
        file = closes.enter_context(installation.spool())
        file.write(model.dumps(installation.cache.get(row.digest), digest=row.digest, read_out=read_out))
        file.seek(0)
        closes.pop_all()
        return file


def delete_model(installation: Installation, principal: Principal, address: str) -> None:
    """Deletes a model, and its artifact unless another model refers to it. What was charged stays charged.

    Raises:
        NotFound: no such model, or it is not visible to this key.
        RoleMissing: the key may predict, but not delete.
        ModelHasAlias: an alias names the model.
    """
    with write_as(installation, principal) as (session, principal):
        row = addressed_model(session, principal, address, TAKE_MODEL)
        digest = models.remove(session, row.id)
        details = {"dataset": row.dataset_id, "model": row.id}
        control.record(session, EntryKind.MODEL_DELETED, actor=principal.key_id, **details)
        is_needed = models.is_referenced(session, digest)
    wait_for_revocation()
    if not is_needed:
        installation.store.remove(digest)
        installation.cache.forget(digest)


def _taken(installation: Installation, principal: Principal, address: str) -> ModelRow:
    """The row of a model that the caller may download now."""
    with installation.database.read() as session:
        return addressed_model(session, refreshed(installation, session, principal), address, TAKE_MODEL)


def _guarantee(session: Session, dataset_id: str, trained: Any) -> dict[str, Any]:
    """The present guarantee of a model and its account, from the guarantee at the time of training."""
    account = models.guarantee(session, dataset_id)
    guarantee = trained if account is None else guarantees.of_output(trained["adds"], account)
    return of_population(guarantee, models.population(session, dataset_id))


def _unlabelled(session: Session, principal: Principal, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The card's facts about a second dataset, with the present guarantee.

    To a caller who may not see that dataset, the facts state what the model adds for its people, and no name.
    """
    second = facts.get("unlabelled")
    if second is None:
        return None
    visible = grants.datasets_with(session, principal, SEE_DATASET)
    if visible is not None and second["dataset"] not in visible:
        names = dict.fromkeys(("dataset", "dataset_name", "ledger"))
        return {**second, **names, "guarantee": {"adds": second["guarantee"]["adds"]}}
    return {**second, "guarantee": _guarantee(session, second["dataset"], second["guarantee"])}


def _card(
    installation: Installation,
    row: ModelRow,
    *,
    guarantee: dict[str, Any],
    unlabelled: dict[str, Any] | None,
    addresses: Sequence[str],
    trained: Mapping[str, Any],
) -> ModelOut:
    artifact = installation.cache.get(row.digest)
    facts = artifact.metadata
    return ModelOut.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "aliases": addresses,
            "dataset": row.dataset_id,
            "dataset_name": row.dataset_name,
            "job_id": row.job_id,
            **trained,
            "algorithm": artifact.plan.algorithm,
            "parameters": dict(artifact.plan.parameters),
            "schema": artifact.schema.to_json(),
            "guarantee": guarantee,
            "receipt": facts["receipt"],
            "event": artifact.plan.event.to_json(),
            "ledger": facts["ledger"],
            "profile_id": facts["profile_id"],
            "unlabelled": unlabelled,
            "read_outs": list(catalogue.read_outs(artifact.plan.algorithm)),
            "digest": row.digest,
            "size_bytes": row.size_bytes,
            "created_at": stamps.to_text(row.created_at),
        }
    )


def _summary(row: ModelRow, addresses: Sequence[str]) -> ModelSummary:
    return ModelSummary(
        id=row.id,
        name=row.name,
        aliases=list(addresses),
        dataset=row.dataset_id,
        dataset_name=row.dataset_name,
        algorithm=row.algorithm,
        digest=row.digest,
        created_at=stamps.to_text(row.created_at),
    )
