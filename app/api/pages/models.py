"""Serves the pages of models: the list, a model card with a prediction for one row, and
the form of its aliases.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from fastapi import Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from app.access.grants import NAME_MODEL, TAKE_MODEL, TRAIN
from app.api.capacity import Work, capacities
from app.api.pages.dataset_view import tabs_of, unit_of_dataset
from app.api.pages.forms import (
    Form,
    acts,
    checked,
    read_file_form,
    read_form,
    typed,
    written,
)
from app.api.pages.model_view import (
    compared_features,
    drawn_tree,
    evaluation_row,
    example_row,
    first_days,
    leaf_shares,
    likeliest,
    listed_model,
    named_model,
    row_fields,
    tree_use,
)
from app.api.pages.rendering import Visit, Visitor, as_file, if_permitted
from app.api.pages.views import ShownProblem, WrongField, shown_problem
from app.api.pages.words import sentence
from app.api.requests import Body, NameFilter, Page, Router, limited
from app.api.streams import model_file
from app.core import limits
from app.core.errors import InvalidRequest, RowsInvalid, TooLarge
from app.registry.models import ModelFilter
from app.services import keys, models
from app.services.authorization import has_role
from app.services.datasets import show
from app.services.jobs import show_jobs
from app.services.pagination import PageRequest
from app.services.predict import predict as predict_rows
from app.services.prediction_files import predict_file as predicted_file
from app.services.releases import evaluations
from app.wire.aliases import AliasName
from app.wire.base import Reference
from app.wire.models import ComparedModelOut
from grovekeeper_common.number_words import few_digits
from grovekeeper_common.text_cells import CellReader, WrongCell
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.errors import ParameterInvalid

model_pages = Router(prefix="/ui/models")
_FIELD = "feature."
_COLUMNS = [
    "Compare",
    "Model",
    "Trained on",
    "Algorithm",
    "Price",
    "Accuracy",
    "Released (UTC)",
]
_ALIASES = ["Alias", "Names", "Since (UTC)"]
"""The columns of the table of aliases, for readers who may not move them."""


class AliasFields(BaseModel):
    """The fields of the form of an alias."""

    alias: AliasName


class ComparisonFields(BaseModel):
    """The boxes of the list of models, one for each model to compare."""

    models: Annotated[
        list[Reference], Field(max_length=limits.MAX_FORM_FIELDS, default_factory=list)
    ]


@dataclass(frozen=True)
class _Shown:
    """What a form of a card asked for, beside the card.

    Attributes:
        form: ``prediction``, ``file``, ``aliases`` or ``delete``, if the page answers
            such a form.
        alias: the alias whose moves are shown.
        tree: the number of the tree that is drawn.
        prediction: the likeliest classes with their probabilities.
        label: the class that is answered.
        number: the predicted number, where the label is one.
        changed: the features whose number is out of its bounds.
        unseen: the features whose category is not declared.
        refused: why there is no prediction, if a field or a cell of the file has no
            value of its column.
    """

    form: str = ""
    alias: str = ""
    tree: int = 0
    row: Mapping[str, str] = field(default_factory=dict)
    prediction: Sequence[tuple[str, float]] = ()
    label: str = ""
    number: str | None = None
    changed: Sequence[str] = ()
    unseen: Sequence[str] = ()
    refused: ShownProblem | None = None


@model_pages.get("")
def list_models(visit: Visitor, page: Page, dataset: NameFilter = None) -> Response:
    """Show the models of all datasets on which the key may predict, or of one dataset,
    newest first.
    """
    listed = models.list_models(*visit.by, page, ModelFilter(dataset))
    of = None
    if dataset is not None:
        of = show.show_dataset(*visit.by, dataset)
    may_choose = of is not None and has_role(*visit.by, of.id, TRAIN)
    return visit.page(
        "models",
        models=list(map(listed_model, listed.models)),
        columns=_COLUMNS,
        following=listed.next,
        of=of,
        dataset_parts=tabs_of(visit, of.id, "Models") if of else [],
        may_choose=may_choose,
    )


@model_pages.get("/comparison")
def compare_models(
    visit: Visitor, chosen: Annotated[ComparisonFields, Query()]
) -> Response:
    """Show the chosen models side by side."""
    compared: Sequence[ComparedModelOut] = ()
    may_choose = False
    if len(chosen.models) > 1:
        compared = models.compare_models(*visit.by, chosen.models).models
        may_choose = has_role(*visit.by, compared[0].dataset, TRAIN)
    return visit.page(
        "comparison",
        models=list(map(listed_model, compared)),
        may_choose=may_choose,
        parameters=dict.fromkeys(
            name for model in compared for name in model.parameters
        ),
        features=compared_features(compared),
        has_counts=all(
            use.importance is not None for model in compared for use in model.features
        ),
    )


@model_pages.get("/{model_id}")
def show_model(
    visit: Visitor,
    model_id: str,
    alias: Annotated[str, Query(max_length=limits.MAX_ALIAS_CHARS)] = "",
    tree: Annotated[int, Query(ge=0, lt=forest_limits.MAX_TREES)] = 0,
) -> Response:
    """Show a model card. ``alias`` chooses the alias of its dataset whose moves are
    shown, and ``tree`` the tree that is drawn.
    """
    return _card(visit, model_id, _Shown(alias=alias, tree=tree))


@model_pages.post("/{model_id}")
async def predict(visit: Visitor, model_id: str) -> Response:
    """Show a model card with the prediction for the row of the form."""
    form = await read_form(visit.request)
    row = {
        name.removeprefix(_FIELD): text
        for name, text in form.items()
        if name.startswith(_FIELD)
    }

    def answer() -> Response:
        try:
            if row:
                shown = _prediction(visit, model_id, row)
            else:
                shown = _Shown("prediction")
        except (InvalidRequest, ParameterInvalid) as refusal:
            return _card(
                visit.refused(refusal), model_id, _Shown("prediction", row=row)
            )
        return _card(visit, model_id, shown)

    return await capacities(visit.request).run(Work.PREDICTION, answer)


@model_pages.post("/{model_id}/predictions")
@limited(body=Body.ROWS)
async def predict_file(visit: Visitor, model_id: str) -> Response:
    """Download the rows of a file with their predictions."""
    form = await read_file_form(visit.request)
    content = b"".join([chunk async for chunk in form.chunks])

    def answer() -> Response:
        try:
            rows = predicted_file(*visit.by, model_id, content, written(form.fields))
        except (InvalidRequest, ParameterInvalid, RowsInvalid, TooLarge) as refusal:
            _, problem = shown_problem(refusal)
            if isinstance(refusal, RowsInvalid):  # which speaks of an upload
                problem = replace(problem, sentence="")
            problem = replace(problem, title="The file cannot be predicted")
            return _card(
                visit.refused(None, form.fields),
                model_id,
                _Shown("file", refused=problem),
            )
        file = PlainTextResponse(rows, media_type="text/csv")
        return as_file(file, f"predictions-{model_id}.csv")

    return await capacities(visit.request).run(Work.PREDICTION, answer)


@model_pages.get("/{model_id}/file")
async def download(
    visit: Visitor,
    model_id: str,
    form: Annotated[
        Literal["safetensors", "onnx"], Query(alias="format")
    ] = "safetensors",
) -> Response:
    """Download a model."""
    return await model_file(visit.request, *visit.by, model_id, form=form)


@acts(
    model_pages,
    "/{model_id}/aliases",
    lambda refused, model_id: _card(refused, model_id, _Shown("aliases")),
)
def move_alias(visit: Visit, form: Form, model_id: str) -> str:
    """Make an alias of the model's dataset name this model, or remove the alias."""
    model = models.show_model(*visit.by, model_id)
    alias = checked(AliasFields, {"alias": typed(form, "alias")}).alias
    if form.get("go") == "remove":
        models.remove_alias(*visit.by, model.dataset, alias)
    else:
        models.put_alias(*visit.by, model.dataset, alias, model=model.id)
    return f"/ui/models/{model.id}?alias={alias}#aliases"


