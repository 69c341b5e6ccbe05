"""Converts errors to HTTP responses of type ``application/problem+json`` (RFC 9457).

Framework errors are included. A problem never repeats a value of the request: pointers
name declared fields, and everything else is a slug.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, get_args

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from app.core import errors
from app.wire.base import NO_CONTROLS, VISIBLE_LINE
from app.wire.datasets import PUBLIC_NAME
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests import errors as forest_errors
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.errors import GrovekeeperError

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProblemType:
    """One row of the table: status, slug and title of an error."""

    status: int
    slug: str
    title: str

    def body(self, detail: str) -> JsonObject:
        """The members that every problem has."""
        return {
            "type": self.slug,
            "title": self.title,
            "status": self.status,
            "detail": detail,
        }


_INVALID = ("invalid-request", "The request breaks a rule")
_BY_STATUS: Mapping[int, Mapping[type[GrovekeeperError], tuple[str, str]]] = {
    400: {
        errors.MalformedRequest: ("malformed-request", "The request cannot be read"),
        errors.IdempotencyKeyMissing: (
            "idempotency-key-missing",
            "An Idempotency-Key is needed",
        ),
    },
    401: {
        errors.Unauthenticated: ("unauthenticated", "A valid key is needed"),
    },
    403: {
        errors.RoleMissing: ("role-missing", "The key lacks a role"),
        errors.SameSubmitter: ("same-submitter", "Another owner decides"),
    },
    404: {
        errors.NotFound: ("not-found", "Nothing there"),
        errors.NoRowsOfUnit: ("no-rows-of-unit", "No row of that unit"),
    },
    405: {
        errors.MethodNotAllowed: ("method-not-allowed", "No such method here"),
    },
    408: {
        errors.BodyTooSlow: ("body-too-slow", "The body did not arrive in time"),
    },
    409: {
        errors.BudgetExceeded: (
            "budget-exceeded",
            "The budget does not cover this job",
        ),
        errors.QuotaExceeded: (
            "quota-exceeded",
            "The rules of the dataset refuse this job",
        ),
        errors.NeedsApproval: ("needs-approval", "The charge needs an approval"),
        errors.Frozen: ("frozen", "The dataset is frozen"),
        errors.TooManyCells: (
            "too-many-cells",
            "The ledger of the dataset lists too many cells",
        ),
        errors.NotWaiting: ("not-waiting", "The job does not wait for a decision"),
        errors.SubmitterRevoked: (
            "submitter-revoked",
            "The submitter may not train any more",
        ),
        errors.NoRowsYet: ("no-rows-yet", "No rows were uploaded yet"),
        errors.DeclarationFixed: (
            "declaration-fixed",
            "The declaration cannot change any more",
        ),
        errors.UploadRepeated: ("upload-repeated", "The rows are stored already"),
        errors.NameTaken: ("name-taken", "The name is taken"),
        errors.LastOwner: ("last-owner", "The dataset would have no owner"),
        errors.AccountDiffers: (
            "account-differs",
            "The declaration cannot continue the account of its name",
        ),
        errors.PopulationMismatch: (
            "population-mismatch",
            "The dataset cannot join the population",
        ),
        errors.DatasetDeleted: ("dataset-deleted", "The dataset was deleted"),
        errors.ErasureDue: ("erasure-due", "The date of erasure has come"),
        errors.ModelHasAlias: ("model-has-alias", "An alias names the model"),
        errors.JobFinished: ("job-finished", "The job has finished"),
        errors.IdempotencyInFlight: (
            "idempotency-in-flight",
            "The first request is still running",
        ),
        forest_errors.AccountantMismatch: (
            "accountant-mismatch",
            "The account cannot hold this charge",
        ),
        forest_errors.AdjacencyMismatch: (
            "adjacency-mismatch",
            "The account protects something else",
        ),
    },
    412: {
        errors.ChangedMeanwhile: ("changed-meanwhile", "Somebody else changed it"),
    },
    413: {
        errors.TooLarge: ("too-large", "Over a public limit"),
    },
    415: {
        errors.UnsupportedMediaType: (
            "unsupported-media-type",
            "Not a body that this call reads",
        ),
    },
    422: {
        errors.InvalidRequest: _INVALID,
        forest_errors.ParameterInvalid: _INVALID,
        errors.RowsInvalid: (
            "rows-invalid",
            "The upload does not match the declaration",
        ),
        errors.UploadEmpty: ("upload-empty", "The upload has no row"),
        errors.CellsUnread: ("cells-unread", "Cells are not as declared"),
        errors.IdempotencyKeyReused: (
            "idempotency-key-reused",
            "The key came with another body",
        ),
        forest_errors.NotSupported: ("not-supported", "Not supported yet"),
    },
    429: {
        errors.TooManyRequests: ("too-many-requests", "Too many requests"),
    },
    503: {
        errors.BalanceMismatch: (
            "balance-mismatch",
            "The account differs from its entries",
        ),
        errors.NotWritable: ("not-writable", "A folder is read-only"),
        errors.Unavailable: ("unavailable", "Not ready"),
    },
}
"""Slug and title of each error, by status."""

PROBLEMS: Mapping[type[GrovekeeperError], ProblemType] = {
    kind: ProblemType(status, *words)
    for status, kinds in _BY_STATUS.items()
    for kind, words in kinds.items()
}
INFERENCE_PATHS = "/v2"
"""Begin of the paths of the Open Inference Protocol."""
INTERNAL = ProblemType(500, "internal", "Something broke")
_UNEXPECTED = "an internal error; quote the request id"

OF_A_KEY = (errors.Unauthenticated, errors.TooManyRequests, errors.Unavailable)
"""What every call with a key can answer."""

JSON_BODY = (
    errors.MalformedRequest,
    errors.BodyTooSlow,
    errors.TooLarge,
    errors.UnsupportedMediaType,
)
"""What every call with a JSON body can answer."""

REPEATABLE = (errors.IdempotencyKeyReused, errors.IdempotencyInFlight)
"""What every call with an ``Idempotency-Key`` can answer."""

SPENDING = (
    errors.DatasetDeleted,
    errors.ErasureDue,
    errors.Frozen,
    errors.QuotaExceeded,
    errors.BudgetExceeded,
    errors.TooManyCells,
    errors.BalanceMismatch,
    errors.IdempotencyKeyMissing,
    *REPEATABLE,
    *JSON_BODY,
)
"""What every call that spends budget can answer."""

QUOTED = (
    errors.NotFound,
    errors.RoleMissing,
    errors.DatasetDeleted,
    errors.BalanceMismatch,
    *JSON_BODY,
)
"""What every quote can answer."""

_SLUG_OF_PYDANTIC = {
    "missing": "required",
    "string_type": "not-a-string",
    "string_pattern_mismatch": "malformed",
    "string_too_long": "too-long",
    "string_too_short": "too-short",
    "int_type": "not-an-integer",
    "int_parsing": "not-an-integer",
    "bool_type": "not-a-boolean",
    "bool_parsing": "not-a-boolean",
    "list_type": "not-a-list",
    "dict_type": "not-an-object",
    "model_type": "not-an-object",
    "model_attributes_type": "not-an-object",
    "literal_error": "unknown-choice",
    "enum": "unknown-choice",
    "too_long": "too-many",
    "too_short": "too-few",
    "greater_than": "too-small",
    "greater_than_equal": "too-small",
    "less_than": "too-large",
    "less_than_equal": "too-large",
}

_FORMS = {
    PUBLIC_NAME: "letters A to Z and a to z, digits, dots, hyphens and underscores, and not dots alone",
    NO_CONTROLS: "one line without control characters and without marks that turn the direction of the text",
    VISIBLE_LINE: "one line with a visible character, without control characters",
}
"""What the patterns of requests accept, in words."""

_FIELD_NAME = re.compile(r"[a-z]+(_[a-z]+)*", re.ASCII)

_BOUNDS = {
    "ge": "at least",
    "le": "at most",
    "min_length": "at least",
    "max_length": "at most",
}
"""Names of bounds in pydantic's errors, in words."""

