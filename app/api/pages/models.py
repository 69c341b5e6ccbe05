"""Serves the pages of models: the list, a model card with a prediction for one row, and the form of its aliases."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from app.access.grants import NAME_MODEL, TAKE_MODEL, TRAIN, Principal
from app.api.capacity import Work, capacities
from app.api.pages.forms import Form, PageRoute, checked, read_form, submitted
from app.api.pages.rendering import rendered, rendered_with
from app.api.pages.words import unit_of
from app.api.requests import Caller, CurrentInstallation, NameFilter, Page
from app.api.streams import model_file
from app.core import limits
from app.core.errors import GrovekeeperError, InvalidRequest, NotFound, RoleMissing
from app.registry.models import ModelFilter
from app.services import keys, models
from app.services.authorization import has_role
from app.services.datasets import show
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.services.predict import predict as predict_rows
from app.services.spending import evaluations
from app.wire.models import AliasHistory, AliasIn, AliasName

model_pages = APIRouter(prefix="/ui/models", route_class=PageRoute)
_FIELD = "feature."


class AliasFields(BaseModel):
    """The fields of the form of an alias."""

    alias: AliasName


@dataclass(frozen=True)
class _Shown:
    """What a form of a card asked for, beside the card.

    Attributes:
        form: ``prediction`` or ``aliases``, if the page answers such a form.
        alias: the alias whose moves are shown.
        row: the values of the row.
        prediction: class, probability, and whether the class is the label.
    """

    form: str = ""
    alias: str = ""
    row: Mapping[str, str] = field(default_factory=dict)
    prediction: Sequence[tuple[str, float, bool]] | None = None


_CARD = _Shown()


@model_pages.get("")
def list_models(
    request: Request, installation: CurrentInstallation, caller: Caller, page: Page, dataset: NameFilter = None
) -> Response:
    """Show the models of all datasets on which the key may predict, or of one dataset, newest first."""
    listed = models.list_models(installation, caller, page, ModelFilter(dataset))
    of = None if dataset is None else show.show_dataset(installation, caller, dataset)
    may_choose = of is not None and has_role(installation, caller, of.id, TRAIN)
    return rendered(request, "models", models=listed.models, following=listed.next, of=of, may_choose=may_choose)


@model_pages.get("/{model_id}")
def show_model(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    model_id: str,
    alias: Annotated[str, Query(max_length=limits.MAX_ALIAS_CHARS)] = "",
) -> Response:
    """Show a model card. ``alias`` chooses the alias of its dataset whose moves are shown."""
    return _card(request, installation, caller, model_id, _Shown(alias=alias))


@model_pages.post("/{model_id}")
async def predict(request: Request, installation: CurrentInstallation, caller: Caller, model_id: str) -> Response:
    """Show a model card with the prediction for the row of the form."""
    form = await read_form(request)
    row = {name.removeprefix(_FIELD): text for name, text in form.items() if name.startswith(_FIELD)}

    def answer() -> Response:
        try:
            prediction = _prediction(installation, caller, model_id, row) if row else None
        except InvalidRequest as refusal:
            return _card(request, installation, caller, model_id, _Shown("prediction", row=row), refusal=refusal)
        return _card(request, installation, caller, model_id, _Shown("prediction", row=row, prediction=prediction))

    return await capacities(request).run(Work.PREDICTION, answer)


@model_pages.get("/{model_id}/file")
async def download(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    model_id: str,
    form: Annotated[Literal["safetensors", "onnx"], Query(alias="format")] = "safetensors",
) -> Response:
    """Download a model."""
    response = await model_file(request, installation, caller, model_id, form=form)
    response.headers["Content-Disposition"] = f'attachment; filename="model.{form}"'
    return response


@model_pages.post("/{model_id}/aliases")
async def move_alias(request: Request, installation: CurrentInstallation, caller: Caller, model_id: str) -> Response:
    """Make an alias of the model's dataset name this model, or remove the alias."""

    def act(form: Form) -> str:
        model = models.show_model(installation, caller, model_id)
        alias = checked(AliasFields, {"alias": form.get("alias", "").strip()}).alias
        if form.get("go") == "remove":
            models.remove_alias(installation, caller, model.dataset, alias)
        else:
            body = checked(AliasIn, {"model": model.id})
            models.put_alias(installation, caller, model.dataset, alias, model=body.model)
        return f"/ui/models/{model.id}?alias={alias}#aliases"

    def refused(refusal: GrovekeeperError) -> Response:
        return _card(request, installation, caller, model_id, _Shown("aliases"), refusal=refusal)

    return await submitted(request, act, refused)


