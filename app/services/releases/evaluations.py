"""Plans and quotes evaluations of models and choices of the best model, checks the
released ones, and shows them.

What is shown is post-processing of released counts.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.access.grants import SEE_MODEL, TRAIN, Principal, datasets_with
from app.core import json_text, stamps
from app.core.errors import InvalidRequest, Unavailable
from app.jobs import queue
from app.jobs.tables import JobRow
from app.registry import releases
from app.registry.tables import ReleaseRow
from app.services import guarantees
from app.services.installation import Installation
from app.services.jobs.task import JobTask
from app.services.pagination import PageRequest, page_of
from app.services.predict import addressed_model
from app.services.releases.contract import (
    Earlier,
    Named,
    OutputInvalid,
    Planned,
    ReleaseKind,
    ReleaseRequest,
    StoredPlan,
    facts_of_job,
    visible,
)
from app.services.releases.numbers import details
from app.services.releases.profiles import released_profile
from app.services.spending.asked import AskedDataset, AskedPart, PricedPart, ask_part
from app.services.spending.quotes import PartQuote
from app.wire.evaluations import (
    AccuracyOut,
    AurocOut,
    ConfusionOut,
    ErrorOut,
    EvaluationIn,
    EvaluationList,
    EvaluationOut,
    EvaluationQuoteOut,
    MajorityOut,
    R2Out,
    ReleasedAccuracyOut,
    ReleasedErrorOut,
    SelectionIn,
)
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.bins import noisy_counts
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.data.sanitiser import numbers_of_codes
from grovekeeper_forests.data.schema import TARGET_STEPS, Label
from grovekeeper_forests.privacy.scope import Scope
from grovekeeper_forests.releases.choice.price import plan_best
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation import error_metrics, metrics
from grovekeeper_forests.releases.evaluation.error_price import (
    MAE,
    error_scale,
    metrics_of,
    plan_errors,
)
from grovekeeper_forests.releases.evaluation.price import (
    ACCURACY,
    AUROC,
    BEST,
    CONFUSION,
    ErrorScale,
    EvaluationInvalid,
    EvaluationPlan,
    plan_tables,
)
from grovekeeper_forests.releases.evaluation.read import Evaluation
from grovekeeper_forests.releases.names import EVALUATION

_Score = TypeVar("_Score", AccuracyOut, ErrorOut, R2Out)

_OfProfile = tuple[str, list[float]]
"""The id of a profile and its noisy class counts, in rows."""

_TRAINED_ON = (
    "The scope covers rows that a model was trained on: it does better there than on rows that it has not seen. "
    "Restrict the scope to cells that were held out of training."
)
"""The warning is stored with an evaluation, and tells what its accuracy was measured on
after the model is deleted. A change of its words keeps these as another known text.
"""


@dataclass(frozen=True, kw_only=True)
class PlannedEvaluation(Planned[EvaluationQuoteOut]):
    """An evaluation with its plan.

    Attributes:
        models: their ids, in the order of the request.
        plan: the releases.
        warnings: sentences about rows that a model was trained on, and about models
            that answer one class.
    """

    models: list[str]
    plan: EvaluationPlan
    warnings: list[str]

    def quoted(self, quotes: Sequence[PartQuote]) -> EvaluationQuoteOut:
        """See :class:`Planned`."""
        [quote] = quotes
        warnings = [*quote.warnings, *self.warnings]
        size = quote.part.asked.public_size
        return EvaluationQuoteOut(
            **quote.fields,
            models=self.models,
            releases=list(self.plan.releases),
            mae_half_width=error_metrics.half_width_before(self.plan, size),
            warnings=warnings,
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest(ReleaseRequest[EvaluationQuoteOut]):
    """A request to evaluate a model, or to choose the best of several, or for its
    quote.

    Attributes:
        models: ids or addresses.
    """

    kind = EVALUATION
    models: Sequence[str]
    body: EvaluationIn | SelectionIn

    def find(self, session: Session, principal: Principal) -> Named:
        """See :class:`ReleaseRequest`. The rows that are read are by default of the
        dataset of the first model.
        """
        rows = self._models(session, principal)
        models = [Earlier(row, queue.job(session, row.job_id).parts) for row in rows]
        return Named([self.body.dataset or rows[0].dataset_id], models)

    def confirm(self, session: Session, principal: Principal, named: Named) -> None:
        """See :class:`ReleaseRequest`."""
        found = [model.row.id for model in named.releases]
        if [row.id for row in self._models(session, principal)] != found:
            raise Unavailable(
                "an alias moved while the job was planned; nothing was charged"
            )

    def _models(self, session: Session, principal: Principal) -> list[ReleaseRow]:
        rows = [
            addressed_model(session, principal, address, SEE_MODEL)
            for address in self.models
        ]
        if len({row.id for row in rows}) < len(rows):
            raise InvalidRequest.at("/models", "not-distinct")
        return rows

    def plan(
        self, installation: Installation, named: Named, sources: Sequence[AskedDataset]
    ) -> PlannedEvaluation:
        """See :class:`ReleaseRequest`."""
        [source], warnings = sources, []
        trained = named.releases[0].parts[0]
        label = source.dataset.read_label(self.body.label, default=trained.label)
        asked = ask_part(source, self.body, label=label)
        starts = []
        # one after another: an artifact stays in memory only if the cache keeps it
        for model in named.releases:
            artifact = installation.cache.get(model.row.file)
            starts.append(artifact.forest.arrays.get("start"))
            if not artifact.schema.reads_like(asked.schema):
                raise InvalidRequest.at("/dataset", "other-declaration")
            match artifact.metadata.get("only_answer"):
                case {"text": text}:
                    warnings.append(f"Model {model.row.id}: {text}")
        facts = public_facts(asked.terms, None, asked.schema)
        plan = _plan(self.body, facts, starts[0])
        if any(_was_trained_on(model, asked) for model in named.releases):
            warnings.insert(0, _TRAINED_ON)
        models = [
            {"id": model.row.id, "digest": model.row.file} for model in named.releases
        ]
        work = {
            "plan": plan.to_json(),
            "models": models,
            **_target(asked.schema.label),
            "warnings": [*asked.warnings, *warnings],
        }
        parts = [PricedPart(asked, plan.event)]
        return PlannedEvaluation(
            parts=parts,
            work=work,
            models=[model["id"] for model in models],
            plan=plan,
            warnings=warnings,
        )


def _plan(
    body: EvaluationIn | SelectionIn,
    facts: PublicFacts,
    start: NDArray[np.integer] | None,
) -> EvaluationPlan:
    """Prices what a body asks for.

    Args:
        start: of the first model's trees, as it is released.
    """
    scale = _scale(body, facts.schema.label, start)
    if isinstance(body, SelectionIn):
        return plan_best(
            len(body.models), facts, winner_accuracy=body.winner_accuracy, scale=scale
        )
    default = [ACCURACY] if scale is None else [MAE]
    return _plan_metrics(
        body.metrics or default, facts, scale, score_bins=body.score_bins
    )


def _plan_metrics(
    metrics: Sequence[str],
    facts: PublicFacts,
    scale: ErrorScale | None,
    *,
    score_bins: int,
) -> EvaluationPlan:
    if scale is None:
        return plan_tables(metrics, facts, score_bins=score_bins)
    return plan_errors(metrics, facts, scale, score_bins=score_bins)


def _scale(
    body: EvaluationIn | SelectionIn, label: Label, start: NDArray[np.integer] | None
) -> ErrorScale | None:
    """What clamps errors where the label is a number. Distances of labels are from
    where the trees of the model start, which is near their mean.
    """
    if not label.is_number:
        if body.largest_error is not None:
            raise InvalidRequest.at("/largest_error", "not-for-classes")
        return None
    code = TARGET_STEPS / 2 if start is None else int(start[0])
    centre = float(numbers_of_codes(label, np.array(code)))
    return error_scale(label, body.largest_error, centre)


def _target(label: Label) -> JsonObject:
    """What a job notes of the label that its models predict."""
    target: JsonObject = {"classes": list(label.classes)}
    # evaluations of classes have no such member, and keep their bytes
    if label.bounds is not None:
        target["bounds"] = list(label.bounds)
    return target


def _was_trained_on(model: Earlier, part: AskedPart) -> bool:
    """Whether the scope shares a cell and an upload with rows that a model read; both
    scopes are public.
    """
    epochs = set(part.dataset.uploads_in(part.scope, part.source.uploads))
    return any(
        trained.dataset == part.dataset.id
        and not epochs.isdisjoint(trained.epochs)
        and part.scope.overlaps(Scope(trained.scope))
        for trained in model.parts
    )


class EvaluationKind(ReleaseKind):
    """Jobs that count a model's answers or choose the best of several models."""

    prefix = stamps.EVALUATION

    def is_planned(self, stored: StoredPlan) -> bool:
        """See :class:`ReleaseKind`."""
        [paid], work = stored.terms, stored.work
        plan = EvaluationPlan.from_json(work["plan"])
        n_models = len(work["models"])
        label = stored.schema.label
        facts = public_facts(paid, None, stored.schema)
        scale = plan.scale
        if label.is_number and scale is not None:
            scale = error_scale(label, scale.largest, scale.centre)
        if BEST in plan.releases:
            planned = plan_best(
                n_models,
                facts,
                winner_accuracy=len(plan.releases) > 1,
                scale=scale,
            )
        else:
            metrics = plan.releases if scale is None else metrics_of(plan.releases)
            planned = _plan_metrics(metrics, facts, scale, score_bins=plan.score_bins)
        is_whole = (
            planned.n_models == n_models
            and label.is_number is (scale is not None)
            and work.items() >= _target(label).items()
            and ("bounds" in work) is label.is_number
        )
        return is_whole and planned == plan

    def inputs(
        self,
        work: JsonMapping,
    ) -> Sequence[tuple[str, str]]:
        """See :class:`ReleaseKind`: the models' artifacts."""
        return [(model["id"], model["digest"]) for model in work["models"]]

    def public_facts(
        self,
        session: Session,
        row: JobRow,
    ) -> JsonObject:
        """The facts that are shown with the released numbers."""
        work, [part] = row.task["work"], row.parts
        return {
            **facts_of_job(session, row),
            "models": [model["id"] for model in work["models"]],
            "classes": work["classes"],
            "warnings": work["warnings"],
            "scope": part.scope,
            "epochs": part.epochs,
        }

    def body(
        self,
        task: JobTask,
        data: bytes,
    ) -> JsonObject:
        """See :class:`ReleaseKind`."""
        try:
            released = Evaluation.from_json(json.loads(data))
        except (EvaluationInvalid, ValueError):
            raise OutputInvalid from None
        return {**task.metadata, "evaluation": released.to_json()}


