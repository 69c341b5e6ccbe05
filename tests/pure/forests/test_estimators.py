"""Estimators without a service: scikit-learn's conventions, a declared schema, an
account with a limit.
"""

import copy
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.utils import estimator_checks

from grovekeeper_forests.account import InProcessAccount, LimitExceeded
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.errors import ParameterInvalid
from grovekeeper_forests.estimators import (
    BoostedPrivateRegressor,
    BoostedPrivateTrees,
    RandomPrivateForest,
    RandomPrivateRegressor,
)
from grovekeeper_forests.privacy import events
from grovekeeper_forests.releases.forest import draw, read

README = Path(__file__).parents[3] / "packages" / "forests" / "README.md"

SCHEMA: Mapping[str, Any] = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 120},
        {
            "name": "weight",
            "type": "numeric",
            "lower": 0,
            "upper": 200,
            "missing": True,
        },
        {"name": "ward", "type": "categorical", "categories": ["A", "B"]},
    ],
    "label": {"name": "ill", "classes": ["no", "yes"]},
}
FRAME = pd.DataFrame(
    {"age": [20, 70] * 300, "weight": [60.0, np.nan] * 300, "ward": ["A", "B"] * 300}
)
LABELS = np.array(["no", "yes"] * 300)
BOTH = pytest.mark.parametrize("estimator", [RandomPrivateForest, BoostedPrivateTrees])

CANNOT_PASS = {
    "check_fit_idempotent": "two fits on the same rows differ: every fit draws fresh noise",
    "check_supervised_y_no_nan": "a row whose label is no class is left out; one row refuses no fit",
    "check_classifiers_regression_target": "labels are read one by one, and 0.5 is no class",
    "check_regressor_data_not_an_array": "compares two fits on the same rows, and every fit draws fresh noise",
    "check_regressors_int": "compares two fits on the same rows, and every fit draws fresh noise",
    "check_supervised_y_2d": "compares two fits on the same rows, and every fit draws fresh noise",
}
"""Every check that a private learner cannot pass, with the reason, as the page of the
package shows them.
"""


def _schema_of(X: Any, y: Any) -> Mapping[str, Any]:
    """A schema for the made-up rows of scikit-learn's checks. Bounds and classes of
    real rows would tell about them.
    """
    shape = getattr(X, "shape", None) or np.shape(np.asarray(X))
    n_features = max(shape[1], 1) if len(shape) == 2 else 1
    names = list(getattr(X, "columns", map("c{}".format, range(n_features))))
    features = [
        {
            "name": str(name),
            "type": "numeric",
            "lower": -150,
            "upper": 150,
            "missing": True,
        }
        for name in names
    ]
    classes = [] if y is None else np.unique(np.asarray(y)).tolist()
    return {
        "features": features,
        "label": {"name": "y", "classes": classes if len(classes) > 1 else [0, 1]},
    }


class Checked(RandomPrivateForest):
    """Declares what a check passes, and forgets it."""

    def fit(self, X: Any, y: Any) -> "Checked":
        before, self.schema = self.schema, _schema_of(X, y)
        try:
            return super().fit(X, y)
        finally:
            self.schema = before


class _DeclaresANumber:
    """Declares what a check passes, with a number as label, and forgets it."""

    schema: Any

    def fit(self, X: Any, y: Any) -> Any:
        label = {"name": "y", "type": "number", "lower": -150, "upper": 150}
        before, self.schema = self.schema, {**_schema_of(X, None), "label": label}
        try:
            return super().fit(X, y)
        finally:
            self.schema = before


class CheckedRegressor(_DeclaresANumber, BoostedPrivateRegressor):
    """Boosted trees in a check."""


class CheckedRandomRegressor(_DeclaresANumber, RandomPrivateRegressor):
    """A random forest in a check."""


def _name(check: Any) -> str:
    function = check.func if isinstance(check, partial) else check
    return str(function.__name__)


