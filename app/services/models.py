"""``/models``: cards, artifacts, removal."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from app.access import grants
from app.access.roles import SEE_MODEL, TAKE_MODEL, Principal
from app.core import clock
from app.forests import catalogue
from app.privacy import guarantees
from app.registry import models
from app.registry.tables import ModelRow
from app.services.guarantees import of_population
from app.services.installation import Installation
from app.services.pages import PageRequest, page_of
from app.wire.models import ModelList, ModelOut, ModelSummary


def show_model(installation: Installation, principal: Principal, model_id: str) -> ModelOut:
    """The card of one model, read from the artifact itself.

    Its guarantee is that of today: a cap that was changed since changes what holds for all outputs of the account
    together, and it names the population that the dataset joined since.

    Raises:
        NotFound: no such model, or none that this key may know of.
        RoleMissing: the key has another role on its dataset.
    """
    with installation.database.read() as session:
        row = models.find(session, model_id)
        grants.require(session, principal, row.dataset_id, SEE_MODEL, kind="model")
        facts = installation.cache.get(row.digest).metadata
        guarantee, also = _guarantee(session, row.dataset_id, facts["guarantee"]), _unlabelled(session, facts)
    return _card(installation, row, guarantee=guarantee, unlabelled=also)


def list_models(installation: Installation, principal: Principal, page: PageRequest) -> ModelList:
    """The models of all datasets on which the key may predict, newest first."""
    with installation.database.read() as session:
        visible = grants.datasets_with(session, principal, SEE_MODEL)
        shown, following = page_of(
            page,
            lambda limit: models.page(session, dataset_ids=visible, before=page.cursor, limit=limit),
            models.cursor,
        )
        return ModelList(models=[_summary(row) for row in shown], next=following)


def take_artifact(installation: Installation, principal: Principal, model_id: str) -> bytes:
    """The artifact's bytes, to take away.

    Raises:
        NotFound: no such model, or none that this key may know of.
        RoleMissing: the key may predict but not take the model.
    """
    with installation.database.read() as session:
        row = models.find(session, model_id)
        grants.require(session, principal, row.dataset_id, TAKE_MODEL, kind="model")
    return installation.store.get(row.digest)


def take_onnx(installation: Installation, principal: Principal, model_id: str, *, read_out: str | None = None) -> bytes:
    """The same model for ONNX Runtime; it carries the artifact's digest, guarantee and receipt.

    Args:
        installation: this one.
        principal: who asks.
        model_id: of a model.
        read_out: one that the algorithm offers; ``None``: its default.

    Raises:
        InvalidRequest: the model offers no such read-out.
        NotFound: no such model, or none that this key may know of.
        RoleMissing: the key may predict but not take the model.
        NotSupported: the algorithm has no form in ONNX yet.
    """
    from app.forests.onnx import model  # a quarter of a second that only an export waits for

    with installation.database.read() as session:
        row = models.find(session, model_id)
        grants.require(session, principal, row.dataset_id, TAKE_MODEL, kind="model")
    return model.dumps(installation.cache.get(row.digest), digest=row.digest, read_out=read_out)


def delete_model(installation: Installation, principal: Principal, model_id: str) -> None:
    """Removes a model and its artifact. What was spent for it stays spent.

    Raises:
        NotFound: no such model, or none that this key may know of.
        RoleMissing: the key may predict but not remove.
    """
    with installation.database.write() as session:
        row = models.find(session, model_id)
        grants.require(session, principal, row.dataset_id, TAKE_MODEL, kind="model")
        digest = models.remove(session, model_id)
        is_needed = models.is_referenced(session, digest)
    if not is_needed:
        installation.store.remove(digest)
        installation.cache.forget(digest)


def _guarantee(session: Session, dataset_id: str, own: Any) -> dict[str, Any]:
    """The guarantee of a model and of its account today; ``own`` is the one of the day the model was made."""
    account = models.guarantee(session, dataset_id)
    told = own if account is None else guarantees.of_output(own["adds"], account)
    return of_population(told, models.population(session, dataset_id))


def _unlabelled(session: Session, facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the card says of a second dataset, with today's guarantee."""
    also = facts.get("unlabelled")
    if also is None:
        return None
    return {**also, "guarantee": _guarantee(session, also["dataset"], also["guarantee"])}


def _card(
    installation: Installation, row: ModelRow, *, guarantee: dict[str, Any], unlabelled: dict[str, Any] | None
) -> ModelOut:
    artifact = installation.cache.get(row.digest)
    facts = artifact.metadata
    return ModelOut.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "dataset": row.dataset_id,
            "dataset_name": row.dataset_name,
            "job_id": row.job_id,
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
            "created_at": clock.to_text(row.created_at),
        }
    )


def _summary(row: ModelRow) -> ModelSummary:
    return ModelSummary(
        id=row.id,
        name=row.name,
        dataset=row.dataset_id,
        dataset_name=row.dataset_name,
        algorithm=row.algorithm,
        digest=row.digest,
        created_at=clock.to_text(row.created_at),
    )