def show_evaluation(
    installation: Installation, principal: Principal, evaluation_id: str
) -> EvaluationOut:
    """Shows one evaluation."""
    with installation.database.read() as session:
        return _all_out(
            session, [visible(session, principal, EVALUATION, evaluation_id)]
        )[0]


def list_evaluations(
    installation: Installation, principal: Principal, address: str, page: PageRequest
) -> EvaluationList:
    """Lists the evaluations of one model on datasets where the key may train, newest
    first.
    """
    with installation.database.read() as session:
        model = addressed_model(session, principal, address, SEE_MODEL)
        dataset_ids = datasets_with(session, principal, TRAIN)
        shown, following = page_of(
            page,
            lambda limit: releases.page_of_evaluations(
                session,
                model_id=model.id,
                dataset_ids=dataset_ids,
                before=page.cursor,
                limit=limit,
            ),
            lambda row: row.id,
            lambda row: json_text.n_bytes(row.facts),
        )
        return EvaluationList(evaluations=_all_out(session, shown), next=following)


class ReleasedScore(NamedTuple):
    """The newest released number that tells how good a model is: its accuracy, or of a
    model that predicts a number its mean absolute error.
    """

    accuracy: ReleasedAccuracyOut | None = None
    error: ReleasedErrorOut | None = None

    @property
    def is_held_out(self) -> bool:
        """Whether it was measured on rows that no model was trained on."""
        released = self.accuracy or self.error
        return released is not None and not released.on_training_rows


