"""Serves ``POST …/evaluations``: quotes and accepts evaluations of models and choices of the best model."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.access import grants
from app.access.idempotency import Answer, IdempotentRequest, stored
from app.access.roles import SEE_MODEL, TRAIN, Principal
from app.core.errors import InvalidRequest, NotFound
from app.datasets import catalog
from app.forests.contract.facts import PublicFacts
from app.forests.data.schema import Schema
from app.forests.evaluation import price
from app.forests.evaluation.price import EvaluationPlan
from app.forests.planning import public_facts
from app.jobs import queue
from app.privacy.adjacency import Adjacency
from app.registry.tables import ModelRow
from app.services.authorization import authorized_dataset, present
from app.services.installation import Installation
from app.services.model_addresses import addressed_model
from app.services.spending import scopes
from app.services.spending.accept import Job, Need
from app.services.spending.part_quotes import quote_parts
from app.services.spending.price import PricedPart, ReadPart, UnpricedPart, price_part, read_part
from app.services.spending.submit import JobSteps, submit_job
from app.wire.evaluations import EvaluationIn, EvaluationQuoteOut, SelectionIn

_TRAINED_ON = (
    "The scope covers rows that a model was trained on: it does better there than on rows that it has not seen. "
    "Restrict the scope to cells that were held out of training."
)


@dataclass(frozen=True)
class Subject:
    """The models of a request, and the dataset whose rows are read."""

    models: Sequence[ModelRow]
    dataset: catalog.Dataset


@dataclass(frozen=True)
class PlannedEvaluation:
    """An evaluation request with its plan and its priced part, from public facts alone.

    Attributes:
        plan: the releases.
        part: the rows that are read, with their price.
        models: the models that are evaluated.
        warnings: sentences about rows that a model was trained on, and about models that answer one class.
    """

    plan: EvaluationPlan
    part: PricedPart | UnpricedPart
    models: Sequence[ModelRow]
    warnings: list[str]


def show_evaluation_quote(
    installation: Installation, principal: Principal, addresses: Sequence[str], body: EvaluationIn | SelectionIn
) -> EvaluationQuoteOut:
    """Quotes an evaluation. Reads no rows and costs nothing.

    Raises:
        NotFound: no such model or dataset, or it is not visible to this key.
        RoleMissing: the key may not train on the dataset whose rows would be read.
        InvalidRequest: metrics, models or scope break a rule.
        DatasetDeleted: the dataset was erased.
    """
    with installation.database.read() as session:
        subject = _authorize(session, principal, addresses, body)
        subject.dataset.living()
        planned = _plan_evaluation(installation, session, subject, body)
        [quote] = quote_parts(session, principal, [planned.part])
    return EvaluationQuoteOut(
        **quote.fields,
        models=[row.id for row in planned.models],
        releases=list(planned.plan.releases),
        warnings=[*quote.warnings, *planned.warnings],
    )


def submit_evaluation(
    installation: Installation,
    principal: Principal,
    addresses: Sequence[str],
    body: EvaluationIn | SelectionIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    """Accepts or refuses a job that evaluates a model or chooses the best of several models.

    Raises:
        NotFound: no such model or dataset, or it is not visible to this key.
        RoleMissing: the key may not train on the dataset whose rows would be read.
        InvalidRequest: metrics, models or scope break a rule.
        DatasetDeleted: the dataset was erased.
        NoRowsYet: the dataset has no upload.
        BudgetExceeded: the account refuses.
    """

    try:
        return submit_job(
            installation,
            principal,
            JobSteps(
                authorize=lambda session, principal: _authorize(session, principal, addresses, body),
                quote=lambda session, subject: _plan_evaluation(installation, session, subject, body),
                job=lambda planned: _job(planned, body),
                datasets=[] if body.dataset is None else [body.dataset],
                is_slow=True,
            ),
            request=request,
        )
    except NotFound:  # a stored answer stays valid although a model was deleted
        with installation.database.read() as session:
            principal = present(installation, session, principal)
            earlier = stored(session, request)
            if earlier is None or earlier.location is None:
                raise
            job = queue.job(session, earlier.location.removeprefix("/jobs/"))
            grants.require(session, principal, job.dataset_id, TRAIN, kind="model")
        return earlier


def _authorize(
    session: Session, principal: Principal, addresses: Sequence[str], body: EvaluationIn | SelectionIn
) -> Subject:
    """The models, and the dataset whose rows are read: by default the first model's dataset."""
    rows = [addressed_model(session, principal, address, SEE_MODEL) for address in addresses]
    if len({row.id for row in rows}) < len(rows):
        raise InvalidRequest.at("/models", "not-distinct")
    return Subject(rows, authorized_dataset(session, principal, body.dataset or rows[0].dataset_id, TRAIN))