def _checks() -> Iterator[Any]:
    of_classifiers = {"check_supervised_y_2d"}
    for made in (
        Checked(1_000, parameters={"n_estimators": 2}),
        CheckedRegressor(1_000),
        CheckedRandomRegressor(1_000),
    ):
        for estimator, check in estimator_checks.estimator_checks_generator(made):
            name, reason = _name(check), CANNOT_PASS.get(_name(check))
            if reason is None or (isinstance(made, Checked) and name in of_classifiers):
                marks = []
            else:
                marks = [
                    pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)
                ]
            yield pytest.param(
                estimator, check, marks=marks, id=f"{type(made).__name__} {name}"
            )


@pytest.mark.parametrize(("estimator", "check"), list(_checks()))
def test_the_conventions_of_scikit_learn_hold(
    estimator: Any, check: Callable[[Any], None]
) -> None:
    check(estimator)


def _fitted(estimator: Any, **changes: Any) -> Any:
    return estimator(4, schema=SCHEMA, public_size=600, **changes).fit(FRAME, LABELS)


@BOTH
def test_without_a_declared_schema_nothing_is_trained_or_quoted(estimator: Any) -> None:
    with pytest.raises(ValueError, match="public schema"):
        estimator().fit(FRAME, LABELS)
    with pytest.raises(ValueError, match="public schema"):
        estimator().quote()
    with pytest.raises(NotFittedError):
        estimator(schema=SCHEMA).predict(FRAME)


@BOTH
def test_a_data_frame_with_categories_and_empty_cells_is_learnt(estimator: Any) -> None:
    forest = _fitted(estimator)
    assert forest.score(FRAME, LABELS) > 0.9
    assert forest.classes_.tolist() == ["no", "yes"]
    assert forest.feature_names_in_.tolist() == ["age", "weight", "ward"]
    assert np.allclose(forest.predict_proba(FRAME[:9]).sum(axis=1), 1)
    array = FRAME.astype(object).to_numpy()
    in_order = estimator(4, schema=SCHEMA, public_size=600).fit(array, LABELS)
    assert in_order.score(array, LABELS) > 0.9


def test_columns_are_found_by_name_and_none_may_be_missing_or_more() -> None:
    shuffled = FRAME[["ward", "age", "weight"]]
    forest = RandomPrivateForest(4, schema=SCHEMA, public_size=600).fit(
        shuffled, LABELS
    )
    assert forest.score(shuffled, LABELS) > 0.9
    for wrong in (
        FRAME[["age", "ward"]],
        FRAME.assign(more=1),
        FRAME.rename(columns={"age": "old"}),
    ):
        account = InProcessAccount(1)
        with pytest.raises(ValueError, match="age, weight, ward"):
            RandomPrivateForest(1, schema=SCHEMA, account=account).fit(wrong, LABELS)
        assert account.spent == "0", "a mistake in the rows costs nothing"


def test_rows_of_undeclared_classes_are_left_out_and_classes_keep_their_type() -> None:
    label = {"name": "ill", "classes": [0, 1]}
    labels = np.where(LABELS == "yes", 1, 0)
    labels[:10] = 7
    forest = RandomPrivateForest(
        50, schema={**SCHEMA, "label": label}, public_size=600
    ).fit(FRAME, labels)
    assert forest.classes_.tolist() == [0, 1]
    assert set(forest.predict(FRAME)) == {0, 1}


def test_an_empty_cell_where_none_is_declared_is_refused_before_the_charge() -> None:
    account = InProcessAccount(1)
    with pytest.raises(ValueError, match=r"not as declared \(age: missing\)$"):
        RandomPrivateForest(1, schema=SCHEMA, account=account).fit(
            FRAME.assign(age=[20, np.nan] * 300), LABELS
        )
    assert account.spent == "0"


