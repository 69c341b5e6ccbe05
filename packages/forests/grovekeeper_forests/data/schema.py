"""Defines the public schema of a dataset: its columns, which a learner may use at no
privacy cost.

Bounds, categories and classes are declared by the owner, never inferred from rows.
Every artifact contains the schema, so that prediction needs only the artifact.
"""

import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

from grovekeeper_forests import limits
from grovekeeper_forests.data.days import date_of, day_of
from grovekeeper_forests.errors import ParameterInvalid, ParameterProblem
from grovekeeper_forests.json_types import JsonMapping, JsonObject
from grovekeeper_forests.kept import kept_property

FeatureType = Literal["numeric", "integer", "date", "categorical"]
_FROM_ROWS = "rounded-from-data"
BOUNDS_NOTES = ("documented", "natural", _FROM_ROWS)
_SHOWN = 5  # number of features that a warning names


@dataclass(frozen=True)
class Feature:
    """One public column.

    Attributes:
        name: column name.
        type: ``numeric``, ``integer`` and ``date`` have ``lower`` ≤ ``upper``;
            ``categorical`` has ``categories``. A ``date`` is an integer, its whole days
            since the first day: of numbers, ``numeric`` alone have fractions.
        lower: smallest legal value; values below are clamped to it. 0 of a ``date``.
        upper: largest legal value.
        categories: distinct strings, at least one; a value outside them is OTHER.
        ordered: the categories are in a meaningful order.
        missing: an empty cell is legal and becomes MISSING.
        bounds: a note on the source of the bounds, for readers.
        first_day: the declared first day of a ``date``, in days from 1970-01-01.
        marks: the texts that stand for an empty cell unless they are a category
            (:attr:`Schema.missing_values`).
    """

    name: str
    type: FeatureType
    lower: float = 0.0
    upper: float = 0.0
    categories: tuple[str, ...] = ()
    ordered: bool = False
    missing: bool = False
    bounds: str | None = None
    first_day: int | None = None
    marks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_date(self) -> bool:
        """Whether the cells are dates, and the values days since the first day."""
        return self.type == "date"

    @property
    def has_texts(self) -> bool:
        """Whether the cells of a request are texts."""
        return self.is_categorical or self.is_date

    @property
    def is_categorical(self) -> bool:
        """Whether the feature has categories instead of bounds."""
        return self.type == "categorical"

    @property
    def other_code(self) -> int:
        """Code of an undeclared category."""
        return len(self.categories)

    @property
    def missing_code(self) -> int:
        """Code of an empty categorical cell."""
        return len(self.categories) + 1

    def to_json(self) -> JsonObject:
        """The declaration in the form that the owner writes."""
        result: JsonObject = {"name": self.name, "type": self.type}
        if self.is_categorical:
            result |= {"categories": list(self.categories), "ordered": self.ordered}
        else:
            result |= {
                "lower": plain_number(self.lower, self.first_day),
                "upper": plain_number(self.upper, self.first_day),
            }
        result["missing"] = self.missing
        if self.bounds is not None:
            result["bounds"] = self.bounds
        return result


NUMBER = "number"
INTEGER = "integer"
"""The types of a label whose cells are numbers that a forest predicts: any, or whole
ones.
"""

TARGET_STEPS = 2**30
"""A label that is a number is stored as a whole number of such parts of its range."""


