"""Serves ``POST …/evaluations``: quotes and accepts evaluations of models and choices of the best model."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access import grants
from app.access.grants import SEE_MODEL, TRAIN, Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.core.errors import GrovekeeperError, InvalidRequest, NotFound
from app.forests.contract.facts import PublicFacts
from app.forests.evaluation import price
from app.forests.evaluation.price import EvaluationPlan
from app.forests.planning import public_facts
from app.jobs import queue
from app.privacy.adjacency import Adjacency
from app.registry.tables import ModelRow
from app.services.authorization import refreshed
from app.services.installation import Installation
from app.services.predict import addressed_model
from app.services.spending.price import Asked, PricedPart, price_part, read_asked
from app.services.spending.quotes import quote_parts
from app.services.spending.spend import Job, spending
from app.wire.spending import EvaluationIn, EvaluationQuoteOut, SelectionIn

_TRAINED_ON = (
    "The scope covers rows that a model was trained on: it does better there than on rows that it has not seen. "
    "Restrict the scope to cells that were held out of training."
)


@dataclass(frozen=True)
class PlannedEvaluation:
    """An evaluation request with its plan and its priced part, from public facts alone.

    Attributes:
        plan: the releases.
        part: the rows that are read, with their price.
        warnings: sentences about rows that a model was trained on, and about models that answer one class.
    """

    plan: EvaluationPlan
    part: PricedPart
    warnings: list[str]


def show_evaluation_quote(
    installation: Installation, principal: Principal, addresses: Sequence[str], body: EvaluationIn | SelectionIn
) -> EvaluationQuoteOut:
    """Quotes an evaluation. Reads no rows and costs nothing."""
    with installation.database.read() as session:
        rows = _models(session, principal, addresses)
        principal, [asked] = read_asked(installation, session, principal, [_dataset(rows, body)], TRAIN)
        asked.dataset.living()
        planned = _plan_evaluation(installation, session, rows, asked, body)
        [quote] = quote_parts(session, principal, [planned.part])
    return EvaluationQuoteOut(
        **quote.fields,
        models=[row.id for row in rows],
        releases=list(planned.plan.releases),
        warnings=[*quote.warnings, *planned.warnings],
    )


def submit_evaluation(
    installation: Installation,
    caller: Principal,
    addresses: Sequence[str],
    body: EvaluationIn | SelectionIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    """Accepts or refuses a job that evaluates a model or chooses the best of several models."""
    _load(installation, caller, addresses)
    with spending(installation, caller, request) as spend:
        principal = spend.confirm()
        try:
            rows = _models(spend.session, principal, addresses)
        except NotFound:
            earlier = spend.stored()
            if earlier is None or earlier.location is None:
                raise
            job = queue.job(spend.session, earlier.location.removeprefix("/jobs/"))
            grants.require(spend.session, principal, job.dataset_id, TRAIN, kind="model")
            return earlier  # it stays valid although a model was deleted
        spend.authorize([_dataset(rows, body)])
        if (earlier := spend.lock()) is not None:
            return earlier
        planned = _plan_evaluation(installation, spend.session, rows, spend.asked[0], body)
        dataset = planned.part.dataset
        work = {
            "plan": planned.plan.to_json(),
            "models": [{"id": row.id, "digest": row.digest} for row in rows],
            "classes": list(dataset.schema.label.classes),
            "warnings": [*planned.part.warnings, *planned.warnings],
        }
        return spend.accept(Job("evaluation", dataset, [planned.part], work, name=body.name, purpose=body.purpose))


def _load(installation: Installation, caller: Principal, addresses: Sequence[str]) -> None:
    """Loads the models into the cache, because the transaction that plans must not wait for files under its locks.

    The transaction meets every error that occurs here.
    """
    with suppress(GrovekeeperError):
        with installation.database.read() as session:
            rows = _models(session, refreshed(installation, session, caller), addresses)
        for row in rows:
            installation.cache.get(row.digest)


def _models(session: Session, principal: Principal, addresses: Sequence[str]) -> list[ModelRow]:
    rows = [addressed_model(session, principal, address, SEE_MODEL) for address in addresses]
    if len({row.id for row in rows}) < len(rows):
        raise InvalidRequest.at("/models", "not-distinct")
    return rows


def _dataset(models: Sequence[ModelRow], body: EvaluationIn | SelectionIn) -> str:
    """The dataset whose rows are read: by default that of the first model."""
    return body.dataset or models[0].dataset_id


def _plan_evaluation(
    installation: Installation,
    session: Session,
    models: Sequence[ModelRow],
    asked: Asked,
    body: EvaluationIn | SelectionIn,
) -> PlannedEvaluation:
    """Plans the releases and prices them, from public facts alone."""
    artifacts = [installation.cache.get(row.digest) for row in models]
    if not all(artifact.schema.reads_like(asked.dataset.schema) for artifact in artifacts):
        raise InvalidRequest.at("/dataset", "other-declaration")
    plan, part = _planned_part(asked, body)
    warnings = [_TRAINED_ON] if any(_was_trained_on(session, row, part) for row in models) else []
    for row, artifact in zip(models, artifacts, strict=True):
        match artifact.metadata.get("only_answer"):
            case {"text": text}:
                warnings.append(f"Model {row.id}: {text}")
    return PlannedEvaluation(plan, part, warnings)


def _planned_part(asked: Asked, body: EvaluationIn | SelectionIn) -> tuple[EvaluationPlan, PricedPart]:
    """The releases and the part that pays for them."""
    part = price_part(asked, body)
    plan = _plan(body, public_facts(part.account_request, asked.dataset.schema, Adjacency.ADD_REMOVE_ONE))
    return plan, part.paying_for(plan.event)


def _plan(body: EvaluationIn | SelectionIn, facts: PublicFacts) -> EvaluationPlan:
    if isinstance(body, SelectionIn):
        return price.plan_best(len(body.models), facts, winner_accuracy=body.winner_accuracy)
    return price.plan_tables(body.metrics, facts, score_bins=body.score_bins)


def _was_trained_on(session: Session, row: ModelRow, part: PricedPart) -> bool:
    """Whether the scope shares a cell and an upload with rows that a model read; both scopes are public."""
    epochs = set(part.dataset.uploads_in(part.scope, part.asked.uploads))
    return any(
        trained.dataset == part.dataset.id
        and not epochs.isdisjoint(trained.epochs)
        and all(not set(cells).isdisjoint(trained.scope.get(name, cells)) for name, cells in part.scope.items())
        for trained in queue.job(session, row.job_id).parts
    )
