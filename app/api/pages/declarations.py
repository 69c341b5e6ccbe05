"""Serves the page on which an owner declares a dataset in three steps: columns, budget,
review.

The fields of the form become the body of ``POST /datasets``, and problems of the body
are shown at its fields.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_urlsafe

from fastapi import Response
from fastapi.responses import RedirectResponse

from app.access.grants import Role
from app.api.capacity import Work, capacities
from app.api.pages.declaration_view import review_of, shown_step
from app.api.pages.forms import (
    Form,
    cap_field,
    checked,
    identity,
    number_in,
    read_form,
    typed,
)
from app.api.pages.rendering import Visit, Visitor
from app.api.pages.words import field_problem, sentence
from app.api.requests import Router, limited
from app.core import limits
from app.core.errors import (
    AccountDiffers,
    FieldProblem,
    InvalidRequest,
    NameTaken,
    NotFound,
    PopulationMismatch,
    SameSubmitter,
    TooLarge,
)
from app.services import populations
from app.services.datasets.declare import check_declaration, register_dataset
from app.services.pagination import PageRequest
from app.wire.datasets import DatasetIn, DeclarationOut
from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.dictionaries import (
    DictionaryTooLarge,
    NotADictionary,
    draft_declaration,
)
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests.errors import GrovekeeperError, NotSupported

declaration_pages = Router(prefix="/ui/datasets/new")

STEPS = ("columns", "budget", "review")
_TABLES = {
    "f": (
        "name",
        "type",
        "lower",
        "upper",
        "categories",
        "ordered",
        "missing",
        "bounds",
    ),
    "l": ("name", "classes", "cuts", "lower", "upper", "whole"),
    "p": ("name", "kind", "cells", "column", "categories", "how"),
}
"""The fields of a row in the tables of the form: of columns to learn from (``f``), of
columns to predict (``l``) and of partitions (``p``).
"""
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

_SIMPLE = {
    "/name": "name",
    "/schema/features": "columns",
    "/schema/labels": "labels",
    "/schema/missing_values": "missing_values",
    "/budget/epsilon": "epsilon",
    "/budget/rho": "epsilon",
    "/budget/mu": "epsilon",
    "/budget/delta": "delta",
    "/budget": "delta",
    "/public_size": "public_size",
    "/privacy_unit/column": "unit.column",
    "/privacy_unit/form": "unit.form",
    "/privacy_unit/max_rows": "unit.max_rows",
    "/population": "population",
    "/other_people": "other_people",
}
"""Fields of the form by the pointers of problems at them and below them."""

_COUNT = re.compile(r"[0-9]{1,6}", re.ASCII)
_NESTED = re.compile(
    r"/(?:schema/)?(features|labels|partitions)/([0-9]+)(?:/([a-z]+))?"
)
_WHOLE_NUMBERS = "The form says whole numbers until you change it."
_NO_FIELD = (
    "this form has no field for it, and a declaration cannot get it later. Declare with grovekeeper datasets create, "
    "or go on without it."
)


@declaration_pages.get("")
@limited(needs=Role.OWNER)
def begin(visit: Visitor) -> Response:
    """Show the first step with one empty column."""
    form = {"n_f": "1", "n_l": "1", "n_p": "0", "once": token_urlsafe(16)}
    return _Draft(visit, form).page(step="columns")


@declaration_pages.post("")
@limited(needs=Role.OWNER)
async def go_on(visit: Visitor) -> Response:
    """Change the form as its buttons ask, show another step, or declare the dataset."""
    draft = _Draft(visit, await read_form(visit.request))
    return await capacities(visit.request).run(Work.WRITE, draft.answer)


@dataclass(frozen=True)
class _Draft:
    """A declaration that somebody is writing: the fields of the form as they were sent."""

    visit: Visit
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
        self,
        *,
        step: str,
        status: int = 200,
        unread: str | None = None,
        to_confirm: Sequence[str] = (),
    ) -> Response:
        """The page of a step.

        Args:
            unread: why a data dictionary could not be read.
            to_confirm: sentences about a data dictionary that was read.
        """
        would_be, problems = self._checked(step)
        if not self.form.get("tried"):
            # An empty field is no mistake before somebody leaves the step.
            problems = {
                field: words
                for field, words in problems.items()
                if typed(self.form, field)
            }
        if unread is not None:
            problems = {**problems, "dictionary": unread}
        shared = populations.list_populations(
            *self.visit.by, PageRequest(limits.MAX_PAGE_SIZE)
        ).populations
        names = {"", *(population.name for population in shared)}
        # perhaps one that the key does not see, which the check says
        names.add(self.form.get("population") or "")
        columns, labels = rows(self.form, "f"), rows(self.form, "l")
        chosen = accountant(self.form)
        continues = would_be is not None and would_be.continues is not None
        return self.visit.page(
            "declare",
            status=status,
            step=shown_step(step, self.form),
            form=self.form,
            columns=columns,
            labels=labels,
            partitions=rows(self.form, "p"),
            accountant=chosen,
            review=review_of(self.form, columns, labels, chosen, would_be),
            asks_about_people=continues
            or "other_people" in problems
            or bool(self.form.get("other_people")),
            wrong_fields=[item for item in problems.items() if item[0]],
            populations=[(name, name or "none") for name in sorted(names)],
            would_be=would_be,
            problems=problems,
            to_confirm=to_confirm,
        )

    def _step(self, step: str) -> Response:
        """The page of a step, or of the first step before it that breaks a rule."""
        tried = replace(self, form={**self.form, "tried": "yes"})
        for earlier in STEPS[: STEPS.index(step)]:
            if tried._checked(earlier)[1]:
                return tried.page(step=earlier, status=422)
        form = {name: text for name, text in self.form.items() if name != "tried"}
        return replace(self, form=form).page(step=step)

    def _read(self) -> Response:
        """The form filled from a data dictionary; what the dictionary lacks is shown as
        a problem of its field.
        """
        text = self.form.get("dictionary", "")
        try:
            names = [label["name"] for label in rows(self.form, "l")]
            draft = draft_declaration(
                text.encode("utf-8", "surrogatepass"),
                labels={name: () for name in names if name} or None,
            )
        except NotADictionary as error:
            return self.page(step="columns", status=422, unread=sentence(str(error)))
        except DictionaryTooLarge as error:
            raise TooLarge(error.what, error.limit) from None
        if len(draft.declaration["schema"]["features"]) > limits.MAX_FORM_COLUMNS:
            unread = f"More than {limits.MAX_FORM_COLUMNS} columns: use grovekeeper datasets init."
            return self.page(step="columns", status=422, unread=unread)
        form = {
            **filled(draft.declaration),
            "once": self.form.get("once", ""),
            "tried": "yes",
        }
        to_confirm = [remark.text for remark in draft.to_confirm]
        for remark in draft.lacking:
            if remark.at.endswith("/type"):
                to_confirm.append(f"{remark.text}. {_WHOLE_NUMBERS}")
        for text in _without_field(draft.declaration):
            to_confirm.append(f"{text}: {_NO_FIELD}")
        return replace(self, form=form).page(step="columns", to_confirm=to_confirm)

    def _with_row(self, action: str, place: str) -> "_Draft":
        """The form with one more row in a table (``f``), or without a row (``f3``)."""
        prefix = place[:1] if place[:1] in _TABLES else "f"
        table = rows(self.form, prefix)
        if action == "add":
            table = [*table, {}][: limits.MAX_FORM_COLUMNS]
        else:
            table = [row for index, row in enumerate(table) if str(index) != place[1:]]
        others = {
            name: text
            for name, text in self.form.items()
            if not re.match(rf"{prefix}[0-9]+\.", name)
        }
        return replace(self, form=others | _fields(prefix, table))

    def _declare(self) -> Response:
        request = identity(self.visit, self.form)
        try:
            body = checked(DatasetIn, declaration(self.form, step="review"))
            answer = register_dataset(*self.visit.by, body, request=request)
        except _REFUSALS:
            return replace(self, form={**self.form, "tried": "yes"}).page(
                step="review", status=422
            )
        return RedirectResponse(f"/ui{answer.location}", status_code=303)

    def _checked(self, step: str) -> tuple[DeclarationOut | None, Mapping[str, str]]:
        """What the declaration would become, and its problems in words by field: by the
        rules of the API alone.
        """
        form = self.form
        if not form.get("tried") and not typed(form, "name"):
            # Without a name the rules of the columns would not be reached. Its absence
            # is shown when the step is left.
            form = {**form, "name": "unnamed"}
        try:
            body = checked(DatasetIn, declaration(form, step=step))
            return check_declaration(*self.visit.by, body), {}
        except InvalidRequest as invalid:
            return None, problems_of(invalid.errors)
        except _REFUSALS as refusal:
            if isinstance(refusal, AccountDiffers) and step == "columns":
                return None, {}  # the budget is that of the next step
            return None, {_FIELD_OF_REFUSAL[type(refusal)]: sentence(str(refusal))}


def declaration(form: Form, *, step: str) -> JsonObject:
    """The declaration as far as it is filled in; stand-ins take the place of the steps
    after ``step``.
    """
    chosen = accountant(form)
    budget = {
        "accountant": chosen,
        cap_field(form, chosen): typed(form, "epsilon"),
    }
    if chosen != "pure":
        budget["delta"] = typed(form, "delta")
    if step == "columns":
        budget = {"accountant": "pure", "epsilon": "1"}
    body: JsonObject = {
        "name": typed(form, "name"),
        "schema": {
            "features": list(map(_feature, rows(form, "f"))),
            "labels": list(map(_label, rows(form, "l"))),
            "missing_values": _lines(form.get("missing_values", "")) or None,
        },
        "budget": budget,
    }
    if step == "columns":
        return body
    body |= {
        "partitions": list(map(_partition, rows(form, "p"))),
        "public_size": number_in(form.get("public_size", "")),
    }
    unit_column = typed(form, "unit.column")
    max_rows = number_in(form.get("unit.max_rows", ""))
    return body | {
        "privacy_unit": {
            "column": unit_column or None,
            "form": (form.get("unit.form") or None) if unit_column else None,
            "max_rows": 1 if max_rows is None else max_rows,
        },
        "protects": form.get("protects", "row"),
        "population": form.get("population") or None,
        "other_people": typed(form, "other_people") or None,
    }


def accountant(form: Form) -> str:
    """The accountant that the answers to the two questions stand for."""
    if form.get("fails", "no") == "no":
        return "pure"
    return "zcdp" if form.get("mostly") == "selections" else "gdp"


def filled(drafted: JsonMapping) -> dict[str, str]:
    """The fields of the form for a declaration with gaps."""
    schema = drafted["schema"]
    form = {
        "name": drafted.get("name") or "",
        "missing_values": "\n".join(map(str, schema.get("missing_values") or ())),
        "public_size": str(drafted.get("public_size") or ""),
        "protects": str(drafted.get("protects") or "row"),
        "population": str(drafted.get("population") or ""),
    }
    unit = _object(drafted.get("privacy_unit"))
    budget = _object(drafted.get("budget"))
    form |= {
        "unit.column": unit.get("column") or "",
        "unit.max_rows": str(unit.get("max_rows") or ""),
    }
    form["unit.form"] = str(unit.get("form") or "text")
    in_own_unit = budget.get("rho") or budget.get("mu")
    form |= {
        "epsilon": str(budget.get("epsilon") or in_own_unit or ""),
        "cap_unit": "own" if in_own_unit else "epsilon",
        "delta": str(budget.get("delta") or ""),
    }
    if budget.get("accountant", "pure") != "pure":
        form |= {
            "fails": "yes",
            "mostly": "selections" if budget["accountant"] == "zcdp" else "counts",
        }
    form |= _fields("f", schema["features"])
    form |= _fields("l", map(_fields_of_label, labels_of(schema)))
    return form | _fields("p", _partitions(drafted))


def _without_field(drafted: JsonMapping) -> Iterator[str]:
    """What a declaration says and the form cannot."""
    if _object(drafted.get("budget")).get("delta_set_aside") is not None:
        yield "the part of δ that is set aside"
    for partition in _partitions(drafted):
        if partition.get("sizes"):
            yield f"the sizes of the cells of {partition.get('name')}"


def _partitions(drafted: JsonMapping) -> list[JsonMapping]:
    partitions = drafted.get("partitions")
    if not isinstance(partitions, list):
        return []
    return list(map(_object, partitions))


def _object(value: object) -> JsonMapping:
    """An object of a dictionary; anything else in its place says nothing."""
    return value if isinstance(value, dict) else {}


def rows(form: Form, prefix: str) -> list[dict[str, str]]:
    """The rows of a table of the form, at most ``limits.MAX_FORM_COLUMNS``."""
    count = form.get(f"n_{prefix}", "0")
    if not _COUNT.fullmatch(count):
        return []
    table = []
    for index in range(min(int(count), limits.MAX_FORM_COLUMNS)):
        row = f"{prefix}{index}"
        table.append({name: form.get(f"{row}.{name}", "") for name in _TABLES[prefix]})
    return table


def problems_of(errors: Iterable[FieldProblem]) -> dict[str, str]:
    """The problems of a declaration in words, by field of the form; ``""`` for what
    belongs to no field.
    """
    sentences: dict[str, list[str]] = {}
    for error in errors:
        of_field = sentences.setdefault(_field(error.at), [])
        words = field_problem(error.problem, error.accepted)
        if words not in of_field:
            of_field.append(words)
    return {field: " ".join(of_field) for field, of_field in sentences.items()}


def _field(pointer: str) -> str:
    if nested := _NESTED.match(pointer):
        prefix = nested[1][0]
        name = nested[3] if nested[3] in _TABLES[prefix] else "name"
        return f"{prefix}{nested[2]}.{name}"
    above = [at for at in _SIMPLE if pointer == at or pointer.startswith(f"{at}/")]
    if not above:
        return ""
    return _SIMPLE[max(above, key=len)]


def _fields(prefix: str, described: Iterable[JsonMapping]) -> dict[str, str]:
    fields = {f"n_{prefix}": "0"}
    for index, row in enumerate(described):
        fields[f"n_{prefix}"] = str(index + 1)
        for name in _TABLES[prefix]:
            text = _text(row.get(name))
            if text:
                fields[f"{prefix}{index}.{name}"] = text
    return fields


def _text(value: object) -> str:
    match value:
        case None | False:
            return ""
        case True:
            return "yes"
        case list() | tuple():
            return "\n".join(map(str, value))
    return str(value)


def _fields_of_label(label: JsonMapping) -> JsonObject:
    cuts = ", ".join(map(str, label.get("cuts") or ()))
    return {**label, "cuts": cuts, "whole": label.get("type") == "integer"}


def _label(row: Mapping[str, str]) -> JsonObject:
    label: JsonObject = {"name": row["name"].strip()}
    points = row["cuts"].replace(",", " ").split()
    classes = _lines(row["classes"])
    lower = row["lower"].strip()
    upper = row["upper"].strip()
    has_bounds = bool(lower or upper)
    if has_bounds:
        label["type"] = "integer" if row["whole"] else "number"
        label["lower"] = number_in(lower)
        label["upper"] = number_in(upper)
    if classes or not (points or has_bounds):
        label["classes"] = classes
    if points:
        label["cuts"] = list(map(number_in, points))
    return label


def _feature(column: Mapping[str, str]) -> JsonObject:
    feature: JsonObject = {
        "name": column["name"].strip(),
        "type": column["type"] or "integer",
    }
    if feature["type"] == "categorical":
        feature |= {
            "categories": _lines(column["categories"]),
            "ordered": bool(column["ordered"]),
        }
    else:
        feature |= {name: number_in(column[name]) for name in ("lower", "upper")}
        feature |= {"bounds": column["bounds"] or None}
    return feature | {"missing": bool(column["missing"])}


def _partition(row: Mapping[str, str]) -> JsonObject:
    partition: JsonObject = {
        "name": row["name"].strip(),
        "kind": row["kind"] or "hash",
    }
    match partition["kind"]:
        case "hash":
            return partition | {"cells": number_in(row["cells"])}
        case "epoch":
            return partition | {"how": row["how"].strip() or None}
    return partition | {
        "column": row["column"].strip() or None,
        "categories": _lines(row["categories"]) or None,
    }


def _lines(text: str) -> list[str]:
    """The lines of a field as they were typed: uploads compare a category with its
    outer blanks.
    """
    return [line for line in text.splitlines() if line.strip()]