def test_no_row_and_rows_of_no_known_class_are_trained_on() -> None:
    """Whether rows of a class are there may not show in an error."""
    forest = RandomPrivateForest(1, schema=SCHEMA).fit(
        FRAME[:2], np.array(["perhaps", "perhaps"])
    )
    assert forest.predict(FRAME[:2]).shape == (2,)


@BOTH
def test_the_receipt_is_that_of_the_released_forest_and_the_artifact_has_its_event(
    estimator: Any,
) -> None:
    forest = _fitted(estimator)
    artifact = read.loads(forest.to_bytes())
    assert (
        artifact.forest.plan.event == forest.receipt_.event == forest.forest_.plan.event
    )
    assert forest.quote().event == forest.receipt_.event
    assert events.from_json(forest.receipt_.event.to_json()) == forest.receipt_.event
    unit = "ε" if estimator is RandomPrivateForest else "μ²"
    assert "Total, given everything that was released before: " in forest.receipt_.text
    assert unit in forest.receipt_.text
    assert forest.forest_.plan.terms.covers(forest.receipt_.event)


def test_growth_draws_only_what_the_account_was_charged_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = InProcessAccount(3)
    states: list[str] = []
    grow = draw.grow

    def observed(*arguments: Any, **options: Any) -> Forest:
        states.append(account.spent)
        return grow(*arguments, **options)

    monkeypatch.setattr(draw, "grow", observed)
    RandomPrivateForest(2, schema=SCHEMA, account=account).fit(FRAME, LABELS)
    assert states == ["2"], "charged before growth"


def test_fits_clones_and_copies_share_the_limit_of_their_account() -> None:
    account = InProcessAccount("2.5")
    forest = RandomPrivateForest("0.5", schema=SCHEMA, account=account)
    for _ in range(3):
        forest.fit(FRAME, LABELS)
    clone(forest).fit(FRAME, LABELS)
    copy.deepcopy(forest).fit(FRAME, LABELS)
    assert (account.spent, account.remaining, len(account.receipts)) == ("2.5", "0", 5)
    with pytest.raises(LimitExceeded, match=r"0\.5 ε requested, 0 ε left"):
        forest.fit(FRAME, LABELS)
    assert account.spent == "2.5"


class _Turnstile:
    """A lock that lets nobody in before two threads have come to it."""

    def __init__(self) -> None:
        self._both = threading.Barrier(2, timeout=60)
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._both.wait()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_two_fits_at_once_do_not_both_take_what_is_left_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = InProcessAccount("0.5")
    monkeypatch.setattr(account, "_turn", _Turnstile())
    forests = [
        RandomPrivateForest("0.5", schema=SCHEMA, account=account) for _ in range(2)
    ]
    with ThreadPoolExecutor(2) as threads:
        fits = [threads.submit(forest.fit, FRAME, LABELS) for forest in forests]
    refusals = [fit.exception() for fit in fits if fit.exception() is not None]
    assert [type(refusal) for refusal in refusals] == [LimitExceeded]
    assert (account.spent, len(account.receipts)) == ("0.5", 1)


def test_an_account_is_taken_to_no_other_process() -> None:
    """A search with several processes would spend the limit in each of them."""
    with pytest.raises(TypeError, match="process that made it"):
        pickle.dumps(RandomPrivateForest(1, schema=SCHEMA, account=InProcessAccount(1)))


def test_an_account_in_squared_mu_takes_jobs_with_a_delta_alone() -> None:
    account = InProcessAccount(2, 1e-6)
    assert account.unit == "mu_squared"
    BoostedPrivateTrees(1, schema=SCHEMA, account=account).fit(FRAME, LABELS)
    RandomPrivateForest(1, delta="1e-6", schema=SCHEMA, account=account).fit(
        FRAME, LABELS
    )
    assert (
        Fraction(account.spent)
        == 2 * Fraction(account.receipts[0].amount)
        < Fraction(account.limit)
    )
    with pytest.raises(ParameterInvalid, match="delta: required"):
        RandomPrivateForest(1, schema=SCHEMA, account=account).fit(FRAME, LABELS)
    with pytest.raises(ParameterInvalid, match="delta: not-for-pure"):
        BoostedPrivateTrees(1, schema=SCHEMA, account=InProcessAccount(9)).fit(
            FRAME, LABELS
        )


