"""Serves the list of datasets, and the pages of one dataset: its facts and rules, uploads of rows, and erasures."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import combinations
from pathlib import PurePath
from secrets import token_urlsafe
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request, Response

from app.access.grants import MANAGE_DATASET, PREDICT, TRAIN, Principal
from app.api.capacity import Work, capacities
from app.api.pages import pictures
from app.api.pages.forms import Form, PageRoute, checked, read_file_form, submitted, utc
from app.api.pages.rendering import rendered, rendered_with
from app.api.requests import Body, Caller, CurrentInstallation, Page, checked_key, limited
from app.api.streams import receive_upload
from app.core import limits
from app.core.errors import (
    GrovekeeperError,
    InvalidRequest,
    NotFound,
    RoleMissing,
    Unauthenticated,
    UnsupportedMediaType,
)
from app.datasets.upload_bodies import BodyForm
from app.services import dataset_rules, keys, populations
from app.services.authorization import has_role, require_role
from app.services.dataset_rules import change_rules, show_rules
from app.services.datasets import show
from app.services.datasets.declare import join_population
from app.services.datasets.erase import IF_UNREAD, STAYS, delete_dataset, erase_upload
from app.services.datasets.upload import UploadTerms
from app.services.installation import Installation
from app.services.ledger import balances, charges
from app.services.pages import PageRequest
from app.wire.datasets import GrantIn, GrantList, JoinIn
from app.wire.ledger import PartitionBalance
from app.wire.rules import ProposedRules, RulesIn, RulesOut

list_pages = APIRouter(route_class=PageRoute)


@list_pages.get("/")
def list_datasets(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    page: Page,
    name: Annotated[str, Query(max_length=limits.MAX_DATASET_NAME_CHARS)] = "",
) -> Response:
    """Show every dataset that the key sees and whose name contains a text, the fullest first."""
    listed = show.list_datasets(installation, caller, page, name=name.strip() or None)
    datasets = [dataset.model_dump(by_alias=True) for dataset in listed.datasets]
    standings = show.standings(installation, caller, [dataset["id"] for dataset in datasets])
    living = sorted((item for item in datasets if item["deleted_at"] is None), key=_share_used, reverse=True)
    erased = [item for item in datasets if item["deleted_at"] is not None]
    return rendered(
        request,
        "datasets",
        datasets=living,
        erased=erased,
        standings=standings,
        name=name,
        following=listed.next,
        undecided=dataset_rules.list_approvals(installation, caller, PageRequest(limit=1)).approvals,
    )


def _share_used(dataset: Mapping[str, Any]) -> Decimal:
    account = dataset["account"]
    return (Decimal(account["charged"]) + Decimal(account["reserved"])) / (Decimal(account["cap"]) or Decimal(1))


detail_pages = APIRouter(prefix="/ui/datasets/{dataset}", route_class=PageRoute)

_Result = TypeVar("_Result")


@detail_pages.get("")
def show_dataset(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    dataset: str,
    pair: Annotated[str, Query(max_length=4_096)] = "",
) -> Response:
    """Show one dataset. ``pair`` chooses two partitions, as in ``region,shard``, for the grid of cells."""
    return _details_page(request, installation, caller, dataset, pair=pair)


@detail_pages.post("/grants")
async def grant(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Grant a key a role."""

    def act(form: Form) -> str:
        body = checked(GrantIn, {"role": form.get("role", "")})
        keys.put_grant(installation, caller, dataset, form.get("key_id", "").strip(), role=body.role)
        return f"/ui/datasets/{dataset}#access"

    return await _changed(request, installation, caller, dataset, act)


