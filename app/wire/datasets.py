"""Defines the types of ``/datasets`` and ``/declarations``: declarations and public
facts.
"""

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from app.core import limits
from app.wire.base import (
    Answer,
    CapInEpsilon,
    DecimalText,
    FiniteNumber,
    NumberOrDate,
    PositiveAmount,
    PublicSentence,
    Request,
    no_id,
    no_secret,
    no_secrets,
    problem,
    up_to_a_hundred,
)
from app.wire.uploads import EpochOut
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.limit_words import LimitedBy
from grovekeeper_forests import amounts
from grovekeeper_forests import limits as forest_limits

PUBLIC_NAME = r"^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
"""Pattern of a name that is a segment of a URL path, so not only dots: clients remove
``.`` and ``..`` from paths.
"""

PublicName = Annotated[
    str, Field(max_length=limits.MAX_DATASET_NAME_CHARS, pattern=PUBLIC_NAME)
]


NewName = Annotated[PublicName, AfterValidator(no_id), AfterValidator(no_secret)]


ColumnName = Annotated[str, Field(max_length=forest_limits.MAX_NAME_CHARS)]


NewColumnName = Annotated[ColumnName, AfterValidator(no_secret)]


Category = Annotated[str, Field(max_length=forest_limits.MAX_CATEGORY_CHARS)]


Categories = Annotated[
    list[Category],
    Field(max_length=forest_limits.MAX_CATEGORIES, fail_fast=True),
    AfterValidator(no_secrets),
]


class FeatureIn(Request):
    """A feature: bounds for numbers, the first and the last day for dates (such as
    2024-02-29), categories for the other type.
    """

    name: NewColumnName
    type: Literal["numeric", "integer", "date", "categorical"]
    lower: NumberOrDate | None = None
    upper: NumberOrDate | None = None
    categories: Categories | None = None
    ordered: bool = False
    missing: bool = False
    bounds: Literal["documented", "natural", "rounded-from-data"] | None = None

    @field_validator("lower", "upper")
    @classmethod
    def _of_a_number(
        cls, bound: float | str | None, info: ValidationInfo
    ) -> float | str | None:
        if isinstance(bound, str) and info.data.get("type") != "date":
            raise problem("not-a-number")
        return bound


class LabelIn(Request):
    """The column to predict with its classes; or, where it has numbers, with the
    ascending points that cut them into classes (a number on a point is in the class
    above it), or with its type ``number`` and bounds, to predict the number itself.
    """

    name: NewColumnName
    type: Literal["number", "integer"] | None = None
    lower: FiniteNumber | None = None
    upper: FiniteNumber | None = None
    classes: (
        Annotated[
            list[Category],
            Field(max_length=forest_limits.MAX_CLASSES, fail_fast=True),
            AfterValidator(no_secrets),
        ]
        | None
    ) = None
    cuts: (
        Annotated[list[FiniteNumber], Field(max_length=forest_limits.MAX_CLASSES)]
        | None
    ) = None


def _label_or_labels(label: LabelIn | None, info: ValidationInfo) -> LabelIn | None:
    # labels that are wrong have no value here, and a problem of their own
    if "labels" in info.data:
        labels = info.data["labels"]
        if label is None and labels is None:
            raise problem("required")
        if label is not None and labels is not None:
            raise problem("one-of-label-labels")
    return label


class SchemaIn(Request):
    """The public columns of a dataset: features, and the label or several labels, of
    which each job names the one that it reads.

    ``missing_values`` are texts that stand for an empty cell in the owner's files.
    """

    features: Annotated[
        list[FeatureIn],
        Field(max_length=forest_limits.MAX_FEATURES),
        up_to_a_hundred(FeatureIn, most=forest_limits.MAX_FEATURES),
    ]
    labels: (
        Annotated[
            list[LabelIn], Field(min_length=1, max_length=forest_limits.MAX_LABELS)
        ]
        | None
    ) = None
    label: Annotated[
        LabelIn | None,
        AfterValidator(_label_or_labels),
        Field(validate_default=True),
    ] = None
    missing_values: (
        Annotated[
            list[Category],
            Field(max_length=forest_limits.MAX_MISSING_VALUES, fail_fast=True),
            AfterValidator(no_secrets),
        ]
        | None
    ) = None


class BudgetIn(Request):
    """The lifetime cap. ``pure`` takes ε; ``zcdp`` takes ε or ρ, ``gdp`` ε or μ, both
    with the δ at which amounts are converted.

    ``delta_set_aside`` is a part of δ, on ``zcdp`` only: for external mechanisms that
    are (ε, δ).
    """

    accountant: Literal["pure", "zcdp", "gdp"]
    rho: PositiveAmount | None = None
    mu: PositiveAmount | None = None
    epsilon: CapInEpsilon = None
    delta: PositiveAmount | None = None
    delta_set_aside: PositiveAmount | None = None

    @model_validator(mode="after")
    def _delta_where_it_belongs(self) -> "BudgetIn":
        if (self.accountant == "pure") != (self.delta is None):
            raise problem(
                "delta-not-for-pure" if self.accountant == "pure" else "delta-required"
            )
        if self.delta is not None and self.delta >= Fraction(1):
            raise problem("delta-not-below-one", form=amounts.BELOW_ONE)
        if self.delta_set_aside is not None and self.accountant != "zcdp":
            raise problem("set-aside-for-zcdp-only")
        if (
            self.delta is not None
            and self.delta_set_aside is not None
            and self.delta_set_aside >= self.delta
        ):
            raise problem("set-aside-not-below-delta", form="less than delta")
        return self

    @property
    def conversion_delta(self) -> Fraction | None:
        """Return the δ at which the cap is converted: the account's δ without the part
        set aside.
        """
        if self.delta is None:
            return None
        return self.delta - (self.delta_set_aside or 0)