MIXED = (
    [1.0, "A", "no"],
    [True, 2, "yes"],
    [3, 2.0, 1],
    ["7", None, "no"],
    [np.nan, True, None],
    [5, "é", 1.5],
)


@pytest.mark.parametrize("more", MIXED, ids=repr)
def test_no_row_changes_how_another_is_read(more: list[Any]) -> None:
    """A list of mixed cells has no common type: NumPy would choose one by all rows
    together.
    """
    columns = [
        {
            "name": "ward",
            "type": "categorical",
            "categories": ["1", "3", "5", "7", "True"],
            "missing": True,
        },
        {
            "name": "size",
            "type": "categorical",
            "categories": ["2", "A", "True"],
            "missing": True,
        },
    ]
    schema = {
        "features": columns,
        "label": {"name": "ill", "classes": ["no", "yes", "1"]},
    }
    forest = RandomPrivateForest(schema=schema)
    declared = forest._declared()
    rows, labels = (
        [[first, second] for first, second, _ in MIXED],
        [label for *_, label in MIXED],
    )
    alone = forest._rows(rows, labels, declared)
    beside = forest._rows([*rows, more[:2]], [*labels, more[2]], declared)
    assert alone.y.tolist() == [0, 1, 2, 0]
    assert alone.features.columns[0].tolist() == [0, 4, 1, 3]
    for before, after in zip(
        alone.features.columns, beside.features.columns, strict=True
    ):
        assert after[: len(before)].tolist() == before.tolist()
    assert beside.y[:4].tolist() == alone.y.tolist()


def test_no_row_is_named_by_its_place() -> None:
    """Trees share rows by these names: names that follow from places would move every
    row behind one that is removed.
    """
    forest = RandomPrivateForest(schema=SCHEMA)
    declared = forest._declared()
    named = [
        bytes(row_id)
        for _ in range(2)
        for row_id in forest._rows(FRAME, LABELS, declared).row_ids
    ]
    assert len(set(named)) == 2 * len(LABELS)


@pytest.mark.parametrize(
    ("classes", "pair"),
    [
        (["no", "yes"], [0, 1]),
        (["no", "yes"], [False, True]),
        ([False, True], [0, 1]),
        ([0, 1], [False, True]),
        (["0", "1"], [False, True]),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        np.array,
        list,
        lambda labels: np.array([*map(np.array(labels).dtype.type, labels)], object),
        lambda labels: pd.Series(labels).convert_dtypes(),
        lambda labels: pd.Series([*labels[:-1], None]).convert_dtypes(),
        lambda labels: [*labels[:-1], None],
        lambda labels: [*labels[:-1], float("nan")],
    ],
)
def test_encoded_labels_are_refused_before_the_charge(
    classes: list[Any], pair: list[Any], form: Callable[[list[Any]], Any]
) -> None:
    account = InProcessAccount(1)
    schema = {**SCHEMA, "label": {"name": "ill", "classes": classes}}
    with pytest.raises(ValueError, match="encoded"):
        RandomPrivateForest(1, schema=schema, account=account).fit(
            FRAME, form(pair * 300)
        )
    assert account.spent == "0"