_MEMBERS: Mapping[type[GrovekeeperError], Sequence[str]] = {
    errors.RoleMissing: ("needed",),
    errors.SubmitterRevoked: ("reason",),
    errors.BudgetExceeded: (
        "dataset", "dataset_name", "accountant", "unit", "cap", "charged", "reserved", "remaining", "requested",
        "tightest_cell", "largest_that_fits", "population", "exact",
    ),
    errors.QuotaExceeded: ("dataset", "dataset_name", "accountant", "unit", "requested", "largest_that_fits"),
    errors.Frozen: ("dataset", "dataset_name"),
    errors.ErasureDue: ("dataset", "dataset_name"),
    errors.TooManyCells: ("dataset", "dataset_name", "limit"),
    forest_errors.AccountantMismatch: ("accountant", "accepted_by"),
    forest_errors.AdjacencyMismatch: ("adjacency", "accepted_by"),
    errors.AccountDiffers: ("dataset", "dataset_name", "differs"),
    errors.PopulationMismatch: ("differs",),
    errors.ModelHasAlias: ("aliases",),
    forest_errors.NotSupported: ("what",),
    errors.TooLarge: ("limit",),
    errors.UploadRepeated: ("upload",),
    errors.NoRowsOfUnit: ("similar_units",),
}  # fmt: skip
"""Attributes of an error that its problem shows as they are."""


