"""Serves the page of a training job before it is submitted: its price, what would be left, and what to expect."""

from collections.abc import Mapping
from secrets import token_urlsafe
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from app.access.grants import TRAIN, Principal
from app.access.idempotency import Answer
from app.api.pages.forms import Form, checked
from app.api.pages.refusals import rendered_with
from app.api.pages.routing import PageRoute
from app.api.pages.spending import SpendingFields, Text, accepted, identity, quoted
from app.api.requests import Caller, CurrentInstallation
from app.core.errors import GrovekeeperError, InvalidRequest
from app.forests import catalogue
from app.services.authorization import require_role
from app.services.datasets import show
from app.services.installation import Installation
from app.services.spending.training import show_plan, submit_training
from app.wire.spending import AlgorithmOut, ExpectedAccuracyOut, PlanIn, PlanOut, TrainIn

router = APIRouter(prefix="/ui/datasets/{dataset}/train", route_class=PageRoute)

_Model = TypeVar("_Model", bound=BaseModel)


class TrainingFields(SpendingFields):
    """The fields of a training form; ``recover`` is the recovered share, in percent, whose ε is looked up."""

    algorithm: Text = "auto"
    recover: Text = ""


@router.get("")
def quote(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    dataset: str,
    fields: Annotated[TrainingFields, Query()],
) -> Response:
    """Show the form of a training job, with its price as soon as an ε is given."""
    return _page(request, installation, caller, dataset, fields)


@router.post("")
async def train(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Submit the job of the form; a refusal shows the form again with what would fit."""

    def act(form: Form) -> Answer:
        body = _body(TrainIn, dataset, checked(TrainingFields, form))
        return submit_training(installation, caller, body, request=identity(request, caller, form))

    def refused(form: Form, refusal: GrovekeeperError) -> Response:
        return _page(request, installation, caller, dataset, checked(TrainingFields, form), refusal=refusal)

    return await accepted(request, act, refused)


def _page(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    fields: TrainingFields,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    require_role(installation, caller, dataset, TRAIN)
    shown = show.show_dataset(installation, caller, dataset).model_dump(by_alias=True)

    def ask() -> PlanOut:
        _share(fields.recover)
        return show_plan(installation, caller, _body(PlanIn, dataset, fields))

    quote = quoted(installation, caller, shown, ask if fields.epsilon else None, refusal=refusal)
    expected = quote.plan and quote.plan.expected_accuracy
    return rendered_with(
        request,
        "train",
        quote.refusal,
        dataset=shown,
        algorithms=_algorithms_for(shown),
        partitions=fields.choices(shown),
        fields=fields,
        quote=quote,
        dots=[(at.table, at.share) for at in expected.tables] if expected else [],
        needed=_needed(expected, fields.recover) if expected else None,
        once=token_urlsafe(16),
    )


def _algorithms_for(dataset: Mapping[str, Any]) -> list[AlgorithmOut]:
    """The algorithms that run on a dataset and need no second one: those that its account accepts."""
    listed = [AlgorithmOut.model_validate(item) for item in catalogue.algorithms()]
    accountant = dataset["account"]["accountant"]
    return [algorithm for algorithm in listed if not algorithm.unlabelled and accountant in algorithm.accountants]


def _share(recover: str) -> int | None:
    if not recover:
        return None
    if not (recover.isascii() and recover.isdigit() and 1 <= int(recover) <= 100):
        raise InvalidRequest.at("/recover", "not-a-percentage")
    return int(recover)


def _needed(expected: ExpectedAccuracyOut, recover: str) -> Mapping[str, Any] | None:
    """The smallest ε at which similar tables recovered a share, in the middle; ``None`` where no share is asked for."""
    share = _share(recover)
    if share is None:
        return None
    reached = (at.epsilon for at in expected.curve if at.middle * 100 >= share)
    return {"share": share, "epsilon": next(reached, None)}


def _body(model: type[_Model], dataset: str, fields: TrainingFields) -> _Model:
    """The body of the API's request that a form stands for.

    Raises:
        InvalidRequest: a field breaks a rule of the API.
    """
    given = {"algorithm": fields.algorithm, **fields.stated()}
    value = {name: text for name, text in given.items() if text and name in model.model_fields}
    return checked(model, {**value, **fields.amounts(), "dataset": dataset})
