"""Serves the pages that quote and submit evaluations of models, and the page of the
noisy numbers of an evaluation.

An evaluation measures one model, or chooses the best of several models for one charge.
"""

from functools import partial
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from app.access.grants import TRAIN
from app.api.pages import pictures
from app.api.pages.dataset_view import shown_dataset, unit_of_dataset
from app.api.pages.forms import checked, number_in
from app.api.pages.rendering import Visit, Visitor
from app.api.pages.spending import SpendingFields, Text, quoted, sold, title_of
from app.api.pages.statistics_view import GridLine
from app.api.requests import Router
from app.core import limits
from app.core.errors import NotFound
from app.registry.models import ModelFilter
from app.services import models
from app.services.authorization import require_role
from app.services.datasets import show
from app.services.pagination import PageRequest
from app.services.releases import evaluations
from app.wire.base import Reference
from app.wire.evaluations import (
    ConfusionOut,
    EvaluationIn,
    EvaluationOut,
    MajorityOut,
    SelectionIn,
)
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.number_words import (
    error_in_words,
    mean_error_in_words,
    r2_in_words,
    share_in_words,
)

evaluation_pages = Router(prefix="/ui")


class RowsToRead(SpendingFields):
    """The fields of a form that reads rows to compare the answers of models with them.

    Attributes:
        epsilon: small at first, because an evaluation needs less than a forest.
        dataset: whose rows are read; by default the models' dataset.
    """

    epsilon: Text = "0.1"
    dataset: Reference = ""


class EvaluationFields(RowsToRead):
    """The fields of an evaluation's form.

    Attributes:
        counts: ``accuracy``, or ``confusion``, which tells the accuracy as well; where
            the label is a number, metrics apart by spaces. Empty: the default.
        auroc: ``yes`` to release the area under the ROC curve, too.
        largest_error: where the label is a number.
    """

    counts: Text = ""
    auroc: Text = ""
    largest_error: Text = ""


_METRICS = {
    False: [("accuracy", "right answers"), ("confusion", "answers by true class")],
    True: [
        ("mae", "mean absolute error"),
        ("rmse", "root mean squared error"),
        ("r2", "R², and the root mean squared error"),
        ("mae r2", "all three"),
    ],
}
"""What the form offers to release, by whether the label is a number."""


def _evaluation(
    visit: Visit, model_id: str, fields: EvaluationFields
) -> evaluations.EvaluationRequest:
    metrics = fields.counts.split()
    if fields.auroc:
        metrics.append("auroc")
    asked = {
        **fields.given("dataset"),
        "metrics": metrics or None,
        "largest_error": number_in(fields.largest_error),
    }
    return evaluations.EvaluationRequest(
        models=[model_id], body=checked(EvaluationIn, asked)
    )


@sold(evaluation_pages, "/models/{model_id}/evaluate", EvaluationFields, _evaluation)
def quote_evaluation(
    visit: Visitor, model_id: str, fields: Annotated[EvaluationFields, Query()]
) -> Response:
    """Show the form of an evaluation with its price."""
    model = models.show_model(*visit.by, model_id).model_dump(by_alias=True)
    visit, shown = _rows_to_read(visit, fields, model["dataset"])
    ask = partial(_evaluation, visit, model["id"], fields)
    shown_quote = quoted(visit, shown, fields, ask)
    plan = shown_quote.plan
    label = model["schema"]["label"]
    width = None if plan is None else plan.mae_half_width
    return shown_quote.page(
        "evaluate",
        model=model,
        title=plan and title_of(plan, "Evaluation"),
        is_binary=len(label.get("classes", ())) == 2,
        is_of_numbers="lower" in label,
        half_width=None if width is None else error_in_words(width),
        metrics=_METRICS["lower" in label],
    )


@evaluation_pages.get("/evaluations/{evaluation_id}")
def show_evaluation(visit: Visitor, evaluation_id: str) -> Response:
    """Show one evaluation."""
    evaluation = evaluations.show_evaluation(*visit.by, evaluation_id)
    return visit.page(
        "evaluation",
        evaluation=evaluation,
        confusion=evaluation.confusion and _lines_of(evaluation.confusion),
        majority=evaluation.majority and _majority_in_words(evaluation.majority),
        unit=unit_of_dataset(visit, evaluation.dataset),
        names=models.names_of_models(*visit.by, evaluation.models),
        errors=_errors_in_words(evaluation),
        scale=evaluation.accuracy
        and pictures.accuracy(evaluation.accuracy, evaluation.majority),
        roc=evaluation.auroc and pictures.roc(evaluation.auroc.histogram),
    )


