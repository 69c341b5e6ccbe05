"""Serves the list of datasets, and the pages of one dataset: its facts and rules,
uploads of rows, and erasures.
"""

import io
import json
from collections.abc import Mapping
from operator import itemgetter
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args

from fastapi import Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from app.access.grants import MANAGE_DATASET, TRAIN, Role
from app.api.capacity import Work, capacities
from app.api.pages import pictures
from app.api.pages.dataset_view import (
    Grid,
    declared_columns,
    grid_of,
    pairs_of,
    shown_dataset,
    shown_partitions,
    shown_uploads,
    tabs_of,
)
from app.api.pages.forms import (
    Form,
    acts,
    checked,
    person,
    read_file_form,
    typed,
    utc,
    written,
)
from app.api.pages.home_view import budget_row
from app.api.pages.rendering import Visit, Visitor, as_file, if_permitted
from app.api.pages.views import may_declare
from app.api.requests import Body, Page, Router, checked_key, limited
from app.api.streams import receive_upload
from app.core import limits, stamps
from app.core.errors import (
    InvalidRequest,
    NotFound,
    RoleMissing,
    Unauthenticated,
    UnsupportedMediaType,
)
from app.datasets.catalog import DatasetFilter
from app.datasets.upload_bodies import BodyForm
from app.services import attention, keys, populations
from app.services.authorization import has_role, require_role
from app.services.dataset_rules import change_rules, show_rules
from app.services.datasets import show
from app.services.datasets.erase import IF_UNREAD, STAYS, delete_dataset, erase_upload
from app.services.datasets.membership import join_population
from app.services.datasets.unit_erasure import erase_unit
from app.services.datasets.upload import UploadTerms
from app.services.ledger import balances, spend_history
from app.services.pagination import PageRequest
from app.wire.grants import GrantedRole, GrantIn
from app.wire.ledger import AccountBalance
from app.wire.populations import JoinIn, PopulationOut
from app.wire.rules import ProposedRules, RulesIn, RulesOut
from app.wire.uploads import ErasureIn
from grovekeeper_common.dummy_rows import DummyRows
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.errors import GrovekeeperError

list_pages = Router()


_Name = Annotated[str, Field(max_length=limits.MAX_DATASET_NAME_CHARS)]


class _ListFields(BaseModel):
    """The fields by which the list of datasets is filtered; an empty one does not."""

    name: _Name = ""
    population: _Name = ""
    role: GrantedRole | Literal[""] = ""


@list_pages.get("/ui/datasets")
def list_datasets(
    visit: Visitor,
    page: Page,
    fields: Annotated[_ListFields, Query()],
) -> Response:
    """Show every dataset that the key sees and that the fields name, the fullest
    first.
    """
    matching = DatasetFilter(
        fields.name.strip() or None, fields.population.strip() or None
    )
    role = Role(fields.role) if fields.role else None
    listed = show.list_datasets(*visit.by, page, matching, role=role)
    budgets = attention.budgets(visit.caller, listed.datasets)
    return visit.page(
        "datasets",
        budgets=list(map(budget_row, budgets)),
        erased=[item for item in listed.datasets if item.deleted_at is not None],
        fields=fields.model_dump(),
        roles=get_args(GrantedRole),
        following=listed.next,
        may_declare=may_declare(visit.caller),
    )


detail_pages = Router(prefix="/ui/datasets/{dataset}")

_GRANTS = ["Key", "Role", "Since (UTC)", "Given by", "Last use of key (UTC)"]
"""The columns of the table of grants, for readers who may not change them."""
_CHARS_OF_SECONDS = len("2040-01-02T03:04:05")
_ALL = PageRequest(limit=limits.MAX_PAGE_SIZE)


def of_every_tab(visit: Visit, reference: str, current: str) -> dict[str, Any]:
    """What every tab of a dataset shows above itself.

    Args:
        current: the shown tab.
    """
    shown = shown_dataset(visit, reference)
    id_ = shown["id"]
    may_train = has_role(*visit.by, id_, TRAIN)
    may_manage = has_role(*visit.by, id_, MANAGE_DATASET)
    balance = if_permitted(lambda: balances.show_balance(*visit.by, id_, scope={}))
    return {
        "dataset": shown,
        "balance": balance,
        "tabs": tabs_of(visit, id_, current),
        "may_train": may_train,
        "may_manage": may_manage,
        "refused_form": visit.refused_form,
    }