@acts(
    model_pages,
    "/{model_id}/delete",
    lambda refused, model_id: _card(refused, model_id, _Shown("delete")),
)
def delete(visit: Visit, form: Form, model_id: str) -> str:
    """Delete a model that no alias names."""
    models.delete_model(*visit.by, model_id)
    return "/ui/models"


def _card(visit: Visit, model_id: str, shown: _Shown) -> Response:
    model = models.show_model(*visit.by, model_id).model_dump(by_alias=True)
    use = models.show_importances(*visit.by, model_id)
    dataset = model["dataset"]
    history = None
    if shown.alias:
        history = if_permitted(
            lambda: models.show_alias(*visit.by, dataset, shown.alias, PageRequest())
        )
    names = _names(visit, dataset)
    aliases = models.list_aliases(
        *visit.by, dataset, PageRequest(limits.MAX_PAGE_SIZE)
    ).aliases
    may_name = has_role(*visit.by, dataset, NAME_MODEL)
    return visit.page(
        "model",
        status=422 if shown.refused else 200,
        model=model,
        job=show_jobs.jobs_of(*visit.by, [model["job_id"]]).get(model["job_id"]),
        unit=unit_of_dataset(visit, dataset),
        shown=shown,
        row_fields=row_fields(model["schema"], shown.row),
        example_row=example_row(model["schema"]),
        first_days=first_days(model["schema"]),
        evaluations=[
            evaluation_row(evaluation, model["id"])
            for evaluation in evaluations.list_evaluations(
                *visit.by, model_id, PageRequest()
            ).evaluations
        ],
        use=tree_use(use.features),
        leaves=leaf_shares(use.leaves),
        tree=drawn_tree(models.show_tree(*visit.by, model_id, shown.tree)),
        may_evaluate=has_role(*visit.by, dataset, TRAIN),
        aliases=[
            (alias, named_model(alias.model_id, model["id"], names))
            for alias in aliases
        ],
        columns_of_aliases=[*_ALIASES, "Change"] if may_name else _ALIASES,
        may_take=has_role(*visit.by, dataset, TAKE_MODEL),
        may_name=may_name,
        moves=[
            (move, named_model(move.model_id, model["id"], names))
            for move in (history.moves if history else ())
        ],
        history=history,
        keys=keys.names_of_keys(
            *visit.by,
            dataset,
            {move.moved_by for move in history.moves} if history else set(),
        ),
    )


