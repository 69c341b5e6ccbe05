"""Serves the pages that quote and submit evaluations of models, and the page of the noisy numbers of an evaluation.

An evaluation measures one model, or chooses the best of several models for one charge.
"""

from collections.abc import Sequence
from contextlib import suppress
from secrets import token_urlsafe
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from app.access.grants import TRAIN, Principal
from app.access.idempotency import Answer
from app.api.pages import pictures
from app.api.pages.forms import Form, PageRoute, checked
from app.api.pages.rendering import rendered, rendered_with
from app.api.pages.spending import SpendingFields, Text, accepted, identity, quoted
from app.api.pages.words import unit_of
from app.api.requests import Caller, CurrentInstallation
from app.core import limits
from app.core.errors import GrovekeeperError, NotFound, RoleMissing
from app.registry.models import ModelFilter
from app.services import models
from app.services.authorization import require_role
from app.services.datasets import show
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.services.spending import evaluations
from app.services.spending.evaluations import show_evaluation_quote, submit_evaluation
from app.wire.spending import EvaluationIn, SelectionIn

evaluation_pages = APIRouter(prefix="/ui", route_class=PageRoute)

_Fields = TypeVar("_Fields", bound="RowsToRead")


class RowsToRead(SpendingFields):
    """The fields of a form that reads rows to compare the answers of models with them.

    Attributes:
        epsilon: small at first, because an evaluation needs less than a forest.
        dataset: whose rows are read; by default the models' dataset.
    """

    epsilon: Text = "0.1"
    dataset: Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)] = ""


class EvaluationFields(RowsToRead):
    """The fields of an evaluation's form.

    Attributes:
        counts: ``accuracy``, or ``confusion``, which tells the accuracy as well.
        auroc: ``yes`` to release the area under the ROC curve, too.
    """

    counts: Text = "accuracy"
    auroc: Text = ""


@evaluation_pages.get("/models/{model_id}/evaluate")
def quote_evaluation(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    model_id: str,
    fields: Annotated[EvaluationFields, Query()],
) -> Response:
    """Show the form of an evaluation with its price."""
    return _evaluation_page(request, installation, caller, model_id, fields)


@evaluation_pages.post("/models/{model_id}/evaluate")
async def evaluate(request: Request, installation: CurrentInstallation, caller: Caller, model_id: str) -> Response:
    """Submit the evaluation of the form; a refusal shows the form again with what would fit."""

    def act(form: Form) -> Answer:
        body = _evaluation_body(checked(EvaluationFields, form))
        return submit_evaluation(installation, caller, [model_id], body, request=identity(request, caller, form))

    def refused(form: Form, refusal: GrovekeeperError) -> Response:
        return _evaluation_page(
            request, installation, caller, model_id, checked(EvaluationFields, form), refusal=refusal
        )

    return await accepted(request, act, refused)


@evaluation_pages.get("/evaluations/{evaluation_id}")
def show_evaluation(
    request: Request, installation: CurrentInstallation, caller: Caller, evaluation_id: str
) -> Response:
    """Show one evaluation."""
    evaluation = evaluations.show_evaluation(installation, caller, evaluation_id)
    return rendered(
        request,
        "evaluation",
        evaluation=evaluation,
        unit=unit_of(show.show_dataset(installation, caller, evaluation.dataset)),
        names=_names(installation, caller, evaluation.models),
        scale=evaluation.accuracy and pictures.accuracy(evaluation.accuracy, evaluation.majority),
        roc=evaluation.auroc and pictures.roc(evaluation.auroc.histogram),
    )


def _names(installation: Installation, caller: Principal, model_ids: Sequence[str]) -> dict[str, str]:
    """The names of those models that still exist, that the caller may see and that have a name."""
    names = {}
    for model_id in model_ids:
        with suppress(NotFound, RoleMissing):
            names[model_id] = models.show_model(installation, caller, model_id).name or model_id
    return names


def _evaluation_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    model_id: str,
    fields: EvaluationFields,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    model = models.show_model(installation, caller, model_id).model_dump(by_alias=True)
    shown, unknown = rows_to_read(installation, caller, fields, model["dataset"])
    quote = quoted(
        installation,
        caller,
        shown,
        lambda: show_evaluation_quote(installation, caller, [model["id"]], _evaluation_body(fields)),
        refusal=unknown or refusal,
    )
    return rendered_with(
        request,
        "evaluate",
        quote.refusal,
        model=model,
        dataset=shown,
        partitions=fields.choices(shown),
        fields=fields,
        quote=quote,
        once=token_urlsafe(16),
    )