def _plan_evaluation(
    installation: Installation, session: Session, subject: Subject, body: EvaluationIn | SelectionIn
) -> PlannedEvaluation:
    """Plans the releases and prices them, from public facts alone."""
    schema = subject.dataset.schema
    artifacts = [installation.cache.get(row.digest) for row in subject.models]
    if not all(artifact.schema.reads_like(schema) for artifact in artifacts):
        raise InvalidRequest.at("/dataset", "other-declaration")
    plan, part = _planned_part(session, subject.dataset, body)
    warnings = [_TRAINED_ON] if any(_was_trained_on(session, row, part) for row in subject.models) else []
    for row, artifact in zip(subject.models, artifacts, strict=True):
        match artifact.metadata.get("only_answer"):
            case {"text": text}:
                warnings.append(f"Model {row.id}: {text}")
    return PlannedEvaluation(plan, part, subject.models, warnings)


def _planned_part(
    session: Session, dataset: catalog.Dataset, body: EvaluationIn | SelectionIn
) -> tuple[EvaluationPlan, PricedPart | UnpricedPart]:
    """The releases and the part: exact without an ε on a public dataset, noisy otherwise."""
    if dataset.is_public and body.epsilon is None:
        return _exact_plan(body, dataset.schema), read_part(session, dataset, body)
    part = price_part(session, dataset, body)
    plan = _plan(body, public_facts(part.account_request, dataset.schema, Adjacency.ADD_REMOVE_ONE))
    return plan, part.paying_for(plan.event)


def _exact_plan(body: EvaluationIn | SelectionIn, schema: Schema) -> EvaluationPlan:
    if isinstance(body, SelectionIn):
        return price.plan_exact_best(len(body.models), schema, winner_accuracy=body.winner_accuracy)
    return price.plan_exact_tables(body.metrics, schema, score_bins=body.score_bins)


def _plan(body: EvaluationIn | SelectionIn, facts: PublicFacts) -> EvaluationPlan:
    if isinstance(body, SelectionIn):
        return price.plan_best(len(body.models), facts, winner_accuracy=body.winner_accuracy)
    return price.plan_tables(body.metrics, facts, score_bins=body.score_bins)


def _was_trained_on(session: Session, row: ModelRow, part: ReadPart) -> bool:
    """Whether the scope shares a cell and an upload with rows that a model read; both scopes are public."""
    uploads = catalog.upload_ids(session, part.dataset.id)
    epochs = set(scopes.uploads_in(part.dataset, part.scope, uploads))
    return any(
        trained.dataset == part.dataset.id
        and not epochs.isdisjoint(trained.epochs)
        and all(not set(cells).isdisjoint(trained.scope.get(name, cells)) for name, cells in part.scope.items())
        for trained in queue.job(session, row.job_id).parts
    )


def _job(planned: PlannedEvaluation, body: EvaluationIn | SelectionIn) -> Job:
    dataset = planned.part.dataset
    work = {
        "plan": planned.plan.to_json(),
        "models": [{"id": row.id, "digest": row.digest} for row in planned.models],
        "classes": list(dataset.schema.label.classes),
        "warnings": [*planned.part.warnings, *planned.warnings],
    }
    needs = [Need(row.dataset_id, SEE_MODEL, "model") for row in planned.models]
    return Job(
        kind="evaluation",
        dataset=dataset,
        parts=[planned.part],
        work=work,
        name=body.name,
        purpose=body.purpose,
        needs=needs,
    )