def _lines_of(confusion: ConfusionOut) -> list[GridLine]:
    """A confusion matrix. The colour of a cell is its part of its row."""
    lines = []
    for true_class, counts in zip(confusion.classes, confusion.counts, strict=True):
        # At least one: noise alone may leave a row without counts.
        whole = max(sum(map(abs, counts)), 1)
        cells = [
            (f"{count:,.0f}", pictures.part_class(count, whole)) for count in counts
        ]
        lines.append(GridLine(true_class, cells))
    return lines


def _errors_in_words(evaluation: EvaluationOut) -> list[tuple[str, str, str]]:
    """The errors of predicted numbers: name, estimate and interval."""
    shown = []
    for name, error in (
        ("Mean absolute error", evaluation.mae),
        ("Root mean squared error", evaluation.rmse),
    ):
        if error is not None:
            shown.append((name, *mean_error_in_words(error.model_dump())))
    if evaluation.r2 is not None:
        shown.append(("R²", *r2_in_words(evaluation.r2.model_dump())))
    return shown


def _majority_in_words(majority: MajorityOut) -> str:
    """The accuracy of always answering the largest class, and where it is from."""
    source = f"the profile {majority.source}"
    if majority.source == "confusion":
        source = "the confusion matrix below"
    return (
        f"{share_in_words(majority.share)} for always answering {majority.label}; "
        f"noisy, from {source}"
    )


def _rows_to_read(
    visit: Visit, fields: RowsToRead, trained_on: str
) -> tuple[Visit, JsonObject]:
    """The dataset that a form names; where it does not exist, the form is refused, and
    the dataset is the models'.
    """
    try:
        return visit, shown_dataset(visit, fields.dataset.strip() or trained_on)
    except NotFound as unknown:
        return visit.refused(unknown, visit.sent), shown_dataset(visit, trained_on)


selection_pages = Router(prefix="/ui/datasets")


class SelectionFields(RowsToRead):
    """The fields of the form that chooses a model.

    Attributes:
        models: ids of the models, one for each ticked box; they stand for ``chosen``.
        chosen: ids of the models, separated by spaces.
        winner_accuracy: ``yes`` to release the accuracy of the chosen model, too.
    """

    models: Annotated[
        list[Reference], Field(max_length=limits.MAX_FORM_FIELDS, default_factory=list)
    ]
    chosen: Annotated[str, Field(max_length=limits.MAX_SCOPE_CHARS)] = ""
    winner_accuracy: Text = ""

    def normal(self) -> "SelectionFields":
        """The same fields without ``models``, as the form that submits sends them."""
        return self.model_copy(
            update={
                "models": [],
                "chosen": " ".join(self.models or self.chosen.split()),
            }
        )


def _choice(
    visit: Visit, of: str, fields: SelectionFields
) -> evaluations.EvaluationRequest:
    models = fields.normal().chosen.split()
    asked = {
        "dataset": of,
        **fields.given("dataset"),
        "models": models,
        "winner_accuracy": bool(fields.winner_accuracy),
    }
    return evaluations.EvaluationRequest(
        models=models, body=checked(SelectionIn, asked)
    )


@sold(selection_pages, "/{of}/choice", SelectionFields, _choice)
def quote_selection(
    visit: Visitor, of: str, fields: Annotated[SelectionFields, Query()]
) -> Response:
    """Show the form of a choice among the models of a dataset, with its price once two
    models are chosen.
    """
    require_role(*visit.by, of, TRAIN)
    trained_on = show.show_dataset(*visit.by, of)
    listed = models.list_models(
        *visit.by, PageRequest(limits.MAX_COMPARED_MODELS), ModelFilter(trained_on.id)
    )
    visit, shown = _rows_to_read(visit, fields, trained_on.id)
    fields = fields.normal()
    chosen = fields.chosen.split()
    ask = partial(_choice, visit, of, fields) if len(chosen) > 1 else None
    shown_quote = quoted(visit, shown, fields, ask)
    plan = shown_quote.plan
    return shown_quote.page(
        "choose",
        trained_on=trained_on,
        models=listed.models,
        has_more=listed.next is not None,
        chosen=chosen,
        title=plan and title_of(plan, f"Choice among {len(chosen)} models"),
    )
