"""Offers private forests as estimators of scikit-learn: ``PrivateForestClassifier`` and
``PrivateForestRegressor``.
"""

import inspect
import secrets
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, mean_absolute_error
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from grovekeeper_client import spending, uploads
from grovekeeper_client.amounts import Amount, to_text
from grovekeeper_client.datasets import Dataset
from grovekeeper_client.errors import ApiProblem
from grovekeeper_client.models import Model
from grovekeeper_client.rows import is_missing, plain
from grovekeeper_client.service import Grovekeeper
from grovekeeper_common.declared_columns import Columns, Scalar, write
from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.json_types import JsonMapping, JsonObject


class LeakWarning(UserWarning):
    """A step of a pipeline was fitted on private rows; the numbers in it are not
    covered by any guarantee.
    """


Bounds: TypeAlias = tuple[Any, Any] | Mapping[str, tuple[float, float]]


_N_SIDES = 2


def _pairs(bounds: Bounds, names: list[str]) -> list[tuple[float, float]]:
    """The bounds of each column.

    Raises:
        ValueError: the names or the numbers of bounds are not those of the columns.
    """
    if isinstance(bounds, Mapping):
        if set(bounds) != set(names):
            raise ValueError(
                f"bounds by name need every column and no other: {', '.join(names)}"
            )
        return [
            (float(low), float(high)) for low, high in map(bounds.__getitem__, names)
        ]
    given: Any = bounds
    # a list may be meant as one pair for each column
    if not (isinstance(given, tuple) and len(given) == _N_SIDES):
        raise ValueError(
            "bounds are a tuple (low, high), or a pair by name of column: {'age': (0, 120), …}"
        )
    low, high = bounds
    for side in (low, high):
        if np.ndim(side) and np.shape(side) != (len(names),):
            raise ValueError(
                f"each side of bounds is one number, or one for each of the {len(names)} columns"
            )
    both = [
        np.broadcast_to(np.asarray(side, dtype=float), len(names)).tolist()
        for side in (low, high)
    ]
    pairs = list(zip(*both, strict=True))
    if any(not lower <= upper for lower, upper in pairs):
        raise ValueError(
            "a low bound of a column is above its high bound, or is no number"
        )
    return pairs


def _target_pair(bounds: Any) -> tuple[float, float]:
    """The bounds of the numbers to predict.

    Raises:
        ValueError: they are not a low bound below a high one.
    """
    if isinstance(bounds, tuple) and len(bounds) == _N_SIDES:
        low, high = map(float, bounds)
        if low < high:
            return low, high
    raise ValueError(
        "an upload needs public target_bounds, (low, high) with low below high, or a public schema; "
        "bounds taken from y would leak"
    )


_TRUTHS = {"false": "0", "true": "1"}
_OF_CLASSES = "the label {!r} has classes: use PrivateForestClassifier"
_OF_NUMBERS = "the label {!r} is a number: use PrivateForestRegressor"

_NUMBERS_TO_SCORE = "finite numbers, none of them missing"
_CLASSES_TO_SCORE = (
    "whole numbers that all classes of the schema are, truth values or texts, all of one type and none missing; "
    "y.astype(str) makes texts of numbers"
)