def _card(
    request: Request,
    installation: Installation,
    caller: Principal,
    model_id: str,
    shown: _Shown = _CARD,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    model = models.show_model(installation, caller, model_id).model_dump(by_alias=True)
    named = models.list_aliases(installation, caller, model["dataset"], PageRequest(limits.MAX_PAGE_SIZE))
    history = _history(installation, caller, model["dataset"], shown.alias) if shown.alias else None
    movers = {move.moved_by for move in history.moves} if history else set()
    return rendered_with(
        request,
        "model",
        refusal,
        model=model,
        unit=unit_of(show.show_dataset(installation, caller, model["dataset"])),
        shown=shown,
        evaluations=_evaluations(installation, caller, model_id),
        may_evaluate=has_role(installation, caller, model["dataset"], TRAIN),
        aliases=named.aliases,
        names=_names(installation, caller, model["dataset"]),
        may_take=has_role(installation, caller, model["dataset"], TAKE_MODEL),
        may_name=has_role(installation, caller, model["dataset"], NAME_MODEL),
        history=history,
        keys=keys.names_of_keys(installation, caller, model["dataset"], movers),
    )


def _names(installation: Installation, caller: Principal, dataset: str) -> dict[str, str]:
    """The names of the newest models of a dataset, by id; models without a name are left out."""
    listed = models.list_models(installation, caller, PageRequest(limits.MAX_PAGE_SIZE), ModelFilter(dataset))
    return {model.id: model.name for model in listed.models if model.name}


def _history(installation: Installation, caller: Principal, dataset: str, alias: str) -> AliasHistory | None:
    """The moves of an alias, if it exists and the caller may see who moved it."""
    try:
        return models.show_alias(installation, caller, dataset, alias, PageRequest())
    except (NotFound, RoleMissing):
        return None


def _prediction(
    installation: Installation, caller: Principal, model_id: str, row: Mapping[str, str]
) -> list[tuple[str, float, bool]]:
    """Class, probability, and whether the class is the label, in descending order of probability."""
    model = models.show_model(installation, caller, model_id)
    features = {feature["name"]: feature for feature in model.schema_["features"]}
    values = {name: _value(features.get(name, {}), text) for name, text in row.items()}
    answer = json.loads(predict_rows(installation, caller, model.id, json.dumps({"rows": [values]}).encode("utf-8")))
    (label,), (probabilities,) = answer["labels"], answer["probabilities"]
    listed = zip(answer["classes"], probabilities, strict=True)
    return sorted(((name, share, name == label) for name, share in listed), key=lambda item: -item[1])


def _value(feature: Mapping[str, Any], text: str) -> str | float | None:
    """A cell of the row as the API takes it; an empty field is a missing value."""
    if not text:
        return None
    if feature.get("type") == "categorical":
        return text
    try:
        return float(text)
    except ValueError:
        return text  # the service names the column


def _evaluations(installation: Installation, caller: Principal, model_id: str) -> list[dict[str, Any]]:
    listed = evaluations.list_evaluations(installation, caller, model_id, PageRequest())
    return [evaluation.model_dump(by_alias=True) for evaluation in listed.evaluations]