@dataclass(frozen=True)
class Label:
    """The column to predict: two or more distinct strings as classes, or a number.

    Attributes:
        classes: empty where the label is a number.
        cuts: ascending points that cut a column of numbers into the classes; a number
            on a point is in the class above it. Empty where the cells are the classes.
        bounds: smallest and largest value of a label that is a number; numbers beyond
            are clamped. ``None`` where the label has classes.
        is_whole: whether the numbers of the owner's files are whole. Predictions may
            have fractions.
    """

    name: str
    classes: tuple[str, ...] = ()
    cuts: tuple[float, ...] = ()
    bounds: tuple[float, float] | None = None
    is_whole: bool = False

    @property
    def is_number(self) -> bool:
        """Whether forests predict a number, not a class."""
        return self.bounds is not None

    @property
    def has_numbers(self) -> bool:
        """Whether the cells of the owner's files are numbers."""
        return self.is_number or bool(self.cuts)

    @property
    def n_codes(self) -> int:
        """Number of codes of a stored row: of the classes, or of the parts of the
        range.
        """
        if self.is_number:
            return TARGET_STEPS + 1
        return len(self.classes)

    @property
    def column(self) -> Feature:
        """The label as a column of the owner's files, where any cell may be empty."""
        if self.bounds is not None:
            kind: FeatureType = "numeric"
            if self.is_whole:
                kind = "integer"
            return Feature(self.name, kind, *self.bounds, missing=True)
        if self.cuts:
            return Feature(self.name, "numeric", -math.inf, math.inf, missing=True)
        return Feature(self.name, "categorical", categories=self.classes, missing=True)

    def to_json(self) -> JsonObject:
        """The label with its classes, also where they follow from the cuts; or with its
        bounds.
        """
        if self.bounds is not None:
            lower, upper = map(plain_number, self.bounds)
            kind = NUMBER
            if self.is_whole:
                kind = INTEGER
            return {"name": self.name, "type": kind, "lower": lower, "upper": upper}
        result: JsonObject = {"name": self.name, "classes": list(self.classes)}
        # labels without cuts have no such member, and keep their bytes
        if self.cuts:
            result["cuts"] = list(map(plain_number, self.cuts))
        return result


@dataclass(frozen=True)
class Schema:
    """Features in declared order, and the label.

    Attributes:
        label: the column that a job predicts; of a dataset with several, the first.
        further_labels: the other labels of a dataset; no job has them as features.
        missing_values: texts that stand for an empty cell, but in a column that
            declares the text as a value.
    """

    features: tuple[Feature, ...]
    label: Label
    missing_values: tuple[str, ...] = ()
    further_labels: tuple[Label, ...] = ()

    @property
    def labels(self) -> tuple[Label, ...]:
        """Every label, in declared order."""
        return (self.label, *self.further_labels)

    @property
    def columns(self) -> tuple[Feature, ...]:
        """The columns of the owner's files: the features, then the labels."""
        labels = [label.column for label in self.labels]
        return (*self.features, *labels)

    def classes_of(self, name: str) -> tuple[str, ...]:
        """The classes of the label of a name; none of another column."""
        for label in self.labels:
            if label.name == name:
                return label.classes
        return ()

    def with_label(self, name: str | None) -> "Schema":
        """The columns of a job that reads one label and no other.

        Args:
            name: of a declared label; ``None``: the schema as it is declared.

        Raises:
            ValueError: no label has the name.
        """
        if name is None:
            return self
        for label in self.labels:
            if label.name == name:
                return replace(self, label=label, further_labels=())
        raise ValueError("the declaration has no such label")

    @property
    def n_classes(self) -> int:
        """Number of declared classes; 0 where the label is a number."""
        return len(self.label.classes)

    @kept_property
    def max_request_rows(self) -> int:
        """Most rows of a prediction request for a model: they bound its cells, and the
        probabilities of its answer.
        """
        row_cells = max(len(self.features), self.n_classes)
        most_rows = limits.MAX_PREDICTION_CELLS // row_cells
        return min(limits.MAX_PREDICTION_ROWS, most_rows)

    @property
    def feature_names(self) -> list[str]:
        """The names of the features, in their order."""
        return [feature.name for feature in self.features]

    def has_features_of(self, other: "Schema") -> bool:
        """Whether both schemas have equal features in equal order, ignoring the notes
        on bounds.
        """
        return _without_notes(self) == _without_notes(other)

    def reads_like(self, other: "Schema") -> bool:
        """Whether both schemas have equal features and equal classes, or equal bounds
        of the label; the name of the label column may differ.
        """
        return (
            self.has_features_of(other)
            and self.label.classes == other.label.classes
            and self.label.bounds == other.label.bounds
        )

    @property
    def warnings(self) -> list[str]:
        """A sentence that names the features whose bounds were read off the rows, if
        there are any.

        The guarantee takes the declaration as public. Bounds that follow the rows say
        something about the smallest and the largest value, whatever the service does,
        and no charge covers it.
        """
        names = [
            feature.name for feature in self.features if feature.bounds == _FROM_ROWS
        ]
        if not names:
            return []
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return [
            f"The bounds of {', '.join(names[:_SHOWN])}{more} were read off the rows and rounded ({_FROM_ROWS}). "
            "The declaration publishes them, and the guarantee does not cover what they say about the rows. Use bounds "
            "from a data dictionary or from the meaning of the column."
        ]

    def to_json(self) -> JsonObject:
        result: JsonObject = {
            "features": [feature.to_json() for feature in self.features],
        }
        if self.further_labels:
            result["labels"] = [label.to_json() for label in self.labels]
        else:
            result["label"] = self.label.to_json()
        # earlier declarations have no such member, and keep their bytes
        if self.missing_values:
            result["missing_values"] = list(self.missing_values)
        return result

    @classmethod
    def from_json(cls, value: JsonMapping) -> "Schema":
        """Reads and checks a declaration whose field types the wire model already
        checked; see :meth:`unchecked`.

        Raises:
            ParameterInvalid: with a place in ``schema`` and a slug for every broken
                rule.
        """
        schema = cls.unchecked(value)
        if problems := schema.problems():
            raise ParameterInvalid(problems)
        return schema

    @classmethod
    def unchecked(cls, value: JsonMapping) -> "Schema":
        """Reads a declaration without checking its rules.

        Args:
            value: ``{"features": […], "label": {…}, "missing_values": […]}``, or ``labels`` in place
                of ``label``; absent optional fields take their defaults.
        """
        missing_values = tuple(cast(Sequence[str], value.get("missing_values") or ()))
        features = tuple(
            _feature(item, missing_values)
            for item in cast(Sequence[JsonMapping], value["features"])
        )
        stated = value.get("labels") or [value["label"]]
        labels = []
        for item in cast(Sequence[JsonMapping], stated):
            labels.append(_label(item))
        return cls(features, labels[0], missing_values, tuple(labels[1:]))

    def problems(self, *, is_list: bool = False) -> list[ParameterProblem]:
        """Every broken rule, with a place in ``schema``.

        Args:
            is_list: whether a label alone stands in a list, too.
        """
        problems: list[ParameterProblem] = []
        if not self.features:
            problems.append(_problem("too-few", "features"))
        if len(self.features) > limits.MAX_FEATURES:
            return [_problem("too-many", "features")]
        seen: set[str] = set()
        for index, feature in enumerate(self.features):
            place = ("features", index)
            problems.extend(
                _problem(problem, *place, field)
                for field, problem in _feature_problems(feature)
            )
            if feature.name in seen:
                problems.append(_problem("not-distinct", *place, "name"))
            seen.add(feature.name)
        for index, label in enumerate((self.label, *self.further_labels)):
            at: tuple[str | int, ...] = ("label",)
            if is_list or self.further_labels:
                at = ("labels", index)
            broken = _label_problems(label, is_taken=label.name in seen)
            seen.add(label.name)
            for member, slug in broken.items():
                problems.append(_problem(slug, *at, member))
        marks_problem = missing_values_problem(self.missing_values)
        if marks_problem:
            problems.append(_problem(marks_problem, "missing_values"))
        return problems


