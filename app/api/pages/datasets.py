"""Serves the list of datasets, and a quote for a training job."""

from collections.abc import Mapping
from decimal import Decimal
from secrets import token_urlsafe
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from app.access.idempotency import IdempotentRequest
from app.access.roles import Principal
from app.api import exact_json, problems
from app.api.capacity import Work, capacities
from app.api.deps import Caller, CurrentInstallation, Page, checked_key, route_of
from app.api.pages.forms import checked, read_form
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.core import limits
from app.core.errors import GrovekeeperError, IdempotencyKeyMissing, InvalidRequest, NotFound, RoleMissing
from app.forests import catalogue
from app.services.datasets import show_datasets
from app.services.installation import Installation
from app.services.training.quote_training import show_plan
from app.services.training.submit_training import submit_training
from app.wire.training import AlgorithmOut, PlanIn, TrainIn

router = APIRouter(route_class=PageRoute)

_Model = TypeVar("_Model", bound=BaseModel)


@router.get("/")
def list_datasets(request: Request, installation: CurrentInstallation, caller: Caller, page: Page) -> Response:
    """Show every dataset that the key sees, the fullest first."""
    listed = show_datasets.list_datasets(installation, caller, page)
    datasets = [dataset.model_dump(by_alias=True) for dataset in listed.datasets]
    living = sorted((item for item in datasets if item["deleted_at"] is None), key=_share_used, reverse=True)
    erased = [item for item in datasets if item["deleted_at"] is not None]
    return rendered(request, "datasets", datasets=living, erased=erased, following=listed.next)


class TrainingFields(BaseModel):
    """The fields of a training form, as texts; ``once`` makes a form that is sent twice one job."""

    algorithm: Annotated[str, Field(max_length=64)] = "auto"
    epsilon: Annotated[str, Field(max_length=64)] = ""
    delta: Annotated[str, Field(max_length=64)] = ""
    scope: Annotated[str, Field(max_length=65_536)] = ""
    name: Annotated[str, Field(max_length=256)] = ""
    once: Annotated[str, Field(max_length=64)] = ""


@router.get("/ui/datasets/{dataset}/train")
def quote(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    dataset: str,
    fields: Annotated[TrainingFields, Query()],
) -> Response:
    """Show the form of a training job, with its price as soon as an ε is given."""
    return _training_page(request, installation, caller, dataset, fields)


@router.post("/ui/datasets/{dataset}/train")
async def train(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Submit the job of the form; a refusal shows the form again with what would fit."""
    form = await read_form(request)
    return await capacities(request).run(Work.WRITE, lambda: _submit(request, installation, caller, dataset, form))


def _submit(
    request: Request, installation: Installation, caller: Principal, dataset: str, form: Mapping[str, str]
) -> Response:
    fields = checked(TrainingFields, form)
    once = checked_key(request, fields.once or None)
    if once is None:
        raise IdempotencyKeyMissing
    try:
        body = _body(TrainIn, dataset, fields)
        identity = IdempotentRequest(caller.key_id, route_of(request), once, exact_json.digest(dict(form)))
        answer = submit_training(installation, caller, body, request=identity)
    except (NotFound, RoleMissing):
        raise
    except GrovekeeperError as error:
        return _training_page(request, installation, caller, dataset, fields, refusal=error)
    return RedirectResponse(f"/ui{answer.location}", status_code=303)


def _training_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    fields: TrainingFields,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    shown = show_datasets.show_dataset(installation, caller, dataset).model_dump(by_alias=True)
    plan = None
    if fields.epsilon and refusal is None:
        try:
            plan = show_plan(installation, caller, _body(PlanIn, dataset, fields))
        except (NotFound, RoleMissing):
            raise
        except GrovekeeperError as error:
            refusal = error
    body, row = (None, None) if refusal is None else problems.problem_of(refusal)
    return rendered(
        request,
        "train",
        status=200 if row is None else row.status,
        dataset=shown,
        algorithms=_algorithms_for(shown["account"]["accountant"]),
        fields=fields,
        plan=plan,
        refusal=body,
        once=token_urlsafe(16),
    )


def _algorithms_for(accountant: str) -> list[AlgorithmOut]:
    """The algorithms that an account accepts and that need no second dataset."""
    listed = [AlgorithmOut.model_validate(item) for item in catalogue.algorithms()]
    return [algorithm for algorithm in listed if accountant in algorithm.accountants and not algorithm.unlabelled]


def _body(model: type[_Model], dataset: str, fields: TrainingFields) -> _Model:
    """The body of the API's request that a form stands for.

    Raises:
        InvalidRequest: a field breaks a rule of the API.
    """
    given = fields.model_dump(include={"algorithm", "epsilon", "delta", "name"} & set(model.model_fields))
    value = {name: text for name, text in given.items() if text}
    return checked(model, {**value, "dataset": dataset, "scope": _scope(fields.scope)})


def _scope(text: str) -> object:
    if not text.strip():
        return {}
    try:
        return exact_json.loads(text.encode("utf-8", "surrogatepass"), max_nodes=limits.MAX_JSON_BODY_NODES)
    except GrovekeeperError:
        raise InvalidRequest.at("/scope", "not-json") from None


def _share_used(dataset: Mapping[str, Any]) -> Decimal:
    account = dataset["account"]
    return (Decimal(account["charged"]) + Decimal(account["reserved"])) / (Decimal(account["cap"]) or Decimal(1))