@detail_pages.get("")
def show_dataset(
    visit: Visitor,
    dataset: str,
    pair: Annotated[str, Query(max_length=limits.MAX_CELL_CHARS)] = "",
) -> Response:
    """Show one dataset: what was spent, its cells and columns. ``pair`` chooses two
    partitions, as in ``region,shard``, for the grid of cells.
    """
    above = of_every_tab(visit, dataset, "Overview")
    shown, balance = above["dataset"], above["balance"]
    spent = if_permitted(lambda: spend_history.list_charges(*visit.by, shown["id"]))
    plot = None
    if spent is not None and balance is not None:
        now = stamps.to_text(stamps.now())
        plot = pictures.spend(spent, balance.model_dump(), now)
    return visit.page(
        "dataset",
        **above,
        columns=declared_columns(shown["schema"]),
        spent=spent,
        plot=plot,
        partitions=[]
        if balance is None
        else shown_partitions(balance.partitions, balance.cap),
        grid=None if balance is None else _grid(visit, balance, pair),
        population=population_of(visit, shown["population"]),
    )


@detail_pages.get("/dummy-rows")
@limited(work=Work.EXPORT)
def download_dummy_rows(
    visit: Visitor,
    dataset: str,
    rows: Annotated[int, Query(ge=1, le=limits.MAX_DUMMY_ROWS)] = 100,
) -> Response:
    """Download dummy rows as CSV, drawn from the declaration alone."""
    facts = show.show_dataset(*visit.by, dataset).model_dump(by_alias=True)
    text = io.StringIO(newline="")
    # the same rows each time: nobody takes them for a sample
    DummyRows(facts, rows, seed=0).write_csv(text)
    file = PlainTextResponse(text.getvalue(), media_type="text/csv")
    return as_file(file, "dummy-rows.csv")


@detail_pages.get("/uploads")
def show_uploads(visit: Visitor, dataset: str) -> Response:
    """Show the uploads of a dataset."""
    above = of_every_tab(visit, dataset, "Uploads")
    shown = above["dataset"]
    uploads = if_permitted(lambda: show.list_uploads(*visit.by, shown["id"], _ALL))
    return visit.page("dataset_uploads", **above, uploads=shown_uploads(shown, uploads))


@detail_pages.get("/access")
def show_access(visit: Visitor, dataset: str) -> Response:
    """Show which keys have a role on a dataset, with a form for its owners."""
    above = of_every_tab(visit, dataset, "Access")
    reference = above["dataset"]["id"]
    access = if_permitted(lambda: keys.list_grants(*visit.by, reference, _ALL))
    if access is None:
        givers = set()
    else:
        givers = {grant.granted_by for grant in access.grants}
    return visit.page(
        "dataset_access",
        **above,
        access=access,
        columns_of_grants=[*_GRANTS, "Change"] if above["may_manage"] else _GRANTS,
        names=keys.names_of_keys(*visit.by, reference, givers),
    )


@detail_pages.get("/rules")
def show_dataset_rules(visit: Visitor, dataset: str) -> Response:
    """Show the rules of a dataset, with a form for its owners."""
    above = of_every_tab(visit, dataset, "Rules")
    reference = above["dataset"]["id"]
    rules = if_permitted(lambda: show_rules(*visit.by, reference))
    in_force = None if rules is None else _fields_of_form(rules)
    proposal = None if rules is None else rules.proposal
    is_refused = visit.refused_form == "rules"
    return visit.page(
        "dataset_rules",
        **above,
        rules=rules,
        fields_of_rules=visit.sent if is_refused else in_force,
        proposed=None if proposal is None else _fields(proposal.rules),
        names=keys.names_of_keys(*visit.by, reference, _mentioned_keys(rules)),
    )


@acts(detail_pages, "/access", show_access)
def grant(visit: Visit, form: Form, dataset: str) -> str:
    """Grant a key a role."""
    body = checked(GrantIn, {"role": form.get("role", "")})
    named = typed(form, "key_id")
    key_id = keys.key_named(*visit.by, dataset, named)
    keys.put_grant(*visit.by, dataset, key_id, role=body.role)
    return f"/ui/datasets/{dataset}/access"