@pytest.mark.parametrize(
    "labels", [[None, None], [None, np.nan], np.array([np.nan]), pd.Series([pd.NA])]
)
def test_classes_that_are_all_missing_are_refused_before_the_charge(
    labels: Any,
) -> None:
    account = InProcessAccount(1)
    with pytest.raises(ValueError, match="y has no label"):
        RandomPrivateForest(1, schema=SCHEMA, account=account).fit(
            FRAME[: len(labels)], labels
        )
    assert account.spent == "0"


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([0, 1], [0, 1.0]),
        ([0, 1], [1, None, True]),
        (["0", "1"], [np.int64(0), 1]),
        ([False, True], [np.True_, False]),
        ([False, True], pd.array([True, None], "boolean")),
        (["no", "yes"], [0, "yes"]),
    ],
)
def test_labels_of_the_kind_of_the_classes_or_of_several_are_read(
    classes: list[Any], labels: Any
) -> None:
    schema = {**SCHEMA, "label": {"name": "ill", "classes": classes}}
    forest = RandomPrivateForest(1, schema=schema).fit(FRAME[: len(labels)], labels)
    assert forest.receipt_


@pytest.mark.parametrize("cell", ["secret-123", True, pd.Timestamp("2020-01-01")])
def test_no_message_has_a_cell_or_a_number_of_rows(cell: object) -> None:
    frame = FRAME.astype(object)
    frame.loc[17, "age"] = cell
    with pytest.raises(
        ValueError, match=r"^cells are not as declared \(age: not-a-number\)$"
    ):
        RandomPrivateForest(1, schema=SCHEMA).fit(frame, LABELS)


@pytest.mark.parametrize(
    ("estimator", "label"),
    [
        (RandomPrivateForest, {"name": "ill", "cuts": [3]}),
        (
            RandomPrivateRegressor,
            {"name": "ill", "type": "number", "lower": 0, "upper": 9},
        ),
    ],
)
def test_no_message_has_a_label(estimator: Any, label: Any) -> None:
    account = InProcessAccount(1)
    forest = estimator(1, schema={**SCHEMA, "label": label}, account=account)
    with pytest.raises(ValueError, match=r"^y has labels that are no numbers$"):
        forest.fit(FRAME, ["17", "secret-123"] * 300)
    assert account.spent == "0"


@pytest.mark.parametrize(
    ("label", "pair"),
    [
        ({"classes": ["0.5", "1.5"]}, np.array([0.5, 1.5])),
        ({"classes": [0.5, 1.5]}, np.array([0.5, 1.5])),
        ({"classes": [0, 1]}, np.array([0, 1], dtype=object)),
        ({"classes": [0, 1]}, np.array(["0", "1"])),
        ({"classes": ["0", "1"]}, np.array([0, 1])),
        ({"cuts": [3]}, np.array([2.5, 3])),
    ],
)
def test_what_was_paid_for_can_be_scored(label: Any, pair: Any) -> None:
    schema = {**SCHEMA, "label": {"name": "ill", **label}}
    labels = np.resize(pair, 600)
    forest = RandomPrivateForest(50, schema=schema, public_size=600).fit(FRAME, labels)
    assert forest.score(FRAME, labels) > 0.9
    labels = labels.astype(object)
    labels[:300] = None
    assert 0.4 < forest.score(FRAME, labels) < 0.6, "no class is never right"
    assert forest.score(FRAME, labels, sample_weight=[0, 1] * 300) < 0.6


def test_rows_without_a_number_are_left_out_of_a_score() -> None:
    label = {"name": "days", "type": "number", "lower": 0, "upper": 10}
    schema = {**SCHEMA, "label": label}
    days = np.array([1.0, 9.0] * 300)
    model = RandomPrivateRegressor(50, schema=schema, public_size=600).fit(FRAME, days)
    days[:3] = np.nan, np.inf, -np.inf
    assert model.score(FRAME, days) > 0.8
    assert model.score(FRAME, pd.array(days, "Float64"), [1] * 600) > 0.8