class _PrivateForest(BaseEstimator, ABC):  # type: ignore[misc]
    """Trains forests on rows of the service or on uploads, counts what fits spend, and
    asks for predictions. The arguments are those of :class:`PrivateForestClassifier`.
    """

    _predicts_numbers: bool

    def __init__(  # noqa: PLR0913 - scikit-learn's parameters are the arguments of the constructor
        self,
        dataset: str,
        epsilon: Amount,
        *,
        delta: Amount | None = None,
        algorithm: str = "auto",
        label: str | None = None,
        parameters: JsonMapping | None = None,
        scope: JsonMapping | None = None,
        purpose: str | None = None,
        max_epsilon: Amount | None = None,
        upload: bool = False,
        bounds: Bounds | None = None,
        schema: JsonMapping | None = None,
        service: Grovekeeper | None = None,
    ) -> None:
        self.dataset = dataset
        self.epsilon = epsilon
        self.delta = delta
        self.algorithm = algorithm
        self.label = label
        self.parameters = parameters
        self.scope = scope
        self.purpose = purpose
        self.max_epsilon = max_epsilon
        self.upload = upload
        self.bounds = bounds
        self.schema = schema
        self.service = service

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Trains a forest and waits for it.

        Args:
            X: PRIVATE rows to upload, with ``upload=True``; otherwise ``None``.
            y: PRIVATE labels of ``X``.

        Raises:
            ValueError: ``X`` was passed without ``upload=True``, ``X`` and ``y``
                break the schema, scikit-learn cannot score ``y``, or the label is of
                another kind than the estimator's.
            SpendingLimit: this estimator and its clones would spend more than
                ``max_epsilon``.
            Refused: the budget of the service does not cover the price.
            JobUnfinished: the job waits for an approval. It goes on and counts as
                spent; its ``job`` has the id.
        """
        if X is None and not self.upload:
            dataset = self._service().dataset(self.dataset)
            self._check_label(dataset.schema)
            self.model_ = self._train(dataset, is_counted=True)
            self._describe()
            return self
        if not self.upload:
            raise ValueError(
                "fit trains on rows that the service holds; to upload X and y as a dataset, pass upload=True"
            )
        self._warn_of_leaks()
        if self.schema is None:
            schema, rows = self._numbers(X, y)
        else:
            schema = dict(self.schema)
            self._check_label(schema)
            rows = uploads.by_schema(X, y, self.schema)
            self._check_scores(schema["label"], y)
        self.model_ = self._train(self._uploaded(schema, rows), is_counted=False)
        if self.schema is not None:
            self._describe(y)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value
        # the mixins, which come later in the bases, say that y is always required
        tags.target_tags.required = self.upload
        # fresh noise in every fit; no caller chooses a seed
        tags.non_deterministic = True
        return tags

    def __sklearn_clone__(self) -> Self:
        clone: Self = super().__sklearn_clone__()
        spending.share(self, clone)
        return clone

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_meter_name": spending.name_of_meter(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        name = state.pop("_meter_name", None)
        super().__setstate__(state)
        spending.restore(self, name)

    def _service(self) -> Grovekeeper:
        return self.service or Grovekeeper()

    def _limit(self) -> Decimal:
        if self.max_epsilon is None:
            return _decimal("epsilon", self.epsilon)
        return _decimal("max_epsilon", self.max_epsilon)

    def _train(self, dataset: Dataset, *, is_counted: bool) -> Model:
        epsilon = _decimal("epsilon", self.epsilon)
        if is_counted:
            spending.meter_of(self).add(epsilon, limit=self._limit())
        options = {
            "delta": self.delta,
            "label": self.label,
            "parameters": self.parameters,
            "scope": self.scope,
        }
        try:
            job = dataset.train(
                self.algorithm, epsilon=epsilon, purpose=self.purpose, **_given(options)
            )
        except ApiProblem as problem:
            if is_counted and problem.status < 500:  # refused, so nothing was reserved
                spending.meter_of(self).give_back(epsilon)
            raise
        return job.wait(progress=False)

    def _describe(self, y: Any = None) -> None:
        """Sets the attributes that scikit-learn reads from the schema of the model.

        Args:
            y: PRIVATE labels, of which the type alone is looked at: scores compare
                predictions with them, after the fit was charged.
        """
        self.n_features_in_ = len(self.model_.features)
        self.feature_names_in_ = np.array(self.model_.features, dtype=object)

    def _numbers(self, X: Any, y: Any) -> tuple[JsonObject, Columns]:
        """Schema and columns of numbers between public bounds; sets the attributes that
        scikit-learn reads.
        """
        if self.bounds is None:
            raise ValueError(
                "an upload needs public bounds or a public schema; bounds taken from X would leak"
            )
        others = _columns_of_no_numbers(X)
        if others:
            raise ValueError(
                f"bounds are for columns of numbers, and these have other cells: {', '.join(others)}; a public schema "
                "(schema=…) declares texts and dates"
            )
        X, y = validate_data(
            self,
            X,
            y,
            dtype="numeric",
            ensure_all_finite="allow-nan",
            y_numeric=self._predicts_numbers,
        )
        label, cells = self._label(y)
        numbered = map("x{}".format, range(X.shape[1]))
        names = list(map(str, getattr(self, "feature_names_in_", numbered)))
        return uploads.of_numbers(
            X, cells, names=names, bounds=_pairs(self.bounds, names), label=label
        )

    @abstractmethod
    def _label(self, y: Any) -> tuple[JsonObject, Sequence[Scalar]]:
        """The label of an upload by public facts, without its name, and its cells.

        Args:
            y: PRIVATE labels ``(n_rows,)``.
        """

    def _check_scores(self, label: JsonMapping, y: Any) -> None:
        """Scores made-up predictions: what scikit-learn cannot compare with predictions
        would fail after the fit was charged.

        Args:
            label: of the public schema.
            y: PRIVATE labels, which no message quotes.

        Raises:
            ValueError: scores of ``y`` would fail.
        """
        classes = None if label.get("cuts") else label.get("classes")
        try:
            with np.errstate(invalid="ignore"):
                if classes is None:
                    mean_absolute_error(y, np.zeros(len(y)))
                else:
                    accuracy_score(y, np.resize(_typed(classes, y), len(y)))
        except (TypeError, ValueError):
            needed = _NUMBERS_TO_SCORE if classes is None else _CLASSES_TO_SCORE
            raise ValueError(
                f"scikit-learn cannot score predictions of this y, which needs {needed}"
            ) from None

    def _check_label(self, schema: JsonMapping) -> None:
        """Checks that the label to predict is of the estimator's kind.

        Raises:
            ValueError: it is of the other kind.
        """
        labels = [
            label for label in labels_of(schema) if self.label in (None, label["name"])
        ]
        if not labels:
            # the service answers with the labels of the dataset
            return
        is_number = "lower" in labels[0]
        if is_number != self._predicts_numbers:
            sentence = _OF_NUMBERS if is_number else _OF_CLASSES
            raise ValueError(sentence.format(labels[0]["name"]))

    def _answer(self, X: Any) -> Mapping[str, list[Any]]:
        check_is_fitted(self)
        if self.upload and self.schema is None:
            X = validate_data(
                self, X, reset=False, dtype="numeric", ensure_all_finite="allow-nan"
            )
        return self.model_.answer(X)

    def _uploaded(self, schema: JsonMapping, columns: Columns) -> Dataset:
        """Declares a dataset in the population ``dataset`` and uploads the rows."""
        budget = {"accountant": "pure", "epsilon": str(self._limit())}
        if self.delta is not None:
            budget |= {"accountant": "gdp", "delta": to_text(self.delta)}
        name = f"{self.dataset}-{secrets.token_hex(8)}"
        service = self._service()
        declared = service.declare(
            {
                "name": name,
                "schema": schema,
                "budget": budget,
                "population": self.dataset,
            }
        )
        with tempfile.TemporaryDirectory(prefix="grovekeeper-") as folder:
            file = Path(folder) / "rows.csv"
            with file.open("w", encoding="utf-8", newline="") as stream:
                write(columns, stream)
            declared.upload(file)
        return declared

    def _warn_of_leaks(self) -> None:
        fitted = _fitted_steps_before(self)
        if fitted:
            warnings.warn(
                f"the steps {', '.join(fitted)} were fitted on private rows without noise: no guarantee covers their "
                "numbers, so do not publish them; use public numbers, or give the untransformed rows to the forest",
                LeakWarning,
                stacklevel=3,
            )


class PrivateForestClassifier(_PrivateForest, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A differentially private decision forest that a Grovekeeper service trains.

    ``fit()`` trains on the rows of a dataset of the service, which never leave it.
    ``fit(X, y)`` needs ``upload=True``: it uploads ``X`` and ``y`` as a dataset and
    trains on it. Names of columns, the classes in ``y`` and the bounds are published
    with the model.

    Every ``fit`` is charged. An estimator, its clones and their fits together spend at
    most ``max_epsilon``, so that a search ends there.

    Args:
        dataset: name or id of the dataset; with ``upload``, name of the population that
            the uploaded datasets join.
        epsilon: ε of one fit. Text and ``Decimal`` are exact.
        delta: δ of one fit; default the δ of the account, if it has one.
        algorithm: slug, such as ``rpf``; ``auto`` chooses.
        parameters: of the algorithm, by name; default the public rules.
        label: of a dataset with several, the one to predict; default the first.
        scope: cells of the dataset to train on; default all.
        purpose: the reason for every fit, which auditors read in the ledger, for good.
        max_epsilon: limit for this estimator and its clones; default ``epsilon``, which
            is one fit. Without ``upload`` the client counts, in this process. With
            ``upload`` the service counts: the first fit opens the population with this
            cap.
        upload: let ``fit(X, y)`` upload its arguments.
        bounds: of the columns of ``X``, for uploads: public numbers, never those of
            ``X``. ``(low, high)``, each a number for all columns or a sequence with one
            for each; or a pair by name of column, for every column.
        schema: public schema of ``X`` and ``y``, for uploads, in place of ``bounds``:
            the ``schema`` of a declaration.
        service: connection; default that of the environment.

    Attributes:
        model_: the trained :class:`~grovekeeper_client.models.Model`.
        classes_: classes of the label, in the type of ``y`` if that is one of numbers or
            truth values which all classes have; else those of the schema are text.
            Sorted, as scorers expect them; where the label is cut, in the order of the
            numbers, which ``y`` has.
        n_features_in_: number of features.
        feature_names_in_: names of the features, where they have names.
    """

    _predicts_numbers = False

    def predict(self, X: Any) -> Any:
        """Classes of rows, as an array; costs no budget."""
        check_is_fitted(self)
        codes = {self.model_.classes[place]: n for n, place in enumerate(self._order)}
        return self.classes_[[codes[label] for label in self._answer(X)["labels"]]]

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of rows by class, as an array ``(n_rows, n_classes)``; costs no
        budget.
        """
        shares = np.asarray(self._answer(X)["probabilities"], dtype=float)
        return shares.reshape(-1, len(self.classes_))[:, self._order]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the rows whose class is right; costs no budget.

        Where the label is cut, use ``score``, the default of searches, which counts a
        number as its class: scorers by name compare names of classes with your numbers.

        Raises:
            ValueError: the label is cut, and a number is missing or infinite.
        """
        check_is_fitted(self)
        label = self.model_.card["schema"]["label"]
        cuts = label.get("cuts")
        if cuts and _plain_type(y).kind in "iuf":
            self._check_scores(label, y)
            y = np.array(self.model_.classes)[np.searchsorted(cuts, y, side="right")]
        return float(super().score(X, y, sample_weight))

    def _describe(self, y: Any = None) -> None:
        super()._describe()
        classes = _typed(self.model_.classes, y)
        # scorers expect classes, and columns of probabilities, in the order of y; it has
        # numbers where the label is cut, and the classes are declared in their order
        is_cut = self.model_.card["schema"]["label"].get("cuts")
        self._order = np.arange(len(classes)) if is_cut else np.argsort(classes)
        self.classes_ = classes[self._order]

    def _label(self, y: Any) -> tuple[JsonObject, Sequence[Scalar]]:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                "a classifier needs rows of two classes or more, and y has only one class"
            )
        self._order = np.arange(len(self.classes_))
        texts = [str(plain(name)) for name in self.classes_]
        return {"classes": texts}, [texts[code] for code in codes]