class PrivacyUnitIn(Request):
    """What "one" is: a row, or a unit column with at most ``max_rows`` rows per unit.

    ``form`` says what the column holds: ``text`` (the default) or ``integer``. ``text``
    is compared in Unicode's form NFKC, without outer white space and invisible signs;
    ``integer`` allows one spelling of each integer.
    """

    column: NewColumnName | None = None
    form: Literal["text", "integer"] | None = None
    max_rows: Annotated[int, Field(ge=1, le=limits.MAX_ROWS_PER_UNIT)] = 1


class CellSizeIn(Request):
    """Number of rows of a cell as the owner publishes it, stored with two significant
    digits.
    """

    cell: Category
    rows: Annotated[int, Field(ge=0, le=limits.MAX_PUBLIC_SIZE)]


class PartitionIn(Request):
    """A rule that assigns every row to exactly one cell.

    ``hash``: a keyed hash of the row's id into ``cells`` cells. ``column``: the value
    of a categorical feature, or of a column of its own with its ``categories``; values
    outside go to OTHER, empty ones to MISSING. ``epoch``: the upload that brought the
    row; ``how`` says how batches are cut.
    """

    name: Annotated[PublicName, AfterValidator(no_secret)]
    kind: Literal["hash", "column", "epoch"]
    cells: Annotated[int, Field(ge=1, le=forest_limits.MAX_HASH_CELLS)] | None = None
    column: NewColumnName | None = None
    categories: Categories | None = None
    how: Annotated[Category, AfterValidator(no_secret)] | None = None
    sizes: (
        Annotated[
            list[CellSizeIn],
            Field(max_length=forest_limits.MAX_CATEGORIES + 2, fail_fast=True),
        ]
        | None
    ) = None


class DatasetIn(Request):
    """A declaration: everything about a dataset that is public and fixed before its
    first row. Until then, the columns can change.

    A declaration of the name of an erased dataset continues its account. With
    ``other_people``, a reason that the control chain keeps, it opens a new account: an
    admin, or an owner who did not declare the erased dataset, states that the rows are
    about other people.
    """

    name: NewName
    schema_: Annotated[SchemaIn, Field(alias="schema")]
    budget: BudgetIn
    privacy_unit: PrivacyUnitIn = PrivacyUnitIn()
    protects: Literal["row", "label"] = "row"
    partitions: Annotated[
        list[PartitionIn],
        Field(max_length=forest_limits.MAX_PARTITIONS, default_factory=list),
        up_to_a_hundred(PartitionIn, most=forest_limits.MAX_PARTITIONS),
    ]
    public_size: Annotated[int, Field(ge=1, le=limits.MAX_PUBLIC_SIZE)] | None = None
    # of the version before; a declaration that has it is refused
    visibility: SkipJsonSchema[Any] = None
    population: PublicName | None = None
    other_people: PublicSentence | None = None


class DatasetChangeIn(Request):
    """The columns of a dataset, all of them, in place of those that were declared."""

    schema_: Annotated[SchemaIn, Field(alias="schema")]


class AccountOut(Answer):
    """The balance of the tightest joint cell, in the account's unit: ``cap = charged +
    reserved + remaining``.

    ``available`` is the most that one job of the key may reserve: ``remaining``, or
    less where a population's cap or the rules leave less; ``limited_by`` names the
    limit that decides.
    """

    accountant: str
    unit: str
    cap: DecimalText
    charged: DecimalText
    reserved: DecimalText
    remaining: DecimalText
    available: DecimalText
    limited_by: LimitedBy


class PaceOut(Answer):
    """What the tightest cell was charged in the last ``days``, and the day on which what
    is left ends at this pace; null if that is more than ten years ahead.
    """

    days: int
    charged: DecimalText
    ends_on: str | None


class DeclarationOut(Answer):
    """What a declaration would become: its account and guarantee, its rounded sizes,
    and what a reader should know.

    ``continues`` is that of :class:`DatasetOut`.
    """

    name: str
    continues: str | None
    account: AccountOut
    guarantee: JsonObject
    partitions: list[JsonObject]
    public_size: int | None
    population: str | None
    warnings: list[str]


DatasetState = Literal["active", "nothing-fits", "no-rows", "frozen", "erased"]


class DatasetOut(Answer):
    """Public facts of a dataset, its balance, and what the key may spend there.

    ``role`` is the role that the key was granted, if any, and ``largest_that_fits`` the
    largest ε of one job of the key on the whole dataset: the minimum over cap,
    population and rules. ``state`` is ``frozen`` where the freeze alone leaves nothing,
    and ``no-rows`` until the first upload.

    ``continues`` is the erased dataset of the same name whose spent budget counts in
    this account, if there is one. ``pace`` counts at most 30 days, and those since the
    first charge, or the oldest of 1,000 entries, only; it is null until they are 7,
    without a charge in them, and where a population limits what is left.
    """

    id: str
    name: str
    role: str | None
    state: DatasetState
    continues: str | None
    account: AccountOut
    largest_that_fits: DecimalText
    pace: PaceOut | None
    schema_: Annotated[JsonObject, Field(alias="schema", serialization_alias="schema")]
    adjacency: str
    privacy_unit: JsonObject
    protects: str
    partitions: list[JsonObject]
    public_size: int | None
    population: str | None
    warnings: list[str]
    epochs: list[EpochOut]
    created_at: str
    deleted_at: str | None


class DatasetList(Answer):
    datasets: list[DatasetOut]
    next: str | None