def test_classes_are_in_the_order_in_which_scorers_read_probabilities() -> None:
    schema = {**SCHEMA, "label": {"name": "ill", "classes": ["yes", "no"]}}
    forest = RandomPrivateForest(50, schema=schema, public_size=600).fit(FRAME, LABELS)
    assert forest.classes_.tolist() == ["no", "yes"]
    assert forest.predict(FRAME[:2]).tolist() == LABELS[:2].tolist()
    assert forest.predict_proba(FRAME[:2]).argmax(axis=1).tolist() == [0, 1]
    assert get_scorer("roc_auc")(forest, FRAME, LABELS) > 0.9


@pytest.mark.parametrize("empty", [None, np.nan, pd.NA, pd.NaT])
def test_every_mark_of_an_empty_cell_is_one(empty: object) -> None:
    frame = FRAME.astype(object)
    frame.loc[0, "weight"] = frame.loc[0, "ward"] = empty
    schema = {
        **SCHEMA,
        "features": [
            *SCHEMA["features"][:2],
            {**SCHEMA["features"][2], "missing": True},
        ],
    }
    forest = RandomPrivateForest(1, schema=schema)
    declared = forest._declared()
    columns = forest._rows(frame, LABELS, declared).features.columns
    assert np.isnan(columns[1][0])
    assert columns[2][0] == declared.features[2].missing_code


def test_a_frame_in_another_order_is_read_by_name_where_an_array_was_fitted() -> None:
    forest = RandomPrivateForest(50, schema=SCHEMA, public_size=600).fit(
        FRAME.astype(object).to_numpy(), LABELS
    )
    with pytest.warns(UserWarning, match="fitted without feature names"):
        assert forest.score(FRAME[["ward", "weight", "age"]], LABELS) > 0.9


@pytest.mark.parametrize(
    "schema",
    [
        {"features": SCHEMA["features"]},
        {**SCHEMA, "features": [{"name": "age"}]},
        {**SCHEMA, "features": [{"name": "age", "type": "text"}]},
        {**SCHEMA, "label": {"name": "ill", "classes": [1, "a"]}},
        {**SCHEMA, "label": {"name": "ill", "classes": [1, True]}},
    ],
    ids=[
        "no label",
        "no type",
        "another type",
        "number and text",
        "number and truth value",
    ],
)
def test_a_schema_of_another_form_is_refused(schema: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"a schema has|the type of|classes are"):
        RandomPrivateForest(schema=schema).quote()


@pytest.mark.parametrize("size", [0, -5, 60.5, "x"])
def test_a_public_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(ParameterInvalid, match="public_size"):
        RandomPrivateForest(schema=SCHEMA, public_size=size).quote()