NO_SCORE = ReleasedScore()


def newest_scores(
    session: Session, principal: Principal, model_ids: Sequence[str]
) -> dict[str, ReleasedScore]:
    """The newest released score of each of several models, by id, on datasets where the
    key may train: on rows that no model was trained on, if there is one. A model
    without one is left out.
    """
    dataset_ids = datasets_with(session, principal, TRAIN)
    unread = releases.last_evaluations(session, model_ids, dataset_ids)
    newest: dict[str, ReleasedScore] = {}
    while unread:
        models_of = defaultdict(set)
        for model_id, evaluation_ids in unread.items():
            models_of[evaluation_ids.pop(0)].add(model_id)
        for row in releases.several_evaluations(session, models_of):
            model_id, score = _measured(row)
            if score == NO_SCORE or model_id not in models_of[row.id]:
                continue
            if score.is_held_out or model_id not in newest:
                newest[model_id] = score
        held_out = {id_ for id_, score in newest.items() if score.is_held_out}
        unread = {
            model_id: evaluation_ids
            for model_id, evaluation_ids in unread.items()
            if evaluation_ids and model_id not in held_out
        }
    return newest


def _measured(row: ReleaseRow) -> tuple[str, ReleasedScore]:
    """The model that an evaluation measured (of several, the best) and its score, if
    that was released.
    """
    evaluation = Evaluation.from_json(row.facts["evaluation"])
    model_id = row.facts["models"][evaluation.best or 0]
    source: JsonObject = {
        "evaluation": row.id,
        "dataset": row.dataset_id,
        "dataset_name": row.dataset_name,
    }
    if accuracy := _stated(row, metrics.accuracy(evaluation), AccuracyOut):
        released = ReleasedAccuracyOut(**dict(accuracy), **source)
        return model_id, ReleasedScore(accuracy=released)
    if error := _stated(row, error_metrics.mae(evaluation), ErrorOut):
        return model_id, ReleasedScore(error=ReleasedErrorOut(**dict(error), **source))
    return model_id, NO_SCORE