def rows_to_read(
    installation: Installation, caller: Principal, fields: RowsToRead, trained_on: str
) -> tuple[dict[str, Any], NotFound | None]:
    """The dataset that a form names; where it does not exist, the dataset of the models with the error."""
    try:
        named = show.show_dataset(installation, caller, fields.dataset.strip() or trained_on)
        return named.model_dump(by_alias=True), None
    except NotFound as unknown:
        shown = show.show_dataset(installation, caller, trained_on)
        return shown.model_dump(by_alias=True), unknown


def _evaluation_body(fields: EvaluationFields) -> EvaluationIn:
    """The body of the API's request that a form stands for."""
    metrics = [fields.counts, *(["auroc"] if fields.auroc else [])]
    given = {"dataset": fields.dataset.strip() or None, **fields.stated()}
    return checked(EvaluationIn, {**given, **fields.amounts(), "metrics": metrics})


selection_pages = APIRouter(prefix="/ui/datasets/{of}/choice", route_class=PageRoute)

_Reference = Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)]


class SelectionFields(RowsToRead):
    """The fields of the form that chooses a model.

    Attributes:
        models: ids of the models, one for each ticked box; they stand for ``chosen``.
        chosen: ids of the models, separated by spaces.
        winner_accuracy: ``yes`` to release the accuracy of the chosen model, too.
    """

    models: Annotated[list[_Reference], Field(max_length=limits.MAX_FORM_FIELDS, default_factory=list)]
    chosen: Annotated[str, Field(max_length=65_536)] = ""
    winner_accuracy: Text = ""

    def normal(self) -> "SelectionFields":
        """The same fields without ``models``, as the form that submits sends them."""
        return self.model_copy(update={"models": [], "chosen": " ".join(self.models or self.chosen.split())})


@selection_pages.get("")
def quote_selection(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    of: str,
    fields: Annotated[SelectionFields, Query()],
) -> Response:
    """Show the form of a choice among the models of a dataset, with its price once two models are chosen."""
    return _selection_page(request, installation, caller, of, fields)


@selection_pages.post("")
async def choose(request: Request, installation: CurrentInstallation, caller: Caller, of: str) -> Response:
    """Submit the choice of the form; a refusal shows the form again with what would fit."""

    def act(form: Form) -> Answer:
        body = _selection_body(checked(SelectionFields, form), of)
        return submit_evaluation(installation, caller, body.models, body, request=identity(request, caller, form))

    def refused(form: Form, refusal: GrovekeeperError) -> Response:
        return _selection_page(request, installation, caller, of, checked(SelectionFields, form), refusal=refusal)

    return await accepted(request, act, refused)


def _selection_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    of: str,
    fields: SelectionFields,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    require_role(installation, caller, of, TRAIN)
    trained_on = show.show_dataset(installation, caller, of)
    page = PageRequest(limits.MAX_COMPARED_MODELS)
    listed = models.list_models(installation, caller, page, ModelFilter(trained_on.id))
    shown, unknown = rows_to_read(installation, caller, fields, trained_on.id)
    fields = fields.normal()
    chosen = fields.chosen.split()
    quote = quoted(
        installation,
        caller,
        shown,
        (lambda: show_evaluation_quote(installation, caller, chosen, _selection_body(fields, of)))
        if len(chosen) > 1
        else None,
        refusal=unknown or refusal,
    )
    return rendered_with(
        request,
        "choose",
        quote.refusal,
        trained_on=trained_on,
        models=listed.models,
        has_more=listed.next is not None,
        chosen=chosen,
        dataset=shown,
        partitions=fields.choices(shown),
        fields=fields,
        quote=quote,
        once=token_urlsafe(16),
    )


def _selection_body(fields: SelectionFields, of: str) -> SelectionIn:
    """The body of the API's request that a form stands for."""
    given = {"dataset": fields.dataset.strip() or of, "models": fields.normal().chosen.split()}
    return checked(
        SelectionIn, {**given, **fields.stated(), **fields.amounts(), "winner_accuracy": bool(fields.winner_accuracy)}
    )
