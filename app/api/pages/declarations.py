"""Serves the page on which an owner declares a dataset in three steps: columns, budget, review."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_urlsafe

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from app.access.grants import Principal, Role
from app.access.idempotency import IdempotentRequest
from app.api.capacity import Work, capacities
from app.api.pages.declaration_form import (
    COLUMN_FIELDS,
    PARTITION_FIELDS,
    STEPS,
    accountant,
    declaration,
    filled,
    problems_of,
    rows,
    untouched,
    with_rows,
)
from app.api.pages.forms import Form, checked, read_form
from app.api.pages.rendering import rendered
from app.api.pages.routing import PageRoute
from app.api.pages.words import sentence
from app.api.requests import Caller, CurrentInstallation, checked_key, limited, route_of
from app.core import json_text, limits
from app.core.errors import (
    AccountDiffers,
    GrovekeeperError,
    InvalidRequest,
    NameTaken,
    NotFound,
    NotSupported,
    PopulationMismatch,
    SameSubmitter,
)
from app.datasets.dictionaries import NotADictionary, draft_declaration
from app.services import populations
from app.services.datasets.declare import check_declaration, register_dataset
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.wire.datasets import DatasetIn, DeclarationOut

router = APIRouter(prefix="/ui/datasets/new", route_class=PageRoute)

_TABLES = {"f": COLUMN_FIELDS, "p": PARTITION_FIELDS}
_FIELD_OF_REFUSAL: Mapping[type[GrovekeeperError], str] = {
    AccountDiffers: "other_people",
    SameSubmitter: "other_people",
    NameTaken: "name",
    NotFound: "population",
    PopulationMismatch: "population",
    NotSupported: "",
}
"""The field of the form that a refusal is about."""
_REFUSALS: tuple[type[GrovekeeperError], ...] = (InvalidRequest, *_FIELD_OF_REFUSAL)


@router.get("")
@limited(needs=Role.OWNER)
def begin(request: Request, installation: CurrentInstallation, caller: Caller) -> Response:
    """Show the first step with one empty column."""
    form = {"n_f": "1", "n_p": "0", "once": token_urlsafe(16)}
    return _Draft(request, installation, caller, form).page(step="columns")


@router.post("")
@limited(needs=Role.OWNER)
async def go_on(request: Request, installation: CurrentInstallation, caller: Caller) -> Response:
    """Change the form as its buttons ask, show another step, or declare the dataset."""
    draft = _Draft(request, installation, caller, await read_form(request))
    return await capacities(request).run(Work.WRITE, draft.answer)


@dataclass(frozen=True)
class _Draft:
    """A declaration that somebody is writing: the fields of the form as they were sent."""

    request: Request
    installation: Installation
    caller: Principal
    form: Form

    def answer(self) -> Response:
        """The page that the button of the form leads to."""
        step = self.form.get("step", "")
        step = step if step in STEPS else STEPS[0]
        action, _, place = self.form.get("go", "").partition(":")
        if self.form.get("live"):
            return self.page(step=step)
        match action:
            case "read":
                return self._read()
            case "add" | "remove":
                return self._with_row(action, place).page(step=step)
            case "declare":
                return self._declare()
        return self._step(action if action in STEPS else STEPS[0])

    def page(
        self, *, step: str, status: int = 200, unread: str | None = None, to_confirm: Sequence[str] = ()
    ) -> Response:
        """The page of a step.

        Args:
            step: one of :data:`STEPS`.
            status: of the answer.
            unread: why a data dictionary could not be read.
            to_confirm: sentences about a data dictionary that was read.
        """
        would_be, problems = self._checked(step)
        if not self.form.get("tried"):
            hidden = set(untouched(self.form, problems))
            problems = {field: words for field, words in problems.items() if field not in hidden}
        shared = populations.list_populations(self.installation, self.caller, PageRequest(limits.MAX_PAGE_SIZE))
        return rendered(
            self.request,
            "declare",
            status=status,
            step=step,
            form=self.form,
            columns=rows(self.form, "f", COLUMN_FIELDS),
            partitions=rows(self.form, "p", PARTITION_FIELDS),
            accountant=accountant(self.form),
            populations=[("", "none"), *((population.name, population.name) for population in shared.populations)],
            would_be=would_be,
            problems=problems if unread is None else {**problems, "dictionary": unread},
            to_confirm=to_confirm,
        )

    def _step(self, step: str) -> Response:
        """The page of a step, or of the first step before it that breaks a rule."""
        tried = replace(self, form={**self.form, "tried": "yes"})
        for earlier in STEPS[: STEPS.index(step)]:
            if tried._checked(earlier)[1]:
                return tried.page(step=earlier, status=422)
        return replace(self, form={name: text for name, text in self.form.items() if name != "tried"}).page(step=step)

    def _read(self) -> Response:
        """The form filled from a data dictionary; what the dictionary lacks is shown as a problem of its field."""
        text = self.form.get("dictionary", "")
        try:
            draft = draft_declaration(text.encode("utf-8", "surrogatepass"), label=self.form.get("label.name") or None)
        except NotADictionary as error:
            return self.page(step="columns", status=422, unread=sentence(str(error)))
        if len(draft.declaration["schema"]["features"]) > limits.MAX_FORM_COLUMNS:
            unread = f"More than {limits.MAX_FORM_COLUMNS} columns: use grovekeeper datasets init."
            return self.page(step="columns", status=422, unread=unread)
        form = {**filled(draft.declaration), "once": self.form.get("once", ""), "tried": "yes"}
        untyped = [remark.text for remark in draft.lacking if remark.at.endswith("/type")]
        to_confirm = [remark.text for remark in draft.to_confirm]
        to_confirm += [f"{text}. The form says whole numbers until you change it." for text in untyped]
        return replace(self, form=form).page(step="columns", to_confirm=to_confirm)

    def _with_row(self, action: str, place: str) -> "_Draft":
        """The form with one more row in a table (``f`` or ``p``), or without a row (``f3``)."""
        prefix = place[:1] if place[:1] in _TABLES else "f"
        table = rows(self.form, prefix, _TABLES[prefix])
        if action == "add":
            table = [*table, {}][: limits.MAX_FORM_COLUMNS]
        else:
            table = [row for index, row in enumerate(table) if str(index) != place[1:]]
        return replace(self, form=with_rows(self.form, prefix, _TABLES[prefix], table))

    def _declare(self) -> Response:
        once = checked_key(self.request, self.form.get("once") or None)
        identity = None
        if once is not None:
            digest = json_text.digest(dict(self.form))
            identity = IdempotentRequest(self.caller.key_id, route_of(self.request), once, digest)
        try:
            body = checked(DatasetIn, declaration(self.form, step="review"))
            answer = register_dataset(self.installation, self.caller, body, request=identity)
        except _REFUSALS:
            return replace(self, form={**self.form, "tried": "yes"}).page(step="review", status=422)
        return RedirectResponse(f"/ui{answer.location}", status_code=303)

    def _checked(self, step: str) -> tuple[DeclarationOut | None, Mapping[str, str]]:
        """What the declaration would become, and its problems in words by field: by the rules of the API alone."""
        form = self.form
        if not form.get("tried") and not form.get("name", "").strip():
            # Without a name the rules of the columns would not be reached. Its absence is shown when the step is left.
            form = {**form, "name": "unnamed"}
        try:
            body = checked(DatasetIn, declaration(form, step=step))
            return check_declaration(self.installation, self.caller, body), {}
        except InvalidRequest as invalid:
            return None, problems_of(invalid.errors)
        except _REFUSALS as refusal:
            if isinstance(refusal, AccountDiffers) and step == "columns":
                return None, {}  # the budget is that of the next step
            return None, {_FIELD_OF_REFUSAL[type(refusal)]: sentence(str(refusal))}