def classes_of_cuts(cuts: Sequence[float]) -> tuple[str, ...]:
    """The names of the classes into which points cut numbers: ``below 3``, ``3 to below
    7`` and ``7 or more`` for 3 and 7.
    """
    points = list(map(str, map(plain_number, cuts)))
    names = [f"below {points[0]}"]
    for low, high in itertools.pairwise(points):
        names.append(f"{low} to below {high}")
    names.append(f"{points[-1]} or more")
    return tuple(names)


def _feature(item: JsonMapping, marks: tuple[str, ...]) -> Feature:
    lower = item.get("lower")
    upper = item.get("upper")
    first_day = None
    if item["type"] == "date":
        first_day, lower, upper = _days(lower, upper)
    return Feature(
        name=cast(str, item["name"]),
        type=cast(FeatureType, item["type"]),
        lower=math.nan if lower is None else float(cast(float, lower)),
        upper=math.nan if upper is None else float(cast(float, upper)),
        categories=tuple(cast(Sequence[str], item.get("categories") or ())),
        ordered=bool(item.get("ordered", False)),
        missing=bool(item.get("missing", False)),
        bounds=cast("str | None", item.get("bounds")),
        first_day=first_day,
        marks=marks,
    )


def _label(item: JsonMapping) -> Label:
    classes = tuple(cast(Sequence[str], item.get("classes") or ()))
    points = cast(Sequence[float], item.get("cuts") or ())
    cuts = tuple(map(float, points))
    bounds = None
    has_bounds = "lower" in item or "upper" in item
    if has_bounds or item.get("type") in (NUMBER, INTEGER):
        lower = cast("float | None", item.get("lower"))
        upper = cast("float | None", item.get("upper"))
        # a bound that is not declared is NaN, which the rules refuse
        bounds = _number_or_nan(lower), _number_or_nan(upper)
    elif cuts and not classes:
        classes = classes_of_cuts(cuts)
    is_whole = item.get("type") == INTEGER
    return Label(str(item["name"]), classes, cuts, bounds, is_whole)