def problem_of(error: GrovekeeperError) -> tuple[JsonObject, ProblemType]:
    """Return a problem's body and its row of the table."""
    if isinstance(error, forest_errors.ParameterInvalid):
        error = errors.InvalidRequest.of(error)
    # the nearest class wins: a subclass has the problem of its parent or its own
    kinds = [kind for kind in type(error).__mro__ if kind in PROBLEMS]
    row = PROBLEMS[kinds[0]] if kinds else INTERNAL
    detail = _UNEXPECTED if row is INTERNAL else str(error)
    return row.body(detail) | _members(error), row


def response_to(error: GrovekeeperError, path: str = "") -> Response:
    """Return a named error as an HTTP answer to a request for a path."""
    body, _ = problem_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, errors.Unauthenticated):
        # RFC 6750, section 3: an error only where a credential was sent
        error_code = ' error="invalid_token"' if error.was_sent else ""
        headers["WWW-Authenticate"] = f"Bearer{error_code}"
    if isinstance(error, errors.TooManyRequests | errors.Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, errors.BodyTooSlow):
        headers["Connection"] = "close"
    return _response(body, path, headers)


def answer_to(error: GrovekeeperError, request: Request) -> Response:
    """Return a named error as an HTTP answer; log an error without a row in the table
    and answer 500.
    """
    if problem_of(error)[1] is not INTERNAL:
        return response_to(error, request.url.path)
    _log.error(
        "a named error has no problem type",
        exc_info=error,
        extra={"request_id": request.state.request_id},
    )
    return internal_error(request)


def internal_error(request: Request) -> Response:
    """Return the answer to an unexpected error: a request id and nothing else."""
    return _response(
        INTERNAL.body(_UNEXPECTED) | {"request_id": request.state.request_id},
        request.url.path,
        {},
    )


def _response(body: JsonObject, path: str, headers: Mapping[str, str]) -> Response:
    # whose clients look for the error in a member of this name
    if path.startswith(INFERENCE_PATHS):
        problems = [
            f"{item['at']} {item['problem']} {item.get('column', '')}".strip()
            for item in body.get("errors", ())
        ]
        error = body["detail"]
        if problems:
            error = f"{error}: {'; '.join(problems)}"
        body = {"error": error, **body}
    text = json.dumps(body, ensure_ascii=False)
    return Response(
        text, status_code=body["status"], headers=headers, media_type=MEDIA_TYPE
    )


async def on_validation_error(request: Request, error: Exception) -> NoReturn:
    """Name the validation errors of query parameters and headers."""
    assert isinstance(error, RequestValidationError)
    # without "query" or "header", with which the framework begins a place
    items = [{**item, "loc": item["loc"][1:]} for item in error.errors()]
    raise invalid_request(items) from None


def invalid_request(
    validation: Iterable[JsonMapping], model: type[BaseModel] | None = None
) -> errors.InvalidRequest:
    """Return the problem of a list of validation errors of pydantic: known locations
    and slugs, never a value.

    Args:
        model: of the body. An unknown field is then answered with the names of the
            fields that its place takes.
    """
    problems = []
    for item in validation:
        if item["type"] == "extra_forbidden":
            problems.append(_unknown_field(item, model))
        else:
            problems.append(_located(item))
    return errors.InvalidRequest(list(dict.fromkeys(problems)))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Handle errors that the framework raises."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        response = response_to(errors.MethodNotAllowed(), request.url.path)
        response.headers["Allow"] = ", ".join(_methods_of(request))
        return response
    if error.status_code == 404:
        return response_to(errors.NotFound("path"), request.url.path)
    if isinstance(error.__cause__, GrovekeeperError):
        return response_to(error.__cause__, request.url.path)
    return response_to(
        errors.MalformedRequest("the request cannot be read"), request.url.path
    )


