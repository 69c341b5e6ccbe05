"""``POST /models/{id}/evaluations`` and ``POST /evaluations``: what models are worth, and the best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from app.access import grants
from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.access.roles import SEE_MODEL, TRAIN, Principal
from app.core.errors import InvalidRequest, NotFound
from app.datasets import catalog
from app.forests import evaluation
from app.forests.contract.algorithm import PublicFacts
from app.forests.evaluation import EvaluationPlan
from app.forests.planning import public_facts
from app.jobs import queue
from app.privacy.adjacency import Adjacency
from app.registry import models
from app.registry.tables import ModelRow
from app.services.authorization import permitted
from app.services.installation import Installation
from app.services.spending import scopes
from app.services.spending.accept import NewWork, accept
from app.services.spending.price import Asked, asked
from app.wire.evaluations import EvaluationIn, EvaluationQuoteOut, SelectionIn

_TRAINED_ON = (
    "The scope covers rows that a model was trained on: it does better there than on rows that it has not seen. "
    "Restrict the scope to cells that were held out of training."
)


@dataclass(frozen=True)
class EvaluationQuote(Asked):
    """A request to evaluate with everything public worked out.

    Attributes:
        plan: what would be released.
        rows: the models.
        overlaps: whether one of them was trained on rows in the scope.
    """

    plan: EvaluationPlan
    rows: Sequence[ModelRow]
    overlaps: bool

    @property
    def all_warnings(self) -> list[str]:
        """About the numbers, and about rows that were trained on."""
        return [*self.warnings, *([_TRAINED_ON] if self.overlaps else [])]


def show_evaluation_quote(
    installation: Installation, principal: Principal, model_ids: Sequence[str], wanted: EvaluationIn | SelectionIn
) -> EvaluationQuoteOut:
    """Answers a question about the price of an evaluation. Touches no rows and costs nothing.

    Raises:
        NotFound: no such model or dataset, or none that this key may know of.
        RoleMissing: the key may not train on the dataset whose rows would be read.
        InvalidRequest: metrics, models or scope break a rule.
        DatasetDeleted: only the tombstone is left.
    """
    with installation.database.read() as session:
        rows, dataset = _permitted(session, principal, model_ids, wanted)
        quoted = _quote(installation, session, rows, dataset.living(), wanted)
    return EvaluationQuoteOut(
        **quoted.shown(quoted.plan.event),
        models=[row.id for row in quoted.rows],
        releases=list(quoted.plan.releases),
        warnings=quoted.all_warnings,
    )


def submit_evaluation(
    installation: Installation,
    principal: Principal,
    model_ids: Sequence[str],
    wanted: EvaluationIn | SelectionIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    """Accepts a job that evaluates a model or chooses among several, or refuses it.

    Raises:
        NotFound: no such model or dataset, or none that this key may know of.
        RoleMissing: the key may not train on the dataset whose rows would be read.
        InvalidRequest: metrics, models or scope break a rule.
        DatasetDeleted: only the tombstone is left.
        NoRowsYet: nothing was uploaded so far.
        BudgetExceeded: the ledger refuses.
    """
    with installation.database.read() as session:
        try:
            rows, dataset = _permitted(session, principal, model_ids, wanted)
        except NotFound:  # a model can be deleted; what its key was answered before stays the answer
            earlier = stored(session, request)
            if earlier is not None:
                return earlier
            raise
        earlier = stored(session, request)
        if earlier is not None:
            return earlier
        quoted = _quote(installation, session, rows, dataset, wanted)
    new = NewWork("evaluation", _work(quoted), quoted.plan.event, wanted.name)
    with installation.database.write() as session:
        at = installation.database.now(session)
        accepted: Callable[[], Answer] = partial(accept, session, quoted, new, actor=principal.key_id, at=at)
        return once(session, request, at=at, work=accepted)


def _permitted(
    session: Session, principal: Principal, model_ids: Sequence[str], wanted: EvaluationIn | SelectionIn
) -> tuple[list[ModelRow], catalog.Dataset]:
    """The models, and the dataset whose rows are to be read: by default that of the first model."""
    rows = []
    for model_id in model_ids:
        row = models.find(session, model_id)
        grants.require(session, principal, row.dataset_id, SEE_MODEL, kind="model")
        rows.append(row)
    if len(set(model_ids)) < len(model_ids):
        raise InvalidRequest.at("/models", "not-distinct")
    return rows, permitted(session, principal, wanted.dataset or rows[0].dataset_id, TRAIN)


def _quote(
    installation: Installation,
    session: Session,
    rows: Sequence[ModelRow],
    dataset: catalog.Dataset,
    wanted: EvaluationIn | SelectionIn,
) -> EvaluationQuote:
    """Works out plan, scope and price from public facts alone."""
    within = asked(session, dataset, wanted)
    artifacts = [installation.cache.get(row.digest) for row in rows]
    if not all(artifact.schema.reads_like(dataset.schema) for artifact in artifacts):
        raise InvalidRequest.at("/dataset", "other-declaration")
    plan = _plan(wanted, public_facts(within.request, dataset.schema, Adjacency.ADD_REMOVE_ONE))
    overlaps = any(_was_trained_on(session, row, within) for row in rows)
    return EvaluationQuote(**vars(within), plan=plan, rows=rows, overlaps=overlaps)


def _plan(wanted: EvaluationIn | SelectionIn, facts: PublicFacts) -> EvaluationPlan:
    if isinstance(wanted, SelectionIn):
        return evaluation.plan_best(len(wanted.models), facts, winner_accuracy=wanted.winner_accuracy)
    return evaluation.plan_tables(wanted.metrics, facts, score_bins=wanted.score_bins)


def _was_trained_on(session: Session, row: ModelRow, within: Asked) -> bool:
    """Whether the scope shares a cell and an upload with rows that a model read; both scopes are public."""
    task = queue.job(session, row.job_id).task
    other = task.get("unlabelled")
    read = [(row.dataset_id, task), *([] if other is None else [(other["dataset"], other)])]
    epochs = set(scopes.epochs_of(session, within.dataset, within.scope))
    return any(
        dataset_id == within.dataset.id
        and not epochs.isdisjoint(part["epochs"])
        and all(not set(cells).isdisjoint(part["scope"].get(name, cells)) for name, cells in within.scope.items())
        for dataset_id, part in read
    )


def _work(quoted: EvaluationQuote) -> dict[str, Any]:
    return {
        "plan": quoted.plan.to_json(),
        "models": [{"id": row.id, "digest": row.digest} for row in quoted.rows],
        "classes": list(quoted.dataset.schema.label.classes),
        "warnings": quoted.all_warnings,
    }
