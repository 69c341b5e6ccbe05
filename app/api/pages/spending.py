"""Reads the fields that forms of spending requests share, quotes and submits them, and
serves the training page.

The training page shows the price of a job, what would be left, and what to expect.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from app.access.grants import TRAIN
from app.api.pages.dataset_view import shown_dataset
from app.api.pages.datasets import population_of
from app.api.pages.forms import Form, acts, checked, identity
from app.api.pages.rendering import Visit, Visitor
from app.api.requests import Router
from app.core import json_text, limits
from app.core.errors import (
    DatasetDeleted,
    IdempotencyKeyMissing,
    InvalidRequest,
    NotFound,
    RoleMissing,
)
from app.services.authorization import require_role
from app.services.ledger import balances
from app.services.pagination import PageRequest
from app.services.releases import profiles
from app.services.releases.contract import ReleaseRequest
from app.services.releases.requests import quote, submit
from app.services.releases.training import TrainingRequest
from app.wire.algorithms import AlgorithmOut
from app.wire.base import Reference
from app.wire.datasets import ColumnName
from app.wire.populations import PopulationOut
from app.wire.spending import AccountPlanOut
from app.wire.training import ExpectedAccuracyOut, TrainIn
from grovekeeper_common import scope_words
from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.limit_words import limit_in_words
from grovekeeper_common.recovered_shares import needed_epsilon
from grovekeeper_forests import catalogue
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy.events import Adjacency

_Plan = TypeVar("_Plan", bound=AccountPlanOut)
Text = Annotated[str, Field(max_length=limits.MAX_FIELD_CHARS)]


class SpendingFields(BaseModel):
    """The fields of a form that spends, as texts.

    Attributes:
        cells: chosen cells, one JSON text ``["partition", cell]`` for each; they stand
            for ``scope``.
        once: makes a form that is sent twice one job.
    """

    epsilon: Text = ""
    delta: Text = ""
    cells: Annotated[
        list[Annotated[str, Field(max_length=limits.MAX_CELL_CHARS)]],
        Field(max_length=limits.MAX_FORM_FIELDS),
    ] = []
    scope: Annotated[str, Field(max_length=limits.MAX_SCOPE_CHARS)] = ""
    name: Annotated[str, Field(max_length=2 * limits.MAX_JOB_NAME_CHARS)] = ""
    purpose: Annotated[str, Field(max_length=2 * limits.MAX_SENTENCE_CHARS)] = ""
    once: Text = ""

    @property
    def is_priced(self) -> bool:
        """Whether the form says how much the job may cost."""
        return bool(self.epsilon)

    def given(self, *names: str) -> JsonObject:
        """The fields of an API request that spends, as far as the form has them.

        Args:
            names: of more fields.

        Raises:
            InvalidRequest: the scope is no JSON.
        """
        given = {
            name: text
            for name in ("epsilon", "delta", "name", "purpose", *names)
            if (text := getattr(self, name).strip())
        }
        return {**given, "scope": self._scope()}

    def asking(self, epsilon: str) -> str:
        """The query of a quote for the same request at another ε, which also stands for
        a wanted error.
        """
        kept = self.model_dump(exclude={"epsilon", "error", "once"})
        given = {name: value for name, value in kept.items() if value}
        return urlencode({"epsilon": epsilon, **given}, doseq=True)

    def choices(
        self, dataset: JsonMapping
    ) -> list[tuple[str, list[tuple[str, str, bool]]]]:
        """Every partition's name and cells as a form offers them: value, words, and
        whether the cell is chosen.
        """
        chosen = set(self.cells)
        # the page says why a scope is invalid
        with suppress(InvalidRequest, AttributeError, TypeError):
            chosen |= {
                _cell(name, cell)
                for name, cells in self._scope().items()
                for cell in cells
            }
        partitions: list[tuple[str, list[tuple[str, str, bool]]]] = []
        for item in dataset["partitions"]:
            name, offered = item["name"], []
            for cell in _cells(item, dataset):
                value = _cell(name, cell)
                offered.append((value, str(cell), value in chosen))
            partitions.append((name, offered))
        return partitions

    def _scope(self) -> Any:
        """The scope of the chosen cells, or the one that a form carries as JSON."""
        scope: dict[str, list[object]] = {}
        for text in self.cells:
            match _json(text):
                case [str() as partition, cell]:
                    scope.setdefault(partition, []).append(cell)
                case _:
                    raise InvalidRequest.at(
                        "/scope",
                        "malformed",
                        accepted=["cells as [partition, cell] in JSON"],
                    )
        return scope or (_json(self.scope) if self.scope.strip() else {})


_Fields = TypeVar("_Fields", bound=SpendingFields)


@dataclass(frozen=True)
class Quote(Generic[_Plan]):
    """A quote with the balances that it is compared with; the visit has the reason why
    there is none.

    Attributes:
        dataset: the shown dataset, whose account pays.
        plan: the quote; ``None`` if no ε is given or the request is refused.
        scope: the scope of the plan as JSON, for the form that submits it.
        balance: of the dataset, at the tightest cell of the scope.
        population: of the population that admits less than the dataset, if the caller
            may see it.
    """

    visit: Visit
    dataset: JsonMapping
    fields: SpendingFields
    plan: _Plan | None
    scope: str
    balance: JsonMapping
    population: PopulationOut | None

    @property
    def nothing_fits(self) -> str:
        """Why no job fits where the plan would run, as a sentence."""
        plan = self.plan
        if plan is None:
            return "Nothing fits now."
        where = ""
        if plan.scope:
            where = " in these cells"
        elif plan.limited_by == "cap":
            where = " on the whole dataset"
        limit = limit_in_words(plan.limited_by, plan.population)
        return f"Nothing fits now{where}, limited by {limit}."

    def page(self, template: str, **context: Any) -> Response:
        """The page of the form that asked for the quote."""
        return self.visit.page(
            template,
            dataset=self.dataset,
            partitions=self.fields.choices(self.dataset),
            labels=[label["name"] for label in labels_of(self.dataset["schema"])],
            fields=self.fields,
            quote=self,
            **context,
        )


def quoted(
    visit: Visit,
    dataset: JsonMapping,
    fields: SpendingFields,
    ask: Callable[[], ReleaseRequest[_Plan]] | None,
) -> Quote[_Plan]:
    """Ask a service for the quote of a request, unless the form has no ε yet or is
    refused, or the dataset is deleted; a refusal becomes a part of the page.
    """
    refusal = visit.refusal
    if dataset["deleted_at"] is not None:
        refusal = refusal or DatasetDeleted()
    if ask is not None and refusal is None:
        try:
            plan = quote(*visit.by, ask())
            balance = balances.show_balance(
                *visit.by, dataset["id"], scope=plan.scope
            ).model_dump()
            scope = json.dumps(plan.scope, ensure_ascii=False) if plan.scope else ""
            return Quote(
                visit,
                dataset,
                fields,
                plan,
                scope,
                balance,
                population_of(visit, plan.population),
            )
        except (NotFound, RoleMissing):
            raise
        except GrovekeeperError as error:
            refusal = error
    return Quote(
        visit.refused(refusal), dataset, fields, None, "", dataset["account"], None
    )


def quoted_on(
    visit: Visit,
    reference: str,
    fields: _Fields,
    ask: Callable[[Visit, str, _Fields], ReleaseRequest[_Plan]],
) -> Quote[_Plan]:
    """:func:`quoted`, for a form of one dataset and for those who may train on it."""
    require_role(*visit.by, reference, TRAIN)
    dataset = shown_dataset(visit, reference)
    priced = partial(ask, visit, reference, fields) if fields.is_priced else None
    return quoted(visit, dataset, fields, priced)


_Page = Callable[[Visit, str, _Fields], Response]


def sold(
    pages: APIRouter,
    path: str,
    kind: type[_Fields],
    ask: Callable[[Visit, str, _Fields], ReleaseRequest[Any]],
) -> Callable[[_Page[_Fields]], _Page[_Fields]]:
    """Serves the page of a form that spends. The form submits a job to the address of
    the page; a refusal shows the page again with what would fit.

    Args:
        path: of the page, with the reference of a dataset or a model.
        kind: of the form's fields.
        ask: the request that the fields stand for.
    """

    def serve(page: _Page[_Fields]) -> _Page[_Fields]:
        def show(refused: Visit, **of: str) -> Response:
            [reference] = of.values()
            return page(refused, reference, checked(kind, refused.sent))

        @acts(pages, path, show)
        def buy(visit: Visit, form: Form, **of: str) -> str:
            [reference] = of.values()
            asked = ask(visit, reference, checked(kind, form))
            request = identity(visit, form)
            if request is None:
                raise IdempotencyKeyMissing
            return f"/ui{submit(*visit.by, asked, request=request).location}"

        return pages.get(path)(page)

    return serve


def _cells(partition: JsonMapping, dataset: JsonMapping) -> Sequence[object]:
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
        return json_text.loads_exactly(
            text.encode("utf-8", "surrogatepass"), max_nodes=limits.MAX_JSON_BODY_NODES
        )
    except GrovekeeperError:
        raise InvalidRequest.at("/scope", "not-json") from None


def title_of(plan: AccountPlanOut, what: str) -> str:
    """What a plan would release, for which label, and on which rows."""
    label = f" for {plan.label}" if plan.label else ""
    cells = f", {scope_words.cell(plan.scope)}" if plan.scope else ""
    return f"{what} at ε = {plan.price.epsilon}{label} on {plan.dataset_name}{cells}"


training_pages = Router(prefix="/ui/datasets")


class TrainingFields(SpendingFields):
    """The fields of a training form.

    Attributes:
        profile: whose bins and counts the forest reuses.
        recover: the recovered share, in percent, whose ε is looked up.
    """

    label: ColumnName = ""
    algorithm: Text = "auto"
    profile: Reference = ""
    recover: Text = ""


def _training(visit: Visit, dataset: str, fields: TrainingFields) -> TrainingRequest:
    _share(fields.recover)
    stated = fields.given("label", "algorithm", "profile")
    return TrainingRequest(body=checked(TrainIn, {**stated, "dataset": dataset}))


@sold(training_pages, "/{dataset}/train", TrainingFields, _training)
def quote_training(
    visit: Visitor, dataset: str, fields: Annotated[TrainingFields, Query()]
) -> Response:
    """Show the form of a training job, with its price as soon as an ε is given."""
    shown_quote = quoted_on(visit, dataset, fields, _training)
    shown, plan = shown_quote.dataset, shown_quote.plan
    labels = labels_of(shown["schema"])
    has_classes = any("classes" in label for label in labels)
    return shown_quote.page(
        "train",
        title=plan and title_of(plan, plan.algorithm),
        algorithms=_algorithms_for(shown, has_classes=has_classes),
        has_classes=has_classes,
        needed=plan and _needed(plan.expected_accuracy, fields.recover),
        profiles=profiles.list_profiles(*visit.by, dataset, PageRequest()).profiles,
    )


_LABEL = Adjacency.LABEL.value


def _algorithms_for(dataset: JsonMapping, *, has_classes: bool) -> list[AlgorithmOut]:
    """The algorithms that run on a dataset and need no second one: those that its
    account accepts. Those that protect labels alone run where nothing else is protected.
    Where all labels are numbers, those that predict numbers.
    """
    listed = list(map(AlgorithmOut.model_validate, catalogue.algorithms()))
    accountant = dataset["account"]["accountant"]
    return [
        algorithm
        for algorithm in listed
        if not algorithm.unlabelled
        and accountant in algorithm.accountants
        and (algorithm.adjacency != _LABEL or dataset["protects"] == _LABEL)
        and (has_classes or algorithm.predicts_numbers)
    ]


def _share(recover: str) -> int | None:
    if not recover:
        return None
    if not (recover.isascii() and recover.isdigit() and 1 <= int(recover) <= 100):
        raise InvalidRequest.at("/recover", "not-a-percentage")
    return int(recover)


def _needed(expected: ExpectedAccuracyOut, recover: str) -> JsonMapping | None:
    """The smallest ε at which similar tables recovered a share, in the middle; ``None``
    where no share is asked for.
    """
    share = _share(recover)
    if share is None:
        return None
    curve = ((at.epsilon, at.middle) for at in expected.curve)
    return {"share": share, "epsilon": needed_epsilon(curve, percent=share)}