@detail_pages.post("/rules")
async def put_rules(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Put rules in force, or propose them to the other owners."""

    def act(form: Form) -> str:
        change_rules(installation, caller, dataset, checked(RulesIn, _rules(form)))
        return f"/ui/datasets/{dataset}#rules"

    return await _changed(request, installation, caller, dataset, act)


@detail_pages.post("/population")
async def join(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Make the dataset a member of a population."""

    def act(form: Form) -> str:
        body = checked(JoinIn, {"population": form.get("population", "").strip()})
        join_population(installation, caller, dataset, population=body.population)
        return f"/ui/datasets/{dataset}#population"

    return await _changed(request, installation, caller, dataset, act)


async def _changed(
    request: Request, installation: Installation, caller: Principal, dataset: str, act: Callable[[Form], str]
) -> Response:
    return await submitted(
        request, act, lambda refusal: _details_page(request, installation, caller, dataset, refusal=refusal)
    )


def _details_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    *,
    pair: str = "",
    refusal: GrovekeeperError | None = None,
) -> Response:
    shown = show.show_dataset(installation, caller, dataset).model_dump(by_alias=True)
    reference = shown["id"]
    balance = _if_permitted(lambda: balances.show_balance(installation, caller, reference, scope={}))
    spent = _if_permitted(lambda: charges.list_charges(installation, caller, reference))
    pairs = [] if balance is None else _pairs(balance.partitions)
    access = _if_permitted(lambda: _grants(installation, caller, reference))
    rules = _if_permitted(lambda: show_rules(installation, caller, reference))
    chosen = next((names for names in pairs if ",".join(names) == pair), pairs[0] if pairs else None)
    return rendered_with(
        request,
        "dataset",
        refusal,
        dataset=shown,
        balance=balance,
        spent=spent,
        plot=None if spent is None or balance is None else pictures.spend(spent, balance.model_dump()),
        pairs=pairs,
        chosen=chosen,
        grid=chosen and charges.show_pairs(installation, caller, reference, first=chosen[0], second=chosen[1]),
        access=access,
        rules=rules,
        in_force=None if rules is None else _fields(rules),
        proposed=None if rules is None or rules.proposal is None else _fields(rules.proposal.rules),
        names=keys.names_of_keys(installation, caller, reference, _mentioned_keys(access, rules)),
        may_train=has_role(installation, caller, reference, TRAIN),
        may_predict=has_role(installation, caller, reference, PREDICT),
        may_manage=has_role(installation, caller, reference, MANAGE_DATASET),
        stored=_rows_of_uploads(installation, caller, reference),
        population=population_of(installation, caller, shown["population"]),
    )


def _rows_of_uploads(installation: Installation, caller: Principal, reference: str) -> dict[str, int]:
    """The stored rows of the first uploads, by upload, if the caller may know them."""
    page = PageRequest(limit=limits.MAX_PAGE_SIZE)
    listed = _if_permitted(lambda: show.list_uploads(installation, caller, reference, page))
    return {item.epoch: item.rows for item in ([] if listed is None else listed.uploads) if item.rows is not None}


def _grants(installation: Installation, caller: Principal, reference: str) -> GrantList:
    return keys.list_grants(installation, caller, reference, PageRequest(limit=limits.MAX_PAGE_SIZE))


def _mentioned_keys(access: GrantList | None, rules: RulesOut | None) -> set[str]:
    """The ids of the keys that gave grants, and that rules and their proposal name."""
    keys = set() if access is None else {grant.granted_by for grant in access.grants}
    if rules is not None:
        keys |= {key for quota in rules.quotas for key in quota.keys}
        keys |= set() if rules.changed_by is None else {rules.changed_by}
        if rules.proposal is not None:
            keys |= {rules.proposal.by, *(key for quota in rules.proposal.rules.quotas for key in quota.keys)}
    return keys


def population_of(installation: Installation, caller: Principal, name: str | None) -> Any:
    """The population of a dataset with its members, if the caller may see it."""
    if name is None:
        return None
    try:
        return populations.show_population(installation, caller, name)
    except (NotFound, RoleMissing):
        return None


def _pairs(partitions: list[PartitionBalance]) -> list[tuple[str, str]]:
    """Pairs of partitions that fit a page as a grid."""
    return [
        (first.name, second.name)
        for first, second in combinations(partitions, 2)
        if 0 < len(first.cells) * len(second.cells) <= limits.MAX_SHOWN_PAIRS
    ]


def _rules(form: Form) -> dict[str, Any]:
    """The body of ``PUT /datasets/{id}/rules`` for a form. Times are UTC; a quota is a line ``key key: amount``."""
    return {
        "largest_job": form.get("largest_job", "").strip() or None,
        "approval_above": form.get("approval_above", "").strip() or None,
        "quotas": [_quota(line) for line in form.get("quotas", "").splitlines() if line.strip()],
        "frozen": form.get("frozen") == "yes",
        "erase_rows_at": utc(form.get("erase_rows_at", "")),
    }


def _fields(rules: RulesOut | ProposedRules) -> dict[str, str]:
    """The fields of the form for rules."""
    return {
        "largest_job": rules.largest_job or "",
        "approval_above": rules.approval_above or "",
        "quotas": "\n".join(f"{' '.join(quota.keys)}: {quota.cap}" for quota in rules.quotas),
        "frozen": "yes" if rules.frozen else "",
        "erase_rows_at": rules.erase_rows_at or "",
    }


def _quota(line: str) -> dict[str, Any]:
    keys, colon, amount = line.partition(":")
    if not colon:
        raise InvalidRequest.at("/quotas", "not-a-quota", accepted=["key_a key_b: amount"])
    return {"keys": keys.replace(",", " ").split(), "cap": amount.strip()}


def _if_permitted(show: Callable[[], _Result]) -> _Result | None:
    """A part of the page, unless the caller lacks the role."""
    try:
        return show()
    except (NotFound, RoleMissing):
        return None