def _number_or_nan(value: float | None) -> float:
    if value is None:
        return math.nan
    return float(value)


def _days(first: object, last: object) -> tuple[int, float, float]:
    """The first day from 1970-01-01, and both bounds from the first day; NaN for a bound
    that is no date.
    """
    lower = day_of(first)
    upper = day_of(last)
    if not upper.is_integer():
        upper = math.nan
    if not lower.is_integer():
        # without a first day, the last one is no problem of its own
        return 0, math.nan, upper
    return int(lower), 0.0, upper - lower


def _without_notes(schema: Schema) -> list[Feature]:
    return [replace(feature, bounds=None) for feature in schema.features]


def plain_number(value: float, first_day: int | None = None) -> float | int | str:
    """A number of a declaration as people write it: without a fraction where it has
    none, and as a date in a column of dates.

    Args:
        first_day: of the column (:attr:`Feature.first_day`).
    """
    if first_day is not None:
        return date_of(value + first_day)
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def composed(name: str) -> str:
    """A column's name in Unicode's composed form (NFC). Programs write one letter with
    an accent in several ways.
    """
    return unicodedata.normalize("NFC", name)


def column_name_problem(name: str) -> str | None:
    """The slug of the error in a column name, or ``None``: 1 to 128 characters, no
    control characters.
    """
    if not name:
        return "empty"
    if len(name) > limits.MAX_NAME_CHARS:
        return "too-long"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "control-character"
    return None


def value_list_problem(
    values: Sequence[str], *, smallest: int, largest: int
) -> str | None:
    """The slug of the error in a list of categories or classes, or ``None``."""
    if len(values) < smallest:
        return "too-few"
    if len(values) > largest:
        return "too-many"
    if len(set(values)) != len(values):
        return "not-distinct"
    if any(not value for value in values):
        return "empty"
    if any(len(value) > limits.MAX_CATEGORY_CHARS for value in values):
        return "too-long"
    if any(
        unicodedata.category(character) in ("Cc", "Cs")
        for value in values
        for character in value
    ):
        return "control-character"
    return None


BLANKS = " \t"
"""Which a reader takes off a cell before it looks for these texts."""


def missing_values_problem(marks: Sequence[str]) -> str | None:
    """The slug of the error in texts that stand for an empty cell, or ``None``.

    A number is none of them: a Parquet file has numbers where a CSV has texts, and both
    must mean the same.
    """
    problem = value_list_problem(marks, smallest=0, largest=limits.MAX_MISSING_VALUES)
    if problem is None and any(map(is_number, marks)):
        problem = "a-number"
    if problem is None and any(mark != mark.strip(BLANKS) for mark in marks):
        problem = "blanks-around"
    return problem


def is_number(text: str) -> bool:
    """Whether a text is a number other than NaN, which is an empty cell anyway."""
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def _label_problems(label: Label, *, is_taken: bool) -> dict[str, str]:
    """The slugs of the errors in a label, by field; ``is_taken``: another column has its
    name.
    """
    problems = {}
    name_problem = column_name_problem(label.name)
    if is_taken:
        name_problem = "not-distinct"
    if name_problem:
        problems["name"] = name_problem
    if label.bounds is not None:
        return problems | _target_problems(label, label.bounds)
    cuts_problem = None
    if label.cuts:
        cuts_problem = _cuts_problem(label)
    if cuts_problem:
        field, slug = cuts_problem
        problems[field] = slug
        return problems
    classes_problem = value_list_problem(
        label.classes, smallest=2, largest=limits.MAX_CLASSES
    )
    if classes_problem:
        problems["classes"] = classes_problem
    return problems


