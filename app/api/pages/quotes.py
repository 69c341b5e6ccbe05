"""Serves the page of a training job before it is submitted: its price, what would be left, and what to expect."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from secrets import token_urlsafe
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from app.access.idempotency import IdempotentRequest
from app.access.roles import Principal
from app.api import exact_json, problems
from app.api.capacity import Work, capacities
from app.api.deps import Caller, CurrentInstallation, checked_key, route_of
from app.api.pages.dataset_details import population_of
from app.api.pages.forms import checked, read_form
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.core import limits
from app.core.errors import GrovekeeperError, IdempotencyKeyMissing, InvalidRequest, NotFound, RoleMissing
from app.forests import catalogue
from app.services.datasets import show_datasets
from app.services.installation import Installation
from app.services.ledger import balances
from app.services.training.quote_training import show_plan
from app.services.training.submit_training import submit_training
from app.wire.training import AlgorithmOut, ExpectedAccuracyOut, PlanIn, TrainIn

router = APIRouter(prefix="/ui/datasets/{dataset}/train", route_class=PageRoute)

_Model = TypeVar("_Model", bound=BaseModel)
_Text = Annotated[str, Field(max_length=64)]


class TrainingFields(BaseModel):
    """The fields of a training form, as texts.

    Attributes:
        cells: chosen cells, one JSON text ``["partition", cell]`` for each; they stand for ``scope``.
        recover: the recovered share, in percent, whose ε is looked up.
        once: makes a form that is sent twice one job.
    """

    algorithm: _Text = "auto"
    epsilon: _Text = ""
    delta: _Text = ""
    cells: Annotated[list[Annotated[str, Field(max_length=1_024)]], Field(max_length=limits.MAX_FORM_FIELDS)] = []
    scope: Annotated[str, Field(max_length=65_536)] = ""
    recover: _Text = ""
    name: Annotated[str, Field(max_length=256)] = ""
    once: _Text = ""


@router.get("")
def quote(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    dataset: str,
    fields: Annotated[TrainingFields, Query()],
) -> Response:
    """Show the form of a training job, with its price as soon as an ε is given."""
    return _training_page(request, installation, caller, dataset, fields)


@router.post("")
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
    plan, needed, population, balance = None, None, None, shown["account"]
    if fields.epsilon and refusal is None:
        try:
            plan = show_plan(installation, caller, _body(PlanIn, dataset, fields))
            population = population_of(installation, caller, plan.population)
            needed = _needed(plan.expected_accuracy, fields.recover)
            balance = balances.show_balance(installation, caller, shown["id"], scope=plan.scope).model_dump()
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
        balance=balance,
        population=population,
        algorithms=_algorithms_for(shown["account"]["accountant"]),
        partitions=_choices(shown, fields),
        fields=fields,
        plan=plan,
        scope=json.dumps(plan.scope, ensure_ascii=False) if plan is not None and plan.scope else "",
        dots=[(at.table, at.share) for at in plan.expected_accuracy.tables]
        if plan is not None and plan.expected_accuracy is not None
        else [],
        needed=needed,
        refusal=body,
        once=token_urlsafe(16),
    )


def _algorithms_for(accountant: str) -> list[AlgorithmOut]:
    """The algorithms that an account accepts and that need no second dataset."""
    listed = [AlgorithmOut.model_validate(item) for item in catalogue.algorithms()]
    return [algorithm for algorithm in listed if accountant in algorithm.accountants and not algorithm.unlabelled]


def _choices(dataset: Mapping[str, Any], fields: TrainingFields) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Every partition's name and cells as a form offers them: value, words, and whether the cell is chosen."""
    chosen = set(fields.cells)
    with suppress(InvalidRequest, AttributeError, TypeError):  # the page says why a scope is invalid
        chosen |= {_cell(name, cell) for name, cells in _scope(fields).items() for cell in cells}
    return [
        (name, [(_cell(name, cell), str(cell), _cell(name, cell) in chosen) for cell in cells])
        for name, cells in ((item["name"], _cells(item, dataset)) for item in dataset["partitions"])
    ]


def _cells(partition: Mapping[str, Any], dataset: Mapping[str, Any]) -> Sequence[object]:
    match partition["kind"]:
        case "hash":
            return range(partition["cells"])
        case "epoch":
            return [epoch["epoch"] for epoch in dataset["epochs"]]
        case _:
            return list(partition["cells"])


def _cell(partition: str, cell: object) -> str:
    return json.dumps([partition, cell], ensure_ascii=False)


def _needed(expected: ExpectedAccuracyOut | None, recover: str) -> Mapping[str, str | None] | None:
    """The smallest ε at which similar tables recovered a share, in the middle; ``None`` where no share is asked for."""
    if not recover:
        return None
    if not (recover.isascii() and recover.isdigit() and 1 <= int(recover) <= 100):
        raise InvalidRequest.at("/recover", "not-a-percentage")
    curve = [] if expected is None else expected.curve
    return {"share": recover, "epsilon": next((at.epsilon for at in curve if at.middle * 100 >= int(recover)), None)}


def _body(model: type[_Model], dataset: str, fields: TrainingFields) -> _Model:
    """The body of the API's request that a form stands for.

    Raises:
        InvalidRequest: a field breaks a rule of the API.
    """
    given = fields.model_dump(include={"algorithm", "epsilon", "delta", "name"} & set(model.model_fields))
    value = {name: text for name, text in given.items() if text}
    return checked(model, {**value, "dataset": dataset, "scope": _scope(fields)})


def _scope(fields: TrainingFields) -> Any:
    """The scope of the chosen cells, or the one that a form carries as JSON.

    Raises:
        InvalidRequest: no JSON.
    """
    scope: dict[str, list[object]] = {}
    for text in fields.cells:
        match _json(text):
            case [str() as partition, cell]:
                scope.setdefault(partition, []).append(cell)
            case _:
                raise InvalidRequest.at("/scope", "malformed")
    return scope or (_json(fields.scope) if fields.scope.strip() else {})


def _json(text: str) -> Any:
    try:
        return exact_json.loads(text.encode("utf-8", "surrogatepass"), max_nodes=limits.MAX_JSON_BODY_NODES)
    except GrovekeeperError:
        raise InvalidRequest.at("/scope", "not-json") from None