def _all_out(session: Session, rows: Sequence[ReleaseRow]) -> list[EvaluationOut]:
    outputs = [(row.dataset_id, row.facts) for row in rows]
    texts = guarantees.today_of_each(session, outputs)
    profiles = _profiles_of(session, rows)
    return [
        _evaluation_out(
            row, guarantee, majority=_majority(row, profiles.get(_rows_of(row)))
        )
        for row, guarantee in zip(rows, texts, strict=True)
    ]


def _profiles_of(
    session: Session, evaluated: Sequence[ReleaseRow]
) -> dict[str, _OfProfile]:
    """The newest profile of the rows of each evaluation without a confusion matrix, by
    those rows. A few are in memory: each states all columns of its dataset.
    """
    unread = {}
    for row in evaluated:
        evaluation = Evaluation.from_json(row.facts["evaluation"])
        if CONFUSION not in evaluation.tables and evaluation.plan.scale is None:
            unread[_rows_of(row)] = row.dataset_id
    found = {}
    for profile in releases.last_profiles(session, set(unread.values())):
        rows = _rows_of(profile)
        if unread.pop(rows, None) is not None:
            found[rows] = profile.id, released_profile(profile).counts_in_rows
        if not unread:
            break
    return found


def _majority(row: ReleaseRow, profile: _OfProfile | None) -> MajorityOut | None:
    """The share of the largest class, as far as released numbers tell it.

    Args:
        row: of the evaluation.
        profile: of the same rows.
    """
    evaluation = Evaluation.from_json(row.facts["evaluation"])
    facts = row.facts
    if evaluation.plan.scale is not None:
        return None
    source, counts = profile or ("confusion", [])
    if CONFUSION in evaluation.tables:
        counts = (
            evaluation.in_rows(CONFUSION)
            .reshape(len(facts["classes"]), -1)
            .sum(axis=1)
            .tolist()
        )
    largest = metrics.majority(counts) if counts else None
    if largest is None:
        return None
    return MajorityOut(
        label=facts["classes"][largest[0]], share=largest[1], source=source
    )