class PrivateForestRegressor(_PrivateForest, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A differentially private forest that predicts a number and that a Grovekeeper
    service trains.

    ``fit()`` trains on a dataset whose label is a number, and ``fit(X, y)`` with
    ``upload=True`` uploads, as :class:`PrivateForestClassifier` does.

    Args:
        dataset: as those of :class:`PrivateForestClassifier`, like all arguments but
            one.
        target_bounds: of ``y``, for uploads without a ``schema``: ``(low, high)``,
            public numbers, never those of ``y``. Predictions lie between them. Values
            of ``y`` beyond them count as the nearer bound, and an upload with more than
            5 % of them is refused.

    Attributes:
        model_: the trained :class:`~grovekeeper_client.models.Model`.
        n_features_in_: number of features.
        feature_names_in_: names of the features, where they have names.
    """

    _predicts_numbers = True

    def __init__(  # noqa: PLR0913 - scikit-learn's parameters are the arguments of the constructor
        self,
        dataset: str,
        epsilon: Amount,
        *,
        delta: Amount | None = None,
        algorithm: str = "auto",
        label: str | None = None,
        parameters: JsonMapping | None = None,
        scope: JsonMapping | None = None,
        purpose: str | None = None,
        max_epsilon: Amount | None = None,
        upload: bool = False,
        bounds: Bounds | None = None,
        target_bounds: tuple[float, float] | None = None,
        schema: JsonMapping | None = None,
        service: Grovekeeper | None = None,
    ) -> None:
        super().__init__(
            dataset,
            epsilon,
            delta=delta,
            algorithm=algorithm,
            label=label,
            parameters=parameters,
            scope=scope,
            purpose=purpose,
            max_epsilon=max_epsilon,
            upload=upload,
            bounds=bounds,
            schema=schema,
            service=service,
        )
        self.target_bounds = target_bounds

    def predict(self, X: Any) -> Any:
        """Numbers of rows, as an array ``(n_rows,)`` of floats; costs no budget."""
        return np.asarray(self._answer(X)["labels"], dtype=float)

    def _label(self, y: Any) -> tuple[JsonObject, Sequence[Scalar]]:
        lower, upper = _target_pair(self.target_bounds)
        return {"type": "number", "lower": lower, "upper": upper}, y.tolist()


def _decimal(name: str, amount: Amount) -> Decimal:
    """The amount of a parameter.

    Raises:
        ValueError: it is no number.
    """
    try:
        return Decimal(to_text(amount))
    except InvalidOperation:
        raise ValueError(
            f"{name} is no amount: {amount!r}; a decimal number such as '0.5' is needed"
        ) from None


def _plain_type(y: Any) -> np.dtype[Any]:
    """The type of labels as plain values: pandas has types of its own that may be
    missing.
    """
    return np.array(np.asarray(y).tolist()).dtype


def _typed(classes: Sequence[str], y: Any) -> Any:
    """Classes in the type of ``y``, if that is one of numbers or truth values which all
    classes have; else texts.
    """
    kind = _plain_type(y)
    # a class is no such label, or none that the type holds
    with suppress(ValueError), np.errstate(invalid="ignore"):
        if kind.kind in "biuf":
            numbers = np.array(
                [float(_TRUTHS.get(text.lower(), text)) for text in classes]
            )
            typed = numbers.astype(kind)
            if len(set(typed)) == len(classes) and (typed == numbers).all():
                return typed
    return np.array(classes)


def _columns_of_no_numbers(X: Any) -> list[str]:
    """The columns of a data frame whose PRIVATE cells are no numbers; the error of NumPy
    would quote a cell.
    """
    names = X.columns if hasattr(X, "dtypes") else ()
    return [str(name) for name in names if not _are_numbers(np.asarray(X[name]))]


def _are_numbers(cells: Any) -> bool:
    if cells.dtype.kind not in "OUSmM":
        return True
    try:
        for cell in cells.ravel().tolist():
            if not is_missing(cell):
                float(cell)
    except (TypeError, ValueError):
        return False
    return cells.dtype.kind not in "mM"


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _fitted_steps_before(estimator: object) -> list[str]:
    """The fitted steps of the pipeline whose ``fit`` is calling; scikit-learn does not
    tell a step its pipeline.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and caller.steps[-1][1] is estimator:
            steps = [
                (name, step)
                for name, step in caller.steps[:-1]
                if step not in (None, "passthrough")
            ]
            return [name for name, step in steps if get_tags(step).requires_fit]
        frame = frame.f_back
    return []