@acts(detail_pages, "/rules", show_dataset_rules)
def put_rules(visit: Visit, form: Form, dataset: str) -> str:
    """Put rules in force, or propose them to the other owners."""
    seen = frozenset({form["etag"]}) if "etag" in form else None
    change_rules(*visit.by, dataset, checked(RulesIn, _rules(form)), condition=seen)
    return f"/ui/datasets/{dataset}/rules"


@acts(detail_pages, "/population", show_dataset)
def join(visit: Visit, form: Form, dataset: str) -> str:
    """Make the dataset a member of a population."""
    body = checked(JoinIn, {"population": typed(form, "population")})
    join_population(*visit.by, dataset, population=body.population)
    return f"/ui/datasets/{dataset}#population"


def _mentioned_keys(rules: RulesOut | None) -> set[str]:
    """The ids of the keys that rules and their proposal name."""
    if rules is None:
        return set()
    keys = set[str]()
    for quota in rules.quotas:
        keys.update(quota.keys)
    if rules.changed_by is not None:
        keys.add(rules.changed_by)
    if rules.proposal is not None:
        keys.add(rules.proposal.by)
        for proposed in rules.proposal.rules.quotas:
            keys.update(proposed.keys)
    return keys


def population_of(visit: Visit, name: str | None) -> PopulationOut | None:
    """The population of a dataset with its members, if the caller may see it."""
    if name is None:
        return None
    return if_permitted(lambda: populations.show_population(*visit.by, name))


def _grid(visit: Visit, balance: AccountBalance, pair: str) -> Grid | None:
    """The grid of a pair of partitions, as in ``region,shard``; by default of the
    first pair that has a grid.
    """
    pairs = pairs_of(balance.partitions)
    if not pairs:
        return None
    chosen = next((names for names in pairs if ",".join(names) == pair), pairs[0])
    listed = spend_history.show_pairs(
        *visit.by, balance.account, first=chosen[0], second=chosen[1]
    )
    return grid_of(pairs, chosen, listed, balance.cap)


def _rules(form: Form) -> JsonObject:
    """The body of ``PUT /datasets/{id}/rules`` for a form. Times are UTC; a quota is a
    line ``key, key: amount``.
    """
    return {
        "largest_job": typed(form, "largest_job") or None,
        "approval_above": typed(form, "approval_above") or None,
        "quotas": [
            _quota(line) for line in form.get("quotas", "").splitlines() if line.strip()
        ],
        "frozen": form.get("frozen") == "yes",
        "erase_rows_at": utc(form.get("erase_rows_at", "")),
    }


def _fields(rules: RulesOut | ProposedRules) -> dict[str, str]:
    return {
        "largest_job": rules.largest_job or "",
        "approval_above": rules.approval_above or "",
        "quotas": "\n".join(
            f"{', '.join(quota.keys)}: {quota.cap}" for quota in rules.quotas
        ),
        "frozen": "yes" if rules.frozen else "",
        "erase_rows_at": rules.erase_rows_at or "",
    }


def _fields_of_form(rules: RulesOut) -> dict[str, str]:
    """The fields of a form that changes rules. Its field of a time takes no zone."""
    fields = _fields(rules)
    return {
        **fields,
        "erase_rows_at": fields["erase_rows_at"][:_CHARS_OF_SECONDS],
    }


def _quota(line: str) -> JsonObject:
    keys, colon, amount = line.rpartition(":")
    if not colon:
        raise InvalidRequest.at(
            "/quotas", "not-a-quota", accepted=["key_a, key_b: amount"]
        )
    named = [key.strip() for key in keys.split(",")]
    return {"keys": named, "cap": amount.strip()}


_FORMS: Mapping[str, BodyForm] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), BodyForm.CSV),
    ".gz": BodyForm.GZIP,
    ".parquet": BodyForm.PARQUET,
    ".arrow": BodyForm.ARROW_FILE,
    ".feather": BodyForm.ARROW_FILE,
    ".arrows": BodyForm.ARROW_STREAM,
}
"""Forms of files, by the end of their names."""


@detail_pages.get("/rows")
def show_form(visit: Visitor, dataset: str) -> Response:
    """Show the form for a file of rows, to the owner."""
    return _upload_page(visit, dataset)