def _rows_of(row: ReleaseRow) -> str:
    """The dataset, cells, uploads and label that a release read, as a key."""
    facts = row.facts
    rows = row.dataset_id, facts["scope"], facts["epochs"], facts.get("label")
    return json.dumps(rows, sort_keys=True)


def _evaluation_out(
    row: ReleaseRow, guarantee: JsonObject, *, majority: MajorityOut | None
) -> EvaluationOut:
    evaluation = Evaluation.from_json(row.facts["evaluation"])
    facts, scale = row.facts, evaluation.plan.scale
    return EvaluationOut(
        **details(row),
        models=facts["models"],
        label=facts.get("label"),
        best=None if evaluation.best is None else facts["models"][evaluation.best],
        releases=list(evaluation.plan.releases),
        accuracy=_stated(row, metrics.accuracy(evaluation), AccuracyOut),
        majority=majority,
        confusion=_confusion(evaluation, facts["classes"]),
        auroc=_auroc(evaluation),
        mae=_stated(row, error_metrics.mae(evaluation), ErrorOut),
        rmse=_stated(row, error_metrics.rmse(evaluation), ErrorOut),
        r2=_stated(row, error_metrics.r2(evaluation), R2Out),
        largest_error=None if scale is None else scale.largest,
        guarantee=guarantee,
        event=evaluation.plan.event.to_json(),
        warnings=facts["warnings"],
    )


def _stated(
    row: ReleaseRow,
    score: metrics.Accuracy | error_metrics.MeanError | error_metrics.Explained | None,
    form: type[_Score],
) -> _Score | None:
    """A released score with its intervals."""
    if score is None:
        return None
    stated = {
        "estimate": score.estimate,
        "on_training_rows": _TRAINED_ON in row.facts["warnings"],
        "interval": {"low": score.low, "high": score.high},
    }
    if isinstance(score, metrics.Accuracy):
        low, high = score.population_low, score.population_high
        stated["population_interval"] = {"low": low, "high": high}
    return form.model_validate(stated)


def _confusion(evaluation: Evaluation, classes: list[str]) -> ConfusionOut | None:
    if CONFUSION not in evaluation.tables:
        return None
    counts = evaluation.in_rows(CONFUSION).reshape(len(classes), len(classes)).tolist()
    return ConfusionOut(
        classes=classes,
        counts=counts,
        noise_sd=noisy_counts.noise_sd(evaluation.plan.event_of(CONFUSION)),
    )


def _auroc(evaluation: Evaluation) -> AurocOut | None:
    auroc = metrics.auroc(evaluation)
    if auroc is None:
        return None
    return AurocOut(
        estimate=auroc.estimate,
        noise_sd=auroc.noise_sd,
        histogram=evaluation.in_rows(AUROC).reshape(2, -1).tolist(),
        histogram_noise_sd=noisy_counts.noise_sd(evaluation.plan.event_of(AUROC)),
    )