def _names(visit: Visit, dataset: str) -> dict[str, str]:
    """The names of the newest models of a dataset, by id; models without a name are
    left out.
    """
    listed = models.list_models(
        *visit.by, PageRequest(limits.MAX_PAGE_SIZE), ModelFilter(dataset)
    )
    return {model.id: model.name for model in listed.models if model.name}


def _prediction(visit: Visit, model_id: str, row: Mapping[str, str]) -> _Shown:
    """The classes in descending order of probability."""
    model = models.show_model(*visit.by, model_id)
    cells = CellReader(model.schema_)
    values = {}
    wrong = []
    for name, text in row.items():
        try:
            values[name] = cells.cell(name, text)
        except WrongCell as why:
            wrong.append(WrongField(name, sentence(str(why))))
    if wrong:
        problem = ShownProblem("The row cannot be read", "", wrong_fields=wrong)
        return _Shown("prediction", row=row, refused=problem)
    body = json.dumps({"rows": [values], "counts": True}).encode("utf-8")
    answer = json.loads(predict_rows(*visit.by, model.id, body))
    [label] = answer["labels"]
    shares = zip(answer["classes"], *answer["probabilities"], strict=True)
    number = None if answer["classes"] else few_digits(label)
    counts = answer["counts"]
    return _Shown(
        "prediction",
        row=row,
        prediction=likeliest(shares),
        label=label,
        number=number,
        changed=list(counts["clamped"]),
        unseen=list(counts["unseen"]),
    )
