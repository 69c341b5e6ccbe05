"""Serves the page that quotes and submits the choice of the best of several models for one charge."""

from secrets import token_urlsafe
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from app.access.grants import TRAIN, Principal
from app.access.idempotency import Answer
from app.api.pages.evaluations import ReadRows, rows_to_read
from app.api.pages.forms import Form, checked
from app.api.pages.refusals import rendered_with
from app.api.pages.routing import PageRoute
from app.api.pages.spending import Text, accepted, identity, quoted
from app.api.requests import Caller, CurrentInstallation
from app.core import limits
from app.core.errors import GrovekeeperError
from app.registry.models import ModelFilter
from app.services import models
from app.services.authorization import require_role
from app.services.datasets import show
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.services.spending.evaluations import show_evaluation_quote, submit_evaluation
from app.wire.spending import SelectionIn

router = APIRouter(prefix="/ui/datasets/{of}/choice", route_class=PageRoute)

_Reference = Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)]


class SelectionFields(ReadRows):
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


@router.get("")
def quote(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    of: str,
    fields: Annotated[SelectionFields, Query()],
) -> Response:
    """Show the form of a choice among the models of a dataset, with its price once two models are chosen."""
    return _page(request, installation, caller, of, fields)


@router.post("")
async def choose(request: Request, installation: CurrentInstallation, caller: Caller, of: str) -> Response:
    """Submit the choice of the form; a refusal shows the form again with what would fit."""

    def act(form: Form) -> Answer:
        body = _body(checked(SelectionFields, form), of)
        return submit_evaluation(installation, caller, body.models, body, request=identity(request, caller, form))

    def refused(form: Form, refusal: GrovekeeperError) -> Response:
        return _page(request, installation, caller, of, checked(SelectionFields, form), refusal=refusal)

    return await accepted(request, act, refused)


def _page(
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
        (lambda: show_evaluation_quote(installation, caller, chosen, _body(fields, of))) if len(chosen) > 1 else None,
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


def _body(fields: SelectionFields, of: str) -> SelectionIn:
    """The body of the API's request that a form stands for.

    Raises:
        InvalidRequest: a field breaks a rule of the API.
    """
    given = {"dataset": fields.dataset.strip() or of, "models": fields.normal().chosen.split()}
    return checked(
        SelectionIn, {**given, **fields.stated(), **fields.amounts(), "winner_accuracy": bool(fields.winner_accuracy)}
    )