def test_the_examples_of_the_page_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    examples = re.findall(
        r"^```python\n(.*?)^```",
        README.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert len(examples) == 4
    for example in examples:
        exec(example, names)
    printed = capsys.readouterr().out
    assert "\n2.5 0.5\n" in printed
    assert "1 ε requested, 0.5 ε left of the limit of this account" in printed
    rows = names["test"][:50]
    (session,) = [onnxruntime.InferenceSession("digits.onnx")]
    labels, _ = session.run(
        None, {f"pixel {i}": rows[:, [i]].astype(np.float64) for i in range(64)}
    )
    assert (
        np.asarray(labels).ravel().astype(int).tolist()
        == names["trees"].predict(rows).tolist()
    )


def test_the_page_names_every_check_that_cannot_pass() -> None:
    listed = re.findall(
        r"^\| `(check_\w+)` \| (.+) \|$",
        README.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert dict(listed) == CANNOT_PASS


def test_importances_follow_the_columns_of_the_rows() -> None:
    forest = RandomPrivateForest("100", schema=SCHEMA).fit(FRAME, LABELS)
    importances = dict(
        zip(forest.feature_names_in_, forest.feature_importances_, strict=True)
    )
    assert sum(importances.values()) == pytest.approx(1)
    turned = FRAME[["ward", "weight", "age"]]
    other = copy.copy(forest)
    other.feature_names_in_ = np.array(turned.columns, dtype=object)
    assert other.feature_importances_.tolist() == [
        importances[name] for name in turned.columns
    ]
    assert other.split_counts_.tolist() == forest.split_counts_[::-1].tolist()


NUMBER_SCHEMA: Mapping[str, Any] = {
    **SCHEMA,
    "label": {"name": "days", "type": "number", "lower": 0, "upper": 60},
}
DAYS = np.array([5.0, 25.0] * 300)


REGRESSORS = pytest.mark.parametrize(
    "regressor", [BoostedPrivateRegressor, RandomPrivateRegressor]
)


@REGRESSORS
def test_a_regressor_predicts_numbers_inside_the_bounds(regressor: Any) -> None:
    model = regressor(4, schema=NUMBER_SCHEMA, public_size=600)
    beyond = np.where(DAYS == 5.0, -1e9, np.inf)
    for y, score in ((DAYS, 0.8), (DAYS.astype(int), 0.8), (beyond, -np.inf)):
        model.fit(FRAME, y)
        numbers = model.predict(FRAME)
        assert numbers.shape == (600,)
        assert 0 <= numbers.min() <= numbers.max() <= 60
        assert not np.isfinite(y).all() or model.score(FRAME, y) > score
    assert model.split_counts_.sum() > 0
    artifact = read.loads(model.to_bytes())
    assert artifact.predictor.read_outs == ("number",)
    assert artifact.schema.label.bounds == (0, 60)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "classes_")


@REGRESSORS
def test_rows_without_a_number_are_left_out(regressor: Any) -> None:
    y = np.where(np.arange(600) < 300, DAYS, np.nan)
    model = regressor(4, schema=NUMBER_SCHEMA, public_size=600)
    assert model._rows(FRAME, y, model._declared()).features.n_rows == 300
    model.fit(FRAME, np.full(600, np.nan))
    assert len(model.predict(FRAME)) == 600


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ({"name": "y", "classes": [0, 1]}, "type number, lower and upper"),
        ({"name": "y", "type": "number", "lower": 0}, "type number, lower and upper"),
        ({"name": "y", "type": "date", "lower": 0, "upper": 1}, "is number"),
        ({"name": "y", "type": "number", "lower": 1, "upper": 1}, "lower below upper"),
        ({"name": "y", "type": "number", "lower": 0, "upper": np.inf}, "are finite"),
    ],
)
def test_a_label_that_is_no_number_is_refused_before_rows_are_read(
    label: Mapping[str, Any], sentence: str
) -> None:
    model = BoostedPrivateRegressor(4, schema={**SCHEMA, "label": label})
    with pytest.raises(ValueError, match=sentence):
        model.quote()
    with pytest.raises(ValueError, match=sentence):
        model.fit(None, None)


@REGRESSORS
def test_a_regressor_as_onnx_has_equal_bits(regressor: Any) -> None:
    model = regressor(4, schema=NUMBER_SCHEMA, public_size=600)
    model.fit(FRAME, DAYS)
    session = onnxruntime.InferenceSession(model.to_onnx())
    inputs = {
        "age": FRAME[["age"]].to_numpy(dtype=np.float64),
        "weight": FRAME[["weight"]].to_numpy(dtype=np.float64),
        "ward": FRAME[["ward"]].to_numpy(dtype=object),
    }
    (numbers,) = session.run(["number"], inputs)
    assert numbers.tolist() == model.predict(FRAME).tolist()


def test_boosted_trees_count_their_splits_alone() -> None:
    trees = BoostedPrivateTrees(1, 1e-6, schema=SCHEMA).fit(FRAME, LABELS)
    assert not hasattr(trees, "feature_importances_")
    assert trees.split_counts_.sum() > 0
    for unfitted in (RandomPrivateForest(schema=SCHEMA), BoostedPrivateTrees()):
        with pytest.raises(NotFittedError):
            _ = unfitted.split_counts_
