"""Defines the base classes of request and response types, and exact number types."""

import math
import re
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from app.core import limits, stamps
from grovekeeper_forests import amounts
from grovekeeper_forests import limits as forest_limits


class Request(BaseModel):
    """A request body: strict types, unknown fields rejected, immutable.

    Every list, object and string has a limit, and a list is read up to its first
    problem, or to its hundredth (:func:`up_to_a_hundred`). So the problems of a body
    are few, whatever it holds.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )


class Answer(BaseModel):
    """A response body. No field has a default, so no field can be forgotten.

    Its validator is built at the first use: to build all of them takes 0.08 s of the
    start of the API.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


LabelOfJob = Annotated[str | None, Field(exclude_if=lambda label: label is None)]
"""The label that a job reads. Absent where the dataset declares no other, so that such
answers keep their bytes.
"""


class OfDataset(Answer):
    """What belongs to one dataset."""

    dataset: str
    dataset_name: str


def up_to_a_hundred(kind: type[Request], *, most: int) -> BeforeValidator:
    """Reads the items of a list until their problems fill an answer, so that people
    mend them all at once.

    Args:
        kind: of an item.
        most: items of the list; a longer list is left to its own rule.
    """

    def read(items: object) -> object:
        if not isinstance(items, list) or len(items) > most:
            return items
        read_items, faults = list[Request](), list[InitErrorDetails]()
        for index, item in enumerate(items):
            try:
                read_items.append(kind.model_validate(item))
            except ValidationError as error:
                faults += [
                    _at(index, fault) for fault in error.errors(include_url=False)
                ]
            if len(faults) >= forest_limits.MAX_REPORTED_PROBLEMS:
                break
        if faults:
            raise ValidationError.from_exception_data("list", faults)
        return read_items

    return BeforeValidator(read)


def _at(index: int, fault: ErrorDetails) -> InitErrorDetails:
    """A problem of an item as a problem of its list."""
    context = fault.get("ctx", {})
    kind = problem(**context) if fault["type"] == "grovekeeper" else fault["type"]
    return InitErrorDetails(
        type=kind, loc=(index, *fault["loc"]), input=fault["input"], ctx=context
    )


def problem(slug: str, *, form: str | None = None) -> PydanticCustomError:
    """Return a validation error whose type is the public slug, with the expected form;
    it carries no value.
    """
    return PydanticCustomError("grovekeeper", "{slug}", {"slug": slug, "form": form})


def no_id(name: str) -> str:
    """Checks that a name has not the form of an id, nor of an option of a command:
    callers use all of them in the same places.
    """
    if name.startswith("-"):
        raise problem("like-an-option", form="a name that begins with another sign")
    if stamps.is_id(name):
        raise problem(
            "like-an-id",
            form="a name that is not two or three letters, _ and 16 characters",
        )
    return name


_SECRET = re.compile(
    r"(?<![A-Za-z0-9_.-])(?:"
    # not a name of words and dashes
    r"[a-z0-9_]{4,32}\.(?:(?=[\w-]*[A-Z])(?=[\w-]*[0-9])[\w-]{43}|[0-9a-f]{43})"
    r"|whsec_[A-Za-z0-9+/_-]{43}"
    r"|eyJ[\w-]+\.[\w-]+\.[\w-]+)",
    re.ASCII,
)
"""A key, the secret of a webhook, or a token of an identity provider."""


def is_secret(text: str) -> bool:
    """Whether a text holds a secret."""
    return _SECRET.search(text) is not None


def no_secret(text: str) -> str:
    """Checks a text that others read, in a ledger for good: a secret is pasted where
    its name or a reason belongs.
    """
    if is_secret(text):
        raise problem("like-a-secret", form="a text without a key or token")
    return text


def no_secrets(texts: list[str]) -> list[str]:
    """Checks many texts at once; a line end is in no secret."""
    no_secret("\n".join(texts))
    return texts


def _amount(value: object) -> Fraction:
    try:
        return amounts.parse(value, above_zero=True)
    except amounts.NotAnAmount as refusal:
        raise problem(refusal.problem, form=refusal.accepted) from None


