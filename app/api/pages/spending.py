"""Reads the fields that forms of spending requests share, shows a quote for them, and submits them as one job."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeAlias, TypeVar
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field

from app.access.grants import Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.api.capacity import Work, capacities
from app.api.pages.dataset_details import population_of
from app.api.pages.forms import Form, read_form
from app.api.requests import checked_key, route_of
from app.core import json_text, limits
from app.core.errors import (
    GrovekeeperError,
    IdempotencyKeyMissing,
    InvalidRequest,
    NotFound,
    RoleMissing,
    Unauthenticated,
)
from app.services.installation import Installation
from app.services.ledger import balances
from app.wire.spending import AccountPlanOut

_Plan = TypeVar("_Plan", bound=AccountPlanOut)
Text: TypeAlias = Annotated[str, Field(max_length=64)]


class SpendingFields(BaseModel):
    """The fields of a form that spends, as texts.

    Attributes:
        cells: chosen cells, one JSON text ``["partition", cell]`` for each; they stand for ``scope``.
        once: makes a form that is sent twice one job.
    """

    epsilon: Text = ""
    delta: Text = ""
    cells: Annotated[list[Annotated[str, Field(max_length=1_024)]], Field(max_length=limits.MAX_FORM_FIELDS)] = []
    scope: Annotated[str, Field(max_length=65_536)] = ""
    name: Annotated[str, Field(max_length=256)] = ""
    purpose: Annotated[str, Field(max_length=2 * limits.MAX_SENTENCE_CHARS)] = ""
    once: Text = ""

    def amounts(self) -> dict[str, Any]:
        """The fields of an API request that spends.

        Raises:
            InvalidRequest: the scope is no JSON.
        """
        given = {name: text for name in ("epsilon", "delta") if (text := getattr(self, name))}
        return {**given, "scope": self._scope()}

    def stated(self) -> dict[str, str]:
        """The name and the purpose of the job, as far as the form has them."""
        return {name: text for name in ("name", "purpose") if (text := getattr(self, name).strip())}

    def query(self) -> str:
        """The query of a quote for the same request at another ε, which is to be appended."""
        kept = self.model_dump(exclude={"epsilon", "once", "name", "purpose"})
        return urlencode({name: value for name, value in kept.items() if value}, doseq=True)

    def choices(self, dataset: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str, bool]]]]:
        """Every partition's name and cells as a form offers them: value, words, and whether the cell is chosen."""
        chosen = set(self.cells)
        with suppress(InvalidRequest, AttributeError, TypeError):  # the page says why a scope is invalid
            chosen |= {_cell(name, cell) for name, cells in self._scope().items() for cell in cells}
        return [
            (name, [(_cell(name, cell), str(cell), _cell(name, cell) in chosen) for cell in cells])
            for name, cells in ((item["name"], _cells(item, dataset)) for item in dataset["partitions"])
        ]

    def _scope(self) -> Any:
        """The scope of the chosen cells, or the one that a form carries as JSON."""
        scope: dict[str, list[object]] = {}
        for text in self.cells:
            match _json(text):
                case [str() as partition, cell]:
                    scope.setdefault(partition, []).append(cell)
                case _:
                    raise InvalidRequest.at("/scope", "malformed")
        return scope or (_json(self.scope) if self.scope.strip() else {})


@dataclass(frozen=True)
class Quote(Generic[_Plan]):
    """A quote with the balances that it is compared with, or the reason why there is none.

    Attributes:
        plan: the quote; ``None`` if no ε is given or the request is refused.
        scope: the scope of the plan as JSON, for the form that submits it.
        balance: of the dataset, at the tightest cell of the scope.
        population: of the population that admits less than the dataset, if the caller may see it.
    """

    plan: _Plan | None
    scope: str
    balance: Mapping[str, Any]
    population: Any
    refusal: GrovekeeperError | None


def quoted(
    installation: Installation,
    caller: Principal,
    dataset: Mapping[str, Any],
    ask: Callable[[], _Plan] | None,
    *,
    refusal: GrovekeeperError | None = None,
) -> Quote[_Plan]:
    """Ask for a quote; a refusal becomes a part of the page.

    Args:
        installation: this installation.
        caller: the caller.
        dataset: the shown dataset, whose account pays.
        ask: asks a service for the quote; ``None`` if the form has no ε yet.
        refusal: of the form that was sent; no quote is asked for then.
    """
    if ask is None or refusal is not None:
        return Quote(None, "", dataset["account"], None, refusal)
    try:
        plan = ask()
        balance = balances.show_balance(installation, caller, dataset["id"], scope=plan.scope).model_dump()
    except (NotFound, RoleMissing):
        raise
    except GrovekeeperError as error:
        return Quote(None, "", dataset["account"], None, error)
    scope = json.dumps(plan.scope, ensure_ascii=False) if plan.scope else ""
    return Quote(plan, scope, balance, population_of(installation, caller, plan.population), None)


def identity(request: Request, caller: Principal, form: Form) -> IdempotentRequest:
    """The identity of a form that spends, by its hidden field ``once``.

    Raises:
        IdempotencyKeyMissing: the form has no such field.
    """
    once = checked_key(request, form.get("once") or None)
    if once is None:
        raise IdempotencyKeyMissing
    return IdempotentRequest(caller.key_id, route_of(request), once, json_text.digest(dict(form)))


async def accepted(
    request: Request, act: Callable[[Form], Answer], refused: Callable[[Form, GrovekeeperError], Response]
) -> Response:
    """Submit a form as a job and lead to the job; a refusal shows the form again with what would fit."""
    form = await read_form(request)

    def run() -> Response:
        try:
            return RedirectResponse(f"/ui{act(form).location}", status_code=303)
        except (NotFound, RoleMissing, Unauthenticated):
            raise
        except GrovekeeperError as error:
            return refused(form, error)

    return await capacities(request).run(Work.WRITE, run)


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


def _json(text: str) -> Any:
    try:
        return json_text.loads_exactly(text.encode("utf-8", "surrogatepass"), max_nodes=limits.MAX_JSON_BODY_NODES)
    except GrovekeeperError:
        raise InvalidRequest.at("/scope", "not-json") from None