def _target_problems(label: Label, bounds: tuple[float, float]) -> dict[str, str]:
    """The slugs of the errors in a label that is a number, by field."""
    problems = {}
    for name, value in zip(("lower", "upper"), bounds, strict=True):
        if math.isnan(value):
            problems[name] = "missing"
        elif math.isinf(value):
            problems[name] = "not-finite"
        elif label.is_whole and not value.is_integer():
            problems[name] = "not-an-integer"
    lower, upper = bounds
    if not problems and lower >= upper:
        problems["lower"] = "not-below-upper"
    if not problems and not math.isfinite(upper - lower):
        problems["upper"] = "too-large"
    for name in ("classes", "cuts"):
        if getattr(label, name):
            problems[name] = "not-for-numbers"
    return problems


def _cuts_problem(label: Label) -> tuple[str, str] | None:
    """The field of a label with cuts that breaks a rule, with the slug of the error."""
    cuts = label.cuts
    if len(cuts) >= limits.MAX_CLASSES:
        return "cuts", "too-many"
    if not all(map(math.isfinite, cuts)):
        return "cuts", "not-finite"
    for low, high in itertools.pairwise(cuts):
        if low >= high:
            return "cuts", "not-ascending"
    if label.classes != classes_of_cuts(cuts):
        return "classes", "not-those-of-the-cuts"
    return None


_ACCEPTED = {
    "features": (f"1 to {limits.MAX_FEATURES} features",),
    "name": (
        f"a distinct name of 1 to {limits.MAX_NAME_CHARS} characters without control characters",
    ),
    "classes": (
        f"2 to {limits.MAX_CLASSES} distinct texts of 1 to {limits.MAX_CATEGORY_CHARS} characters",
    ),
    "cuts": (f"1 to {limits.MAX_CLASSES - 1} ascending numbers",),
    "categories": (
        f"1 to {limits.MAX_CATEGORIES} distinct texts of 1 to {limits.MAX_CATEGORY_CHARS} characters",
    ),
    "bounds": BOUNDS_NOTES,
    "missing_values": (
        f"up to {limits.MAX_MISSING_VALUES} distinct texts that are no numbers, without blanks around them",
    ),
}
"""What the fields of a schema accept, in words."""


def _problem(problem: str, *place: str | int) -> ParameterProblem:
    accepted = tuple(_ACCEPTED.get(str(place[-1]), ()))
    if problem == _NO_DATE:
        accepted = ("a text such as 2024-02-29",)
    return ParameterProblem(("schema", *place), problem, accepted=accepted)


_NO_DATE = "not-a-date"
_NO_BOUND = {
    "numeric": "missing",
    "integer": "missing",
    "date": _NO_DATE,
}
"""The problem of a bound that is none, by the type of the feature."""


def _feature_problems(feature: Feature) -> list[tuple[str, str]]:
    # a body cannot name one, but a damaged artifact can
    if feature.type not in get_args(FeatureType):
        return [("type", "unknown")]
    problems: list[tuple[str, str]] = []
    name_problem = column_name_problem(feature.name)
    if name_problem:
        problems.append(("name", name_problem))
    if feature.bounds is not None and feature.bounds not in BOUNDS_NOTES:
        problems.append(("bounds", "unknown"))
    if feature.is_categorical:
        problem = value_list_problem(
            feature.categories, smallest=1, largest=limits.MAX_CATEGORIES
        )
        if problem:
            problems.append(("categories", problem))
        problems.extend(
            (field, "not-for-categories")
            for field in ("lower", "upper")
            if not math.isnan(getattr(feature, field))
        )
        return problems
    problems.extend(
        (field, "not-for-numbers")
        for field in ("categories", "ordered")
        if getattr(feature, field)
    )
    for bound in ("lower", "upper"):
        value = getattr(feature, bound)
        if math.isnan(value):
            problems.append((bound, _NO_BOUND[feature.type]))
        elif math.isinf(value):
            problems.append((bound, "not-finite"))
        elif feature.type == "integer" and not value.is_integer():
            problems.append((bound, "not-an-integer"))
    if not problems and feature.lower > feature.upper:
        problems.append(("lower", "above-upper"))
    return problems