def _methods_of(request: Request) -> list[str]:
    """Return the methods of a path. The framework's error lists those of one route; a
    path can have several.
    """
    routes: Sequence[BaseRoute] = request.app.routes
    methods = []
    for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in routes):
            methods.append(method)
    # HEAD is answered wherever GET is
    return sorted({*methods, "HEAD"}) if "GET" in methods else methods


def documented(
    kinds: Iterable[type[GrovekeeperError]],
) -> dict[int | str, JsonObject]:
    """Return the OpenAPI ``responses`` of a route: every problem of the route, by
    status.
    """
    # No call reads a head that is too long, or an unknown query parameter.
    every_kind = {*kinds, errors.MalformedRequest, errors.InvalidRequest}
    problems = {INTERNAL, *(PROBLEMS[kind] for kind in every_kind)}
    rows = sorted(problems, key=lambda row: (row.status, row.slug))
    result: dict[int | str, JsonObject] = {}
    for row in rows:
        same_status = [other for other in rows if other.status == row.status]
        slugs = ", ".join(f"`{other.slug}`" for other in same_status)
        result[row.status] = _documented(slugs)
    return result


@cache
def _documented(slugs: str) -> JsonObject:
    """The response that says some problems; routes share it, which saves 0.4 MB."""
    return {
        "description": slugs,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _members(error: GrovekeeperError) -> JsonObject:
    match error:
        case errors.InvalidRequest():
            shown = error.errors[: forest_limits.MAX_REPORTED_PROBLEMS]
            return {"errors": list(map(_field_problem, shown))}
        case errors.RowsInvalid() | errors.CellsUnread():
            return {"columns": list(map(errors.stated_members, error.columns))}
    for kind, names in _MEMBERS.items():
        if isinstance(error, kind):
            return {name: getattr(error, name) for name in names}
    return {}


def _field_problem(item: errors.FieldProblem) -> JsonObject:
    problem: JsonObject = {"at": item.at, "problem": item.problem}
    for name in ("field", "limit", "column", "count"):
        if getattr(item, name) is not None:
            problem[name] = getattr(item, name)
    if item.accepted:
        problem["accepted"] = list(item.accepted[: forest_limits.MAX_REPORTED_PROBLEMS])
    return problem


def _unknown_field(
    item: JsonMapping, model: type[BaseModel] | None
) -> errors.FieldProblem:
    """The place of an unknown field, the fields that are accepted there, and a name
    that reads like theirs.
    """
    *place, name = item["loc"]
    accepted = () if model is None else _fields_at(model, place)
    return errors.FieldProblem(
        "".join(f"/{part}" for part in place),
        "unknown-field",
        accepted=accepted,
        field=shown_name(name),
    )


def shown_name(name: object) -> str | None:
    """The name of an unknown field or parameter that a problem shows: one that reads
    like the names of this API.

    Other names came from outside like a value, and may be one: a category, or the name
    of a person.
    """
    if isinstance(name, str) and _FIELD_NAME.fullmatch(name):
        return name
    return None


def _fields_at(model: type[BaseModel], place: Sequence[object]) -> tuple[str, ...]:
    """The names of the fields that a body of a model takes at a place."""
    models = [model]
    for member in place:
        if not isinstance(member, str):
            continue  # an index stays within the same models
        inner_models = []
        for outer in models:
            field = _named_fields(outer).get(member)
            if field is not None:
                inner_models += _models(field.annotation)
        models = inner_models
    names: dict[str, None] = {}
    for inner in models:
        names.update(dict.fromkeys(_named_fields(inner)))
    return tuple(names)


def _named_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models in an annotation, such as that of a list or of an optional field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _located(item: JsonMapping) -> errors.FieldProblem:
    location: Sequence[Any] = item["loc"]
    slug = _SLUG_OF_PYDANTIC.get(item["type"], "invalid")
    if item["type"] == "grovekeeper":
        slug = item["ctx"]["slug"]
    if location[-1:] == ("[key]",):
        location = location[:-2]  # so did the name of the member
    return errors.FieldProblem(
        "".join(f"/{part}" for part in location),
        slug,
        accepted=_accepted(item.get("ctx", {})),
    )


def _accepted(context: JsonMapping) -> tuple[str, ...]:
    """What a rule accepts: the choices of a literal, its bounds, or a form. All come
    from the rule, not the input.
    """
    form = context.get("form") or _FORMS.get(context.get("pattern", ""))
    if form:
        return (form,)
    accepted = re.findall("'([^']*)'", str(context.get("expected", "")))
    for name, words in _BOUNDS.items():
        if name in context:
            accepted.append(f"{words} {context[name]}")
    return tuple(accepted)
