"""Private forests with scikit-learn's manners, for use without a service. Needs
scikit-learn (extra ``estimators``).

A lifetime budget needs the service: here a limit ends with the process
(:mod:`grovekeeper_forests.account`).
"""

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from numbers import Integral
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from grovekeeper_forests.account import InProcessAccount, receipt_of, terms_of
from grovekeeper_forests.array_types import Float64Array, Int32Array, Int64Array
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.sanitiser import (
    Cells,
    JsonCells,
    NumberCells,
    SanitisedColumns,
    SanitisedRows,
    codes_of_numbers,
    sanitise_prediction_columns,
)
from grovekeeper_forests.data.schema import (
    INTEGER,
    NUMBER,
    Feature,
    FeatureType,
    Label,
    Schema,
    is_number,
)
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.releases.forest import draw, read
from grovekeeper_forests.releases.forest.importances import ForestUse, use_of
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan

_ID_BYTES = 16
_TYPES = frozenset(get_args(FeatureType))


class _PrivateTrees(BaseEstimator, ABC):  # type: ignore[misc]
    """What all estimators share; see :class:`RandomPrivateForest`."""

    _algorithm: str
    epsilon: object
    delta: object
    schema: Mapping[str, Any] | None
    parameters: Mapping[str, Any] | None
    public_size: Any
    account: InProcessAccount | None

    def fit(self, X: Any, y: Any) -> Self:
        """Trains a forest on rows of the caller, and charges for it before noise is
        drawn.

        The rows are checked and sanitised first, as the service does at an upload:
        whoever calls holds the rows, and a mistake in them costs nothing. Each cell and
        each label is read by itself: numbers out of their bounds are clamped,
        undeclared categories are OTHER, and rows of undeclared classes, or without a
        number to predict, are left out.

        Args:
            X: PRIVATE; ``(n_rows, n_features)``: an array with the columns in the order
                of the schema, or a data frame with the names of the schema.
            y: PRIVATE; ``(n_rows,)`` classes of the schema, by their text: 1 and
                ``"1"`` are one class; of a regressor, numbers.

        Raises:
            ValueError: no schema was declared, or ``X`` and ``y`` are not as declared.
                No message has a cell.
            ParameterInvalid: ε, δ or a parameter breaks a rule.
            AccountantMismatch: the algorithm needs a δ.
            LimitExceeded: the account has less left than ε.
        """
        schema = self._declared()
        planned = self._plan(schema)
        rows = self._rows(X, y, schema)
        if self.account is None:
            receipt = receipt_of(planned)
        else:
            receipt = self.account.charge(planned)
        forest = draw.grow(
            planned,
            schema,
            rows,
            SystemRandomness(),
            on_tree_done=lambda: None,
            unlabelled=None,
        )
        self.schema_ = schema
        self.forest_, self.receipt_ = forest, receipt
        self._predictor = Predictor(forest, schema)
        self.warnings_ = (*schema.warnings, *planned.warnings)
        return self

    def quote(self) -> Plan:
        """The plan and its event at the declared schema. Reads no row and costs
        nothing.

        Raises:
            ValueError: no schema was declared.
            ParameterInvalid: ε, δ or a parameter breaks a rule.
        """
        return self._plan(self._declared())

    @property
    def feature_importances_(self) -> Float64Array:
        """Importances of the features in the order of the columns of ``X``, which sum
        to 1, or are all 0 where no split helps; cost no budget. Computed from released
        noisy counts (:func:`grovekeeper_forests.releases.forest.importances.use_of`),
        so small ones may be noise.

        Raises:
            AttributeError: the leaves of the algorithm (``nbrt``) release no counts.
        """
        check_is_fitted(self)
        importances = self._use.importances
        if importances is None:
            raise AttributeError(
                f"leaves of {self._algorithm} release no class counts, from which importances are computed; "
                "split_counts_ has the splits by feature"
            )
        return self._by_column(importances)

    @property
    def split_counts_(self) -> Int64Array:
        """The number of splits that look at each feature, in the order of the columns
        of ``X``; costs no budget.
        """
        check_is_fitted(self)
        return self._by_column(self._use.n_splits)

    def to_bytes(self) -> bytes:
        """The forest as an artifact, which
        :func:`grovekeeper_forests.releases.forest.read.loads` reads.
        """
        check_is_fitted(self)
        return read.dumps(
            self.forest_,
            {"schema": self.schema_.to_json()},
        )

    def to_onnx(self) -> bytes:
        """The forest as an ONNX file, which has the digest of the artifact. Needs the
        extra ``onnx``.
        """
        from grovekeeper_forests.releases.forest.onnx.model import dumps

        artifact = self.to_bytes()
        return dumps(
            read.loads(artifact),
            digest=hashlib.sha256(artifact).hexdigest(),
        )

    @property
    def _use(self) -> ForestUse:
        return use_of(self.forest_, self.schema_)

    def _by_column(self, values: Sequence[Any]) -> NDArray[Any]:
        """Values by feature of the schema in the order of the columns of ``X``."""
        declared = self.schema_.feature_names
        by_name = dict(zip(declared, values, strict=True))
        names = getattr(self, "feature_names_in_", declared)
        return np.array([by_name[name] for name in names])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "forest_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        # fresh noise in every fit; no caller chooses a seed
        tags.non_deterministic = True
        return tags

    def _declared(self) -> Schema:
        """The schema of the caller.

        Raises:
            ValueError: none was declared, or no schema that this estimator learns from.
        """
        if self.schema is None:
            raise ValueError(
                "fit needs a public schema: bounds, categories and classes that are taken from rows tell about them"
            )
        try:
            label = self.schema["label"]
            types = {feature["type"] for feature in self.schema["features"]}
            label = self._label(label)
        except (KeyError, TypeError):
            raise ValueError(
                f"a schema has features with a name and a type, and a label with {self._of_label}"
            ) from None
        if not types <= _TYPES:
            raise ValueError(
                f"the type of a feature is one of {', '.join(sorted(_TYPES))}"
            )
        return Schema.from_json({**self.schema, "label": label})

    _of_label: str
    """What a label has beside its name, in words."""

    @abstractmethod
    def _label(
        self,
        label: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """A declared label as a schema has it.

        Raises:
            KeyError: a part is missing.
            TypeError: a part is of another type.
            ValueError: a part breaks a rule.
        """

    def _classes(self, schema: Schema) -> NDArray[Any]:
        """The classes as they were declared, by code; in an artifact they are texts."""
        assert self.schema is not None
        declared = self.schema["label"].get("classes", schema.label.classes)
        return np.array(list(declared))

    def _plan(self, schema: Schema) -> Plan:
        size, terms = self.public_size, terms_of(self.epsilon, self.delta)
        if size is not None and (not isinstance(size, Integral) or size < 1):
            raise ParameterInvalid.named("public_size", "not-positive")
        return plan(
            PlanRequest(
                self._algorithm,
                self.parameters or {},
                terms,
                None if size is None else int(size),
            ),
            schema,
        )

    def _rows(self, X: Any, y: Any, schema: Schema) -> SanitisedRows:
        """PRIVATE rows with a known label, each with a random id."""
        columns = self._columns(X, schema, reset=True)
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None")
        labels = _column(y)
        if len(labels) != columns.n_rows:
            raise ValueError("X and y need the same number of rows")
        known = _codes_of(labels, schema.label, self._classes(schema))
        is_known = known >= 0
        kept = SanitisedColumns(
            tuple(column[is_known] for column in columns.columns), int(is_known.sum())
        )
        ids = np.frombuffer(
            os.urandom(_ID_BYTES * kept.n_rows), dtype=np.uint8
        ).reshape(-1, _ID_BYTES)
        return SanitisedRows(kept, known[is_known], ids)

    def _columns(
        self,
        X: Any,
        schema: Schema,
        *,
        reset: bool,
    ) -> SanitisedColumns:
        """Rows by the columns of a schema, of which ``X`` needs all and no other."""
        cells = check_array(
            _by_cell(X), dtype=None, ensure_all_finite=False, estimator=self
        )
        names = schema.feature_names
        given = list(map(str, getattr(X, "columns", names)))
        validate_data(
            self,
            X if hasattr(X, "columns") else cells,
            reset=reset,
            skip_check_array=True,
        )
        if sorted(given) != sorted(names) or cells.shape[1] != len(names):
            raise ValueError(
                f"X needs the columns of the schema and no other: {', '.join(names)}"
            )
        place = {name: index for index, name in enumerate(given)}
        columns = {
            feature.name: _cells(feature, cells[:, place[feature.name]])
            for feature in schema.features
        }
        try:
            return sanitise_prediction_columns(schema, columns)
        except ParameterInvalid as invalid:  # whose numbers of rows are exact
            problems = sorted(
                {f"{problem.column}: {problem.problem}" for problem in invalid.problems}
            )
            raise ValueError(
                f"cells are not as declared ({', '.join(problems)})"
            ) from None


class _Random(_PrivateTrees):
    """The parameters of the random forest and of its regressor."""

    _algorithm = "rpf"

    def __init__(
        self,
        epsilon: object = 1,
        *,
        schema: Mapping[str, Any] | None = None,
        delta: object = None,
        parameters: Mapping[str, Any] | None = None,
        public_size: int | None = None,
        account: InProcessAccount | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.schema = schema
        self.delta = delta
        self.parameters = parameters
        self.public_size = public_size
        self.account = account


class _Boosted(_PrivateTrees):
    """The parameters of the boosted trees and of their regressor."""

    _algorithm = "nbrt"

    def __init__(
        self,
        epsilon: object = 1,
        delta: object = 1e-6,
        *,
        schema: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        public_size: int | None = None,
        account: InProcessAccount | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.parameters = parameters
        self.public_size = public_size
        self.account = account


class _PrivateForest(ClassifierMixin, _PrivateTrees):  # type: ignore[misc]
    """What both classifiers share."""

    _of_label = "classes"

    def fit(self, X: Any, y: Any) -> Self:
        super().fit(X, y)
        self._by_code = self._classes(self.schema_)
        classes = self._by_code
        # scorers expect classes, and columns of probabilities, in the order of y; it has
        # numbers where the label is cut, and the classes are declared in their order
        is_cut = self.schema_.label.cuts
        self._order = np.arange(len(classes)) if is_cut else np.argsort(classes)
        self.classes_ = classes[self._order]
        return self

    fit.__doc__ = _PrivateTrees.fit.__doc__

    def predict(self, X: Any) -> Any:
        """The most probable class of each row, as an array ``(n_rows,)``; costs no
        budget.
        """
        codes = self._predicted(X)
        return self._by_code[codes]

    def predict_proba(self, X: Any) -> Float64Array:
        """Probabilities of rows by class, as an array ``(n_rows, n_classes)``; costs no
        budget.
        """
        shares = self._probabilities(X)
        return shares[:, self._order]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows whose class is right; costs no budget. Labels are read as
        ``fit`` reads them, and a row without a declared class is never right. Where the
        label is cut, use ``score``, the default of searches: scorers by name compare
        names of classes with your numbers.
        """
        predicted = self._predicted(X)
        codes = _codes_of(_column(y), self.schema_.label, self._by_code)
        is_right = predicted == codes
        return float(np.average(is_right, weights=sample_weight))

    def _probabilities(self, X: Any) -> Float64Array:
        """Probabilities of rows by declared class."""
        check_is_fitted(self)
        columns = self._columns(X, self.schema_, reset=False)
        return self._predictor.probabilities(columns)

    def _predicted(self, X: Any) -> Int32Array:
        """The code of the most probable class of each row."""
        probabilities = self._probabilities(X)
        return self._predictor.labels(probabilities)

    def _label(
        self,
        label: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        if label.get("cuts"):
            return label
        classes = list(label["classes"])
        if len({type(each) for each in classes}) > 1:
            raise ValueError("classes are all texts, all integers or all truth values")
        return {**label, "classes": list(map(_text, classes))}


class RandomPrivateForest(_PrivateForest, _Random):
    """A differentially private random forest: the algorithm ``rpf``
    (docs/proofs/rpf.md).

    Every ``fit`` is (ε, 0)-differentially private for one row more or less, or (ε, δ)
    with a δ. Fits on the same rows add up: pass an ``account`` to limit their sum. The
    sum is that of a row which no other row moves in or out of a fit; folds by position,
    as scikit-learn makes them, do not have this property. Scores on private rows, and
    what is chosen by them, are not covered by any guarantee.

    Args:
        epsilon: of one fit, above zero. Text and ``Decimal`` are exact.
        schema: public: ``{"features": [{"name": …, "type": "numeric", "lower": …,
            "upper": …}, …], "label": {"name": …, "classes": […]}}``, as the service
            declares a dataset. Classes are all texts, all integers or all truth values;
            in their place, ``"cuts"`` are the points that cut the numbers of ``y``.
        delta: of one fit; ``None``: none is needed.
        parameters: of the algorithm, by name; default the public rules.
        public_size: the public order of magnitude of the number of rows, by which the
            rules choose. Never a count.
        account: the limit that fits on the same rows share; ``None``: each fit is
            charged for itself.

    Attributes:
        receipt_: what the last fit cost, and for what.
        warnings_: sentences about the schema and the plan, all public.
        forest_: the released forest, with its plan and event.
        feature_importances_: importances of the features, from released counts.
        split_counts_: splits that look at each feature.
        classes_: classes of the schema, sorted; those of cuts in the order of the
            numbers.
        n_features_in_: number of features.
        feature_names_in_: names of the features, where ``X`` has names.
    """


class BoostedPrivateTrees(_PrivateForest, _Boosted):
    """Differentially private boosted trees: the algorithm ``nbrt``
    (docs/proofs/nbrt.md).

    Every ``fit`` is (ε, δ)-differentially private for one row more or less, and is
    counted in μ² (Gaussian differential privacy), in which fits on the same rows add
    up.

    Args and attributes are those of :class:`RandomPrivateForest`; a δ is always needed,
    and there is no ``feature_importances_``: leaves release scores and no counts, and
    splits are drawn without rows.
    """


class _PrivateRegressor(RegressorMixin, _PrivateTrees):  # type: ignore[misc]
    """What both regressors share."""

    _of_label = "the type number, lower and upper"

    def predict(self, X: Any) -> Float64Array:
        """The number of each row, as an array ``(n_rows,)``; costs no budget."""
        check_is_fitted(self)
        return self._predictor.numbers(self._columns(X, self.schema_, reset=False))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² over the rows whose label is a finite number; costs no budget."""
        numbers = _numbers_of(_column(y))
        is_scored = np.isfinite(numbers)
        weights = (
            None if sample_weight is None else np.asarray(sample_weight)[is_scored]
        )
        predicted = self.predict(X)[is_scored]
        return float(r2_score(numbers[is_scored], predicted, sample_weight=weights))

    def _label(
        self,
        label: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        lower = float(label["lower"])
        upper = float(label["upper"])
        width = upper - lower
        if label["type"] not in (NUMBER, INTEGER):
            raise ValueError(f"the type of a label is {NUMBER} or {INTEGER}")
        if not 0 < width < math.inf:
            raise ValueError("the bounds of a label are finite, lower below upper")
        return label


class RandomPrivateRegressor(_PrivateRegressor, _Random):
    """A differentially private random forest that predicts a number: the algorithm
    ``rpf`` (docs/proofs/rpf.md).

    Every ``fit`` is (ε, 0)-differentially private for one row more or less, or (ε, δ)
    with a δ, as that of :class:`RandomPrivateForest` is. Rows and schema are those of
    :class:`BoostedPrivateRegressor`, which is more accurate where a δ is allowed.

    Args and attributes are those of :class:`RandomPrivateForest`, without classes.
    """


class BoostedPrivateRegressor(_PrivateRegressor, _Boosted):
    """Differentially private boosted trees that predict a number: the algorithm
    ``nbrt`` (docs/proofs/nbrt.md).

    Every ``fit`` is (ε, δ)-differentially private for one row more or less, as that of
    :class:`BoostedPrivateTrees` is. Rows without a number are left out, and numbers
    beyond the bounds of the label are clamped.

    Args and attributes are those of :class:`BoostedPrivateTrees`, without classes; the
    label of the schema is ``{"name": …, "type": "number", "lower": …, "upper": …}``.
    """


def _column(y: Any) -> NDArray[Any]:
    """Labels as an array ``(n_rows,)`` in which each is what it is in ``y``."""
    # column_or_1d makes numbers of pandas' truth values
    is_numpy = isinstance(getattr(y, "dtype", None), np.dtype)
    labels: NDArray[Any] = column_or_1d(
        y if is_numpy else np.asarray(y, dtype=object), warn=True
    )
    return labels


def _codes_of(labels: NDArray[Any], label: Label, classes: NDArray[Any]) -> Int32Array:
    """The code of each PRIVATE label; −1 for one of no class.

    Args:
        labels: of the caller's rows.
        label: of the schema.
        classes: as they were declared, by code.

    Raises:
        ValueError: all labels are missing, or of another kind than the classes.
    """
    if label.cuts or label.bounds:
        return codes_of_numbers(label, _numbers_of(labels))
    if len(labels) and all(map(_is_missing, labels.tolist())):
        raise ValueError("y has no label")
    kinds = {labels.dtype.kind}
    if labels.dtype == object:  # a list, or a column of pandas
        given = {type(each) for each in labels.tolist() if not _is_missing(each)}
        kinds = {np.dtype(each).kind for each in given}
    is_read = all(map(is_number, map(str, classes.tolist())))
    if kinds == {"b"}:
        is_read = classes.dtype.kind == "b"
    if kinds and kinds.issubset("iufb") and not is_read:
        raise ValueError(
            "y holds numbers or truth values and the classes of the schema are others: was y encoded?"
        )
    codes = {text: code for code, text in enumerate(label.classes)}
    # the row of a class that is not declared is left out
    known = [codes.get(_text(each), -1) for each in labels.tolist()]
    return np.array(known, dtype=np.int32)


def _numbers_of(labels: NDArray[Any]) -> Float64Array:
    """Labels as numbers; NaN where one is missing.

    Raises:
        ValueError: a label is no number; the message does not quote it.
    """
    plain = [math.nan if _is_missing(label) else label for label in labels.tolist()]
    try:
        return np.array(plain, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("y has labels that are no numbers") from None


def _by_cell(X: Any) -> Any:
    """Rows as an array in which each cell is what it is in ``X``.

    NumPy would choose one type for all cells together, so that one row would change how
    every other row is read.
    """
    if hasattr(X, "columns"):
        cells = np.empty(X.shape, dtype=object)
        for index, name in enumerate(X.columns):
            cells[:, index] = np.asarray(X[name], dtype=object)
        return cells
    return X if hasattr(X, "dtype") else np.asarray(X, dtype=object)


def _cells(feature: Feature, values: NDArray[Any]) -> Cells:
    """The cells of one column as the sanitiser reads them."""
    if feature.is_categorical:
        return JsonCells(
            [None if _is_missing(value) else _text(value) for value in values.tolist()]
        )
    if feature.is_date:
        return JsonCells(list(map(_day, values.tolist())))
    if values.dtype.kind in "iuf":
        return NumberCells(values.astype(np.float64))
    return JsonCells(list(map(_number, values.tolist())))


def _number(value: Any) -> Any:
    """A cell of a column of numbers as a value of JSON; what is no number stays, and is
    refused.
    """
    value = value.item() if isinstance(value, np.generic) else value
    return None if _is_missing(value) else value


def _day(value: Any) -> Any:
    """A date as text; what is no date stays, and is refused."""
    if _is_missing(value):
        return None
    if not isinstance(value, date):
        return value
    return str(value).removesuffix(" 00:00:00")


def _text(value: Any) -> str:
    """The text of a category or a class: 1, 1.0 and ``"1"`` are one."""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def _is_missing(value: Any) -> bool:
    """Whether a cell is empty: ``None``, NaN, and the marks that pandas has for them."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")