@detail_pages.post("/rows")
@limited(body=Body.UPLOAD)
async def upload(visit: Visitor, dataset: str) -> Response:
    """Store the file of the form as an upload, and show the report; a refusal names the
    columns that do not match.
    """
    request, report, refusal = visit.request, None, None
    fields: Form = {}
    run = capacities(request).run
    try:  # the role first: the fields of the form are kept in memory
        await run(
            Work.AUTHENTICATION,
            lambda: require_role(*visit.by, dataset, MANAGE_DATASET),
        )
        form = await read_file_form(request)
        fields = form.fields
        file_form = _FORMS.get(PurePath(form.file_name).suffix.lower())
        if file_form is None:
            raise UnsupportedMediaType(
                [f"a file whose name ends in {', '.join(_FORMS)}"]
            )
        key = checked_key(request, fields.get("once") or None)
        terms = UploadTerms(
            file_form,
            written(fields),
            again="again" in fields,
            accept_unknown="accept_unknown" in fields,
            accept_empty="accept_empty" in fields,
        )
        answer = await receive_upload(
            request, visit.caller, dataset, form.chunks, terms=terms, key=key
        )
        report = json.loads(answer.body)
    except (NotFound, RoleMissing, Unauthenticated):
        raise
    except GrovekeeperError as error:
        refusal = error
    return await run(
        Work.WRITE,
        lambda: _upload_page(visit.refused(refusal, fields), dataset, report),
    )


def _upload_page(
    visit: Visit, dataset: str, report: JsonMapping | None = None
) -> Response:
    require_role(*visit.by, dataset, MANAGE_DATASET)
    columns = () if report is None else report["columns"]
    kinds = itemgetter("clamped", "missing", "unknown")
    return visit.page(
        "upload",
        status=200 if report is None else 201,
        dataset=shown_dataset(visit, dataset),
        report=report,
        mapped=[column["name"] for column in columns if any(kinds(column))],
        endings=",".join(_FORMS),
    )


@detail_pages.get("/erase")
def confirm_erasure_of_dataset(visit: Visitor, dataset: str) -> Response:
    """Ask the owner to type the name of the dataset whose rows shall be erased, and say
    what an erasure means.
    """
    require_role(*visit.by, dataset, MANAGE_DATASET)
    return visit.page(
        "erase_dataset",
        dataset=shown_dataset(visit, dataset),
    )


@acts(detail_pages, "/erase", confirm_erasure_of_dataset)
def erase_all_rows(visit: Visit, form: Form, dataset: str) -> str:
    """Erase all rows of a dataset whose name was typed."""
    shown = show.show_dataset(*visit.by, dataset)
    if typed(form, "name") != shown.name:
        raise InvalidRequest.at("/name", "not-the-name-of-the-dataset")
    delete_dataset(*visit.by, shown.id)
    return f"/ui/datasets/{shown.id}"


@detail_pages.get("/erase-unit")
def ask_for_unit(visit: Visitor, dataset: str) -> Response:
    """Ask the owner which person shall be erased."""
    require_role(*visit.by, dataset, MANAGE_DATASET)
    return visit.page("erase_unit", dataset=shown_dataset(visit, dataset), erasure=None)


@acts(detail_pages, "/erase-unit", ask_for_unit)
def erase_rows_of_unit(visit: Visit, form: Form, dataset: str) -> Response:
    """Erase the rows of one person, and show how many there were."""
    body = checked(ErasureIn, person(form))
    erasure = erase_unit(*visit.by, dataset, unit=body.unit, named=body.reference)
    return visit.page(
        "erase_unit", dataset=shown_dataset(visit, dataset), erasure=erasure
    )


@detail_pages.get("/uploads/{upload}/erase")
def confirm_erasure_of_upload(visit: Visitor, dataset: str, upload: str) -> Response:
    """Ask the owner whether an upload shall be erased, and say what an erasure does not
    give back.
    """
    require_role(*visit.by, dataset, MANAGE_DATASET)
    shown = shown_dataset(visit, dataset)
    epoch = next((epoch for epoch in shown["epochs"] if epoch["epoch"] == upload), None)
    if epoch is None:
        raise NotFound("upload")
    stays = STAYS
    if shown["privacy_unit"]["column"]:
        stays = f"{STAYS} {IF_UNREAD}"
    return visit.page("erase_upload", dataset=shown, epoch=epoch, stays=stays)


@acts(detail_pages, "/uploads/{upload}/erase", confirm_erasure_of_upload)
def erase_rows_of_upload(visit: Visit, form: Form, dataset: str, upload: str) -> str:
    """Erase the rows of an upload."""
    erase_upload(*visit.by, dataset, upload=upload)
    return f"/ui/datasets/{dataset}/uploads"