_AMOUNT_SCHEMA = {
    "title": "Amount",
    "description": "An exact positive decimal: text, or a JSON number of at most 15 significant digits.",
    "anyOf": [
        {
            "type": "string",
            "pattern": r"^[0-9]{1,12}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?$",
        },
        {"type": "number", "exclusiveMinimum": 0},
    ],
}

PositiveAmount = Annotated[
    Fraction, BeforeValidator(_amount), WithJsonSchema(_AMOUNT_SCHEMA)
]


def stated_once(epsilon: Fraction | None, info: ValidationInfo) -> Fraction | None:
    """Checks that a cap is stated as one of an ε, a ρ and a μ; a validator of the ε,
    which stands behind the fields ``rho`` and ``mu``.
    """
    in_units = list(map(info.data.get, ("rho", "mu")))
    n_stated = len([epsilon, *in_units]) - [epsilon, *in_units].count(None)
    # a ρ or a μ that is wrong has no value here, and a problem of its own
    if n_stated == 0 and {"rho", "mu"} <= info.data.keys():
        raise problem("required")
    if n_stated > 1:
        raise problem("one-of-epsilon-rho-mu")
    return epsilon


CapInEpsilon = Annotated[
    PositiveAmount | None, AfterValidator(stated_once), Field(validate_default=True)
]
"""ε, δ, ρ or μ² of a request, exact and above zero."""


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise problem("not-a-number")
    try:
        number = float(value)
    except OverflowError:
        raise problem("not-finite") from None
    if not math.isfinite(number):
        raise problem("not-finite")
    return number


FiniteNumber = Annotated[
    float, BeforeValidator(_finite), WithJsonSchema({"type": "number"})
]
"""A JSON number that fits a double."""


_DATE_CHARS = 10


def _finite_or_text(value: object) -> float | str:
    if not isinstance(value, str):
        return _finite(value)
    # whether a text is a date, and belongs here, is said where the column is known
    if len(value) > _DATE_CHARS:
        raise problem("not-a-date", form="a text such as 2024-02-29")
    return value


NumberOrDate = Annotated[
    float | Annotated[str, Field(max_length=_DATE_CHARS)],
    BeforeValidator(_finite_or_text),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string", "format": "date"}]}
    ),
]
"""A JSON number that fits a double, or in a column of dates a date such as 2024-02-29."""

_TIME_FORM = "a time with a zone, such as 2027-01-31T12:00:00Z"


def _instant(value: object) -> datetime:
    if not isinstance(value, str):
        raise problem("not-a-string")
    try:
        return stamps.from_rfc_3339(value)
    except ValueError:
        raise problem("not-a-time", form=_TIME_FORM) from None


Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 35}),
]
"""A time of a request, as RFC 3339 text with a zone."""

DecimalText = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$", examples=["0.7"])]
"""An exact decimal of an answer."""

_OBEYED = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""Characters that control a terminal or a browser: control characters, line separators,
and marks that reverse the direction of the text, so that an amount looks like another
amount.
"""

_INVISIBLE = r"\s\u200b-\u200f\u2060-\u2064\ufeff"
"""Spaces and characters of no width. The ``\\s`` of some languages contains U+FEFF, and
that of others does not.
"""

NO_CONTROLS = rf"^[^{_OBEYED}]*$"
"""Pattern of a name that people read: no control character."""

VISIBLE_LINE = rf"^[^{_OBEYED}]*[^{_INVISIBLE}{_OBEYED}][^{_OBEYED}]*$"
"""Pattern of a line with at least one visible character."""

PublicSentence = Annotated[
    str,
    Field(min_length=1, max_length=limits.MAX_SENTENCE_CHARS, pattern=VISIBLE_LINE),
    AfterValidator(no_secret),
]
"""A line that people read in the ledger: at least one visible character, and no control
character.
"""

Reference = Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)]
"""An id or a name by which a request refers to something that exists."""

JsonObjectIn = Annotated[
    dict[Reference, Any], Field(max_length=limits.MAX_JSON_MEMBERS)
]
"""A JSON object of a request whose members a service checks; the limits of the body
bound its values.
"""


class Problem(BaseModel):
    """RFC 9457 problem details; ``application/problem+json``. Members beyond the first
    four depend on ``type``.
    """

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["budget-exceeded"])
    title: str
    status: int
    detail: str