upload_pages = APIRouter(prefix="/ui/datasets/{dataset}", route_class=PageRoute)

_FORMS: Mapping[str, BodyForm] = {
    ".csv": BodyForm.CSV,
    ".gz": BodyForm.GZIP,
    ".parquet": BodyForm.PARQUET,
    ".arrow": BodyForm.ARROW_FILE,
    ".feather": BodyForm.ARROW_FILE,
    ".arrows": BodyForm.ARROW_STREAM,
}
"""Forms of files, by the end of their names."""


@upload_pages.get("/rows")
def show_form(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Show the form for a file of rows, to the owner."""
    return _upload_page(request, installation, caller, dataset)


@upload_pages.post("/rows")
@limited(body=Body.UPLOAD)
async def upload(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Store the file of the form as an upload, and show the report; a refusal names the columns that do not match."""
    report, refusal = None, None
    try:
        form = await read_file_form(request)
        file_form = _FORMS.get(PurePath(form.file_name).suffix.lower())
        if file_form is None:
            raise UnsupportedMediaType([f"a file whose name ends in {', '.join(_FORMS)}"])
        key = checked_key(request, form.fields.get("once") or None)
        terms = UploadTerms(file_form, again="again" in form.fields, accept_unknown="accept_unknown" in form.fields)
        answer = await receive_upload(request, caller, dataset, form.chunks, terms=terms, key=key)
        report = json.loads(answer.body)
    except (NotFound, RoleMissing, Unauthenticated):
        raise
    except GrovekeeperError as error:
        refusal = error
    return await capacities(request).run(
        Work.READ, lambda: _upload_page(request, installation, caller, dataset, report=report, refusal=refusal)
    )


def _upload_page(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    *,
    report: Mapping[str, Any] | None = None,
    refusal: GrovekeeperError | None = None,
) -> Response:
    require_role(installation, caller, dataset, MANAGE_DATASET)
    return rendered_with(
        request,
        "upload",
        refusal,
        status=200 if report is None else 201,
        dataset=show.show_dataset(installation, caller, dataset).model_dump(by_alias=True),
        report=report,
        endings=list(_FORMS),
        once=token_urlsafe(16),
    )


erasure_pages = APIRouter(prefix="/ui/datasets/{dataset}", route_class=PageRoute)


@erasure_pages.get("/erase")
def confirm_erasure_of_dataset(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str
) -> Response:
    """Ask the owner to type the name of the dataset whose rows shall be erased, and say what an erasure means."""
    return _confirmation(request, installation, caller, dataset)


@erasure_pages.post("/erase")
async def erase_all_rows(request: Request, installation: CurrentInstallation, caller: Caller, dataset: str) -> Response:
    """Erase all rows of a dataset whose name was typed."""

    def act(form: Form) -> str:
        shown = show.show_dataset(installation, caller, dataset)
        if form.get("name", "").strip() != shown.name:
            raise InvalidRequest.at("/name", "not-the-name-of-the-dataset")
        delete_dataset(installation, caller, shown.id)
        return f"/ui/datasets/{shown.id}"

    def refused(refusal: GrovekeeperError) -> Response:
        return _confirmation(request, installation, caller, dataset, refusal=refusal)

    return await submitted(request, act, refused)


@erasure_pages.get("/uploads/{upload}/erase")
def confirm_erasure_of_upload(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, upload: str
) -> Response:
    """Ask the owner whether an upload shall be erased, and say what an erasure does not give back."""
    return _confirmation(request, installation, caller, dataset, upload)


@erasure_pages.post("/uploads/{upload}/erase")
async def erase_rows_of_upload(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, upload: str
) -> Response:
    """Erase the rows of an upload."""

    def act(form: Form) -> str:
        erase_upload(installation, caller, dataset, upload=upload)
        return f"/ui/datasets/{dataset}#uploads"

    def refused(refusal: GrovekeeperError) -> Response:
        return _confirmation(request, installation, caller, dataset, upload, refusal=refusal)

    return await submitted(request, act, refused)


def _confirmation(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    upload: str | None = None,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    require_role(installation, caller, dataset, MANAGE_DATASET)
    shown = show.show_dataset(installation, caller, dataset).model_dump(by_alias=True)
    if upload is None:
        return rendered_with(request, "erase_dataset", refusal, dataset=shown)
    epoch = next((epoch for epoch in shown["epochs"] if epoch["epoch"] == upload), None)
    if epoch is None:
        raise NotFound("upload")
    return rendered_with(
        request,
        "erase_upload",
        refusal,
        dataset=shown,
        epoch=epoch,
        stays=f"{STAYS} {IF_UNREAD}" if shown["privacy_unit"]["column"] else STAYS,
    )
