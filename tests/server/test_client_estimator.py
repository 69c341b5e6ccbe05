"""``PrivateForestClassifier`` and ``PrivateForestRegressor`` keep scikit-learn's
conventions, pay for every fit, and stop at their limit.
"""

import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import estimator_checks

from grovekeeper_client import (
    Grovekeeper,
    LeakWarning,
    PrivateForestClassifier,
    PrivateForestRegressor,
    Refused,
    SpendingLimit,
    spending,
)
from grovekeeper_client.errors import ApiProblem
from grovekeeper_client.spending import UnsharedSpending
from tests.server.conftest import StartServer
from tests.server.test_http_number_labels import SCHEMA as OF_NUMBERS
from tests.server.test_http_number_labels import _uploaded as uploaded_numbers
from tests.support.server import SCHEMA, Server

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python.md"

CANNOT_PASS = {
    "check_fit_idempotent": (
        "two fits on the same rows differ: every fit draws fresh noise, and no caller chooses a seed"
    ),
    "check_pipeline_consistency": "compares two fits; scikit-learn skips it for estimators that say so",
}
"""Every check that no private learner can pass, with the reason, as the guide shows
them.
"""

REGRESSOR_CANNOT_PASS = dict.fromkeys(
    (
        "check_regressor_data_not_an_array",
        "check_regressors_int",
        "check_supervised_y_2d",
    ),
    "the regressor: compares the numbers of two fits, which differ by their noise",
)
"""Such checks of numbers; classes are the same in most fits."""

DETERMINISTIC_PREDICTION = (
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
)
"""Checks that scikit-learn leaves out for non-deterministic estimators, and that hold:
predictions draw no noise.
"""

QUICK = {
    "check_estimator_cloneable", "check_estimator_repr", "check_no_attributes_set_in_init", "check_estimators_pickle",
    "check_parameters_default_constructible", "check_classifiers_one_label", "check_estimators_unfitted",
    "check_supervised_y_no_nan", "check_complex_data", "check_fit_idempotent", "check_estimators_empty_data_messages",
}  # fmt: skip
"""Checks of the default run; the others fit more often."""

AROUND_A_HUNDRED = {
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_regressor_data_not_an_array",
}
"""Checks whose numbers are far from the bounds of the others; an upload refuses columns
of clamped numbers.
"""

UPLOADING = PrivateForestClassifier(
    "checks",
    1_000,
    max_epsilon=1_000_000,
    upload=True,
    bounds=(-10, 10),
    algorithm="rpf",
)
UPLOADING_NUMBERS = PrivateForestRegressor(
    "checks-of-numbers",
    1_000,
    delta="1e-6",
    max_epsilon=1_000_000,
    upload=True,
    bounds=(-10, 10),
    target_bounds=(-10, 10),
)
SMALL = {"n_estimators": 2, "max_depth": 2}


@pytest.fixture(scope="module")
def service(start_server: StartServer) -> Server:
    """One database suffices, because the tests are about the client."""
    return start_server("sqlite", 1)


@pytest.fixture(autouse=True)
def environment(service: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROVEKEEPER_URL", service.url)
    monkeypatch.setenv("GROVEKEEPER_API_KEY", service.admin.key)
    monkeypatch.delenv("GROVEKEEPER_API_KEY_FILE", raising=False)


def _name(check: Any) -> str:
    function = check.func if isinstance(check, partial) else check
    return str(function.__name__)


def _checks(uploading: Any, cannot_pass: dict[str, str]) -> Iterator[Any]:
    kind = type(uploading).__name__
    pairs = list(estimator_checks.estimator_checks_generator(uploading))
    more = [
        (uploading, partial(getattr(estimator_checks, name), "forest"))
        for name in DETERMINISTIC_PREDICTION
    ]
    for estimator, check in [*pairs, *more]:
        name = _name(check)
        if name in AROUND_A_HUNDRED:
            wide = dict.fromkeys(_public_bounds(estimator), (-150, 150))
            estimator = clone(estimator).set_params(**wide)
        marks = [] if name in QUICK else [pytest.mark.long]
        if name in cannot_pass:
            marks.append(
                pytest.mark.xfail(
                    reason=cannot_pass[name], raises=AssertionError, strict=True
                )
            )
        yield pytest.param(estimator, check, marks=marks, id=f"{kind}-{name}")


def _public_bounds(estimator: Any) -> set[str]:
    return {"bounds", "target_bounds"} & estimator.get_params().keys()


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        *_checks(UPLOADING, CANNOT_PASS),
        *_checks(UPLOADING_NUMBERS, CANNOT_PASS | REGRESSOR_CANNOT_PASS),
    ],
)
def test_the_conventions_of_scikit_learn_hold(
    estimator: Any, check: Callable[[Any], None]
) -> None:
    check(estimator)


def test_the_guide_names_every_check_that_cannot_pass() -> None:
    listed = re.findall(
        r"^\| `(check_\w+)` \| (.+) \|$",
        GUIDE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert dict(listed) == CANNOT_PASS | REGRESSOR_CANNOT_PASS


def _forest(service: Server, **changes: Any) -> PrivateForestClassifier:
    dataset = service.uploaded()["name"]
    return PrivateForestClassifier(
        dataset, "10", algorithm="rdt-ta", parameters=SMALL, **changes
    )


def _spent(forest: PrivateForestClassifier) -> Decimal:
    return Grovekeeper().dataset(forest.dataset).balance().charged


def test_it_trains_on_the_rows_of_the_service(service: Server) -> None:
    forest = _forest(service)
    with pytest.raises(NotFittedError):
        forest.predict([[20, 1.5, "Male"]])
    forest.fit()
    frame = pd.DataFrame(
        {"age": [20, 80], "height": [1.5, np.nan], "sex": ["Male", None]}, index=[7, 8]
    )
    labels = forest.predict(frame)
    assert labels.tolist() == forest.model_.predict(frame).tolist()
    assert np.array_equal(
        forest.predict_proba(frame), forest.model_.predict_proba(frame).to_numpy()
    )
    assert forest.score(frame, labels) == 1
    assert forest.classes_.tolist() == SCHEMA["label"]["classes"]
    assert forest.feature_names_in_.tolist() == ["age", "height", "sex"]
    assert forest.n_features_in_ == 3
    assert _spent(forest) == 10


def test_rows_are_not_uploaded_unless_the_caller_says_so(service: Server) -> None:
    forest = _forest(service)
    with pytest.raises(ValueError, match="pass upload=True"):
        forest.fit([[20, 1.5, "Male"]], ["<=50K"])
    with pytest.raises(ValueError, match="public bounds or a public schema"):
        PrivateForestClassifier("x", 1, upload=True).fit([[1.0]], ["a"])
    assert _spent(forest) == 0


def test_an_estimator_and_its_clones_stop_at_the_limit(service: Server) -> None:
    forest = _forest(service, max_epsilon=25)
    forest.fit()
    copy = clone(clone(forest)).fit()
    with pytest.raises(SpendingLimit) as caught:
        clone(copy).set_params(algorithm="mrf").fit()
    assert (caught.value.spent, caught.value.requested, caught.value.max_epsilon) == (
        20,
        10,
        25,
    )
    assert _spent(forest) == 20
    with pytest.raises(SpendingLimit):
        pickle.loads(pickle.dumps(copy)).fit()
    assert copy.set_params(max_epsilon=30).fit() is copy, (
        "the caller may raise the limit"
    )
    assert _spent(forest) == 30


def test_without_a_limit_an_estimator_fits_once(service: Server) -> None:
    forest = _forest(service).fit()
    with pytest.raises(SpendingLimit):
        clone(forest).fit()


def test_what_the_service_refuses_is_not_counted(service: Server) -> None:
    forest = _forest(service, max_epsilon=150).set_params(epsilon=101)
    with pytest.raises(Refused):
        forest.fit()
    forest.set_params(epsilon=100)
    assert forest.fit().model_.card["dataset_name"] == forest.dataset


def test_an_estimator_of_another_process_does_not_pay(
    service: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search with several processes would count in each of them."""
    forest = _forest(service, max_epsilon=100).fit()
    stored = pickle.dumps(forest)
    assert service.admin.key.encode() not in stored
    monkeypatch.setattr(spending, "_BY_NAME", {})
    other = pickle.loads(stored)
    row = [[20, 1.5, "Male"]]
    assert other.predict(row) == forest.predict(row), "predictions cost nothing"
    for copy in (other, pickle.loads(pickle.dumps(other))):
        with pytest.raises(UnsharedSpending):
            copy.fit()
    with pytest.raises(UnsharedSpending):
        clone(other).fit()
    assert _spent(forest) == 10


def _blobs(n_rows: int) -> tuple[Any, Any]:
    X = np.linspace(-5, 5, n_rows * 2).reshape(n_rows, 2)
    return X, (X[:, 0] > 0).astype(int)


def _uploading(name: str, **changes: Any) -> PrivateForestClassifier:
    options: dict[str, Any] = {
        "algorithm": "rdt-ta",
        "parameters": SMALL,
        "upload": True,
        "bounds": (-5, 5),
    }
    return PrivateForestClassifier(name, 50, **(options | changes))


def test_a_search_stops_at_the_cap_of_its_population(service: Server) -> None:
    X, y = _blobs(40)
    search = GridSearchCV(
        _uploading("search", max_epsilon=150),
        {"algorithm": ["rdt-ta", "mrf"]},
        cv=2,
        refit=False,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, y)
    (failed,) = [warning for warning in caught if warning.category is FitFailedWarning]
    assert "the largest ε that fits is 0" in str(failed.message)
    assert (
        int(
            np.isnan(
                [search.cv_results_[f"split{n}_test_score"] for n in range(2)]
            ).sum()
        )
        == 1
    )
    population = service.admin.http.get("/populations/search").json()
    assert (population["cap"], population["charged"]) == ("150", "150")


def test_a_fitted_step_before_the_forest_is_warned_of() -> None:
    X, y = _blobs(40)
    with pytest.warns(
        LeakWarning, match="the steps standardscaler were fitted on private rows"
    ):
        make_pipeline(StandardScaler(), _uploading("scaled")).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stateless = make_pipeline(
            "passthrough", FunctionTransformer(np.tanh), _uploading("stateless")
        ).fit(X, y)
    assert set(stateless.predict(X)) <= {0, 1}


def test_rows_with_categories_are_uploaded_by_a_public_schema() -> None:
    schema = {
        **SCHEMA,
        "features": [feature | {"missing": True} for feature in SCHEMA["features"]],
    }
    ages = np.arange(60) * 2
    frame = pd.DataFrame({"sex": pd.Categorical(["Male", None] * 30), "age": ages})
    labels = pd.Series(np.where(ages > 50, ">50K", "<=50K"))
    forest = _uploading("by-schema", bounds=None, schema=schema).fit(frame, labels)
    assert forest.classes_.tolist() == schema["label"]["classes"]
    assert forest.predict(frame).shape == (60,)
    for rows, target, problem in (
        (frame, labels[:-1], "X has 60 rows and y has 59"),
        (frame, None, "requires y"),
        (frame.assign(more=1), labels, "does not read these columns: more"),
    ):
        with pytest.raises(ValueError, match=problem):
            forest.fit(rows, target)


@pytest.mark.parametrize(
    ("classes", "values"),
    [
        (["False", "True"], [False, True]),
        (["0", "1"], [0, 1]),
        (["0", "1"], [0.0, 1.0]),
        (["-2", "1"], [-2.0, 1.0]),
        (["0", "1"], pd.array([0, 1], "Int64")),
        (["False", "True"], pd.array([False, True], "boolean")),
    ],
)
def test_labels_of_a_public_schema_are_scored_in_their_own_type(
    classes: list[str], values: Any
) -> None:
    """A score that fails comes after the charge of its fit."""
    schema = {
        "features": SCHEMA["features"],
        "label": {"name": "y", "classes": classes},
    }
    frame = pd.DataFrame({"sex": ["Male"] * 60, "age": range(60)})
    labels = pd.concat([pd.Series(values)] * 30, ignore_index=True)
    forest = _uploading("typed", max_epsilon=300, bounds=None, schema=schema).fit(
        frame, labels
    )
    assert forest.classes_.dtype == np.array(list(values)).dtype
    assert 0 <= forest.score(frame, labels) <= 1


def _of_classes(*classes: str) -> dict[str, Any]:
    label = {"name": "y", "classes": list(classes)}
    return {"features": SCHEMA["features"], "label": label}


@pytest.mark.parametrize(
    ("classes", "pair"),
    [
        (["0.5", "1.5"], np.array([0.5, 1.5])),
        (["0", "1"], np.array([0, 1], dtype=object)),
        (["0", "1"], np.array([0, "1"], dtype=object)),
        (["0", "1"], [0, np.nan]),
        (["0", "1"], pd.array([0, None], "Int64")),
        (["a", "b"], ["a", None]),
        (["0", "unknown"], [0, 0]),
        (["0", "nan"], [0, 0]),
        (["0", "1e30"], [0, 0]),
        (["0", "1"], [Decimal(0), Decimal(1)]),
    ],
)
def test_labels_that_scikit_learn_cannot_score_are_refused_before_the_charge(
    service: Server, classes: list[str], pair: Any
) -> None:
    frame = pd.DataFrame({"sex": ["Male"] * 60, "age": range(60)})
    labels = np.resize(np.asarray(pair), 60)
    if not isinstance(pair, np.ndarray):
        labels = pd.concat([pd.Series(pair)] * 30, ignore_index=True)
    forest = _uploading("unscored", bounds=None, schema=_of_classes(*classes))
    with pytest.raises(ValueError, match="cannot score predictions of this y"):
        forest.fit(frame, labels)
    assert service.admin.http.get("/populations/unscored").status_code == 404


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_numbers_that_scikit_learn_cannot_score_are_refused_before_the_charge(
    service: Server, strange: float
) -> None:
    frame = pd.DataFrame({"age": range(60)})
    forest = _uploading_regressor("unscored", bounds=None, schema=OF_NUMBERS)
    with pytest.raises(ValueError, match="finite numbers"):
        forest.fit(frame, [strange, *[1.0] * 59])
    assert service.admin.http.get("/populations/unscored").status_code == 404


def test_classes_are_in_the_order_in_which_scorers_read_probabilities() -> None:
    """The area under the curve of classes in another order is that of the wrong one."""
    frame = pd.DataFrame({"sex": ["Male"] * 300, "age": [10, 90, 90] * 100})
    labels = np.array(["poor", "rich", "rich"] * 100)
    schema = _of_classes("rich", "poor")
    forest = _uploading("order", bounds=None, algorithm="rpf", schema=schema)
    forest.set_params(parameters=None).fit(frame, labels)
    assert forest.classes_.tolist() == ["poor", "rich"]
    assert forest.predict(frame[:2]).tolist() == ["poor", "rich"]
    assert forest.predict_proba(frame[:2]).argmax(axis=1).tolist() == [0, 1]
    assert get_scorer("roc_auc")(forest, frame, labels) == 1


def test_numbers_of_a_label_that_is_cut_are_scored_as_their_classes() -> None:
    features = SCHEMA["features"]
    schema = {"features": features, "label": {"name": "days", "cuts": [3, 7]}}
    frame = pd.DataFrame({"sex": ["Male"] * 300, "age": [10, 50, 90] * 100})
    days = np.array([0.5, 3, 7] * 100)
    forest = _uploading("cut", bounds=None, algorithm="rpf", schema=schema)
    forest.set_params(parameters=None).fit(frame, days)
    names = ["below 3", "3 to below 7", "7 or more"]
    # scorers read the columns of probabilities in the order of y, which has numbers
    assert forest.classes_.tolist() == names
    assert forest.predict(frame[:3]).tolist() == names
    assert forest.score(frame, days) == forest.score(frame, names * 100) == 1
    days[0] = np.nan
    for call in (clone(forest).fit, forest.score):
        with pytest.raises(ValueError, match="finite numbers"):
            call(frame, days)


def test_a_schema_with_cuts_as_the_service_shows_it_has_the_area_of_the_numbers() -> (
    None
):
    """Names sort the other way: "0.5 or more" is before "below 0.5"."""
    label = {"name": "died", "classes": ["below 0.5", "0.5 or more"], "cuts": [0.5]}
    frame = pd.DataFrame({"sex": ["Male"] * 300, "age": [10, 90] * 150})
    died = np.array([0, 1] * 150)
    schema = {**SCHEMA, "label": label}
    forest = _uploading("shown", bounds=None, algorithm="rpf", schema=schema)
    forest.set_params(parameters=None).fit(frame, died)
    assert forest.score(frame, died) == 1
    assert forest.predict_proba(frame[:2]).argmax(axis=1).tolist() == [0, 1]
    assert get_scorer("roc_auc")(forest, frame, died) == 1


def test_a_column_of_texts_or_dates_is_named_and_not_quoted() -> None:
    frame = pd.DataFrame({"age": pd.array([1, None], "Int64"), "who": ["Ann", "Bob"]})
    frame = frame.assign(day=pd.Timestamp("2024-02-29"), far=["1", 2])
    with pytest.raises(ValueError, match="other cells: who, day; a public schema"):
        _uploading("texts").fit(frame, [0, 1])


@pytest.mark.parametrize("name", ["epsilon", "max_epsilon"])
def test_an_amount_that_is_none_is_named(name: str) -> None:
    forest = _uploading("amounts").set_params(**{name: "0,5"})
    with pytest.raises(ValueError, match=rf"{name} is no amount: '0,5'"):
        forest.fit(np.ones((2, 1)), [0, 1])


def _regressor(service: Server, **changes: Any) -> PrivateForestRegressor:
    dataset = uploaded_numbers(service)["name"]
    return PrivateForestRegressor(
        dataset, 100, algorithm="nbrt", parameters={"n_estimators": 60}, **changes
    )


def _uploading_regressor(name: str, **changes: Any) -> PrivateForestRegressor:
    options: dict[str, Any] = {
        "delta": "1e-6",
        "upload": True,
        "bounds": (-5, 5),
        "target_bounds": (0, 20),
    }
    return PrivateForestRegressor(name, 50, **(options | changes))


def test_a_regressor_trains_on_the_rows_of_the_service(service: Server) -> None:
    forest = _regressor(service)
    with pytest.raises(NotFittedError):
        forest.predict([[20]])
    forest.fit()
    frame = pd.DataFrame({"age": [5, 50, 95]}, index=[7, 8, 9])
    numbers = forest.predict(frame)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == forest.model_.predict(frame).tolist()
    assert np.abs(numbers - [0.5, 5, 9.5]).max() < 1.5
    assert forest.score(frame, [0.5, 5, 9.5]) > 0.8
    assert not hasattr(forest, "classes_")
    assert forest.feature_names_in_.tolist() == ["age"]
    copy = pickle.loads(pickle.dumps(forest))
    assert copy.predict(frame).tolist() == numbers.tolist()
    with pytest.raises(SpendingLimit):
        clone(copy).fit()


def test_an_estimator_of_the_other_kind_is_named(service: Server) -> None:
    of_classes = _forest(service)
    of_numbers = _regressor(service)
    for kind, dataset, named in (
        (PrivateForestRegressor, of_classes, "'income' has classes"),
        (PrivateForestClassifier, of_numbers, "'los_days' is a number"),
    ):
        estimator = kind(dataset.dataset, 1)
        other = type(dataset).__name__
        for forest in (
            estimator,
            clone(estimator).set_params(label=named.split("'")[1]),
        ):
            with pytest.raises(ValueError, match=f"{named}: use {other}"):
                forest.fit()
        # nothing was counted
        estimator.set_params(dataset="absent", max_epsilon=1)
        with pytest.raises(ApiProblem):
            estimator.fit()
        assert _spent(dataset) == 0
    for uploading, schema in (
        (_uploading("kinds", schema=OF_NUMBERS), "number"),
        (_uploading_regressor("kinds", schema=SCHEMA), "classes"),
    ):
        with pytest.raises(ValueError, match=schema):
            uploading.fit([[1]], [1])
    assert service.admin.http.get("/populations/kinds").status_code == 404


def test_numbers_are_predicted_on_an_account_without_a_delta(service: Server) -> None:
    budget = {"accountant": "pure", "epsilon": "50"}
    pure = uploaded_numbers(service, budget=budget)
    forest = PrivateForestRegressor(pure["name"], 20).fit()
    assert forest.model_.card["algorithm"] == "rpf"
    uploading = _uploading_regressor("uploaded-pure-numbers", delta=None)
    X = np.linspace(-5, 5, 600).reshape(300, 2)
    assert uploading.fit(X, X[:, 0] + 10).score(X, X[:, 0] + 10) > 0.8


def test_a_regressor_uploads_between_public_bounds(service: Server) -> None:
    X = np.linspace(-5, 5, 600).reshape(300, 2)
    y = X[:, 0] + 10
    forest = _uploading_regressor("uploaded-numbers").fit(X, y)
    assert forest.n_features_in_ == 2
    assert forest.score(X, y) > 0.8
    beyond = forest.predict([[-1e9, 1e9], [np.nan, 0]])
    assert ((beyond >= 0) & (beyond <= 20)).all()
    label = forest.model_.card["schema"]["label"]
    assert label == {"name": "label", "type": "number", "lower": 0, "upper": 20}
    for changes, problem in (
        ({"bounds": None}, "public bounds"),
        ({"target_bounds": None}, "public target_bounds"),
        ({"target_bounds": [0, 20]}, "public target_bounds"),
        ({"target_bounds": (20, 0)}, "public target_bounds"),
    ):
        with pytest.raises(ValueError, match=problem):
            clone(forest).set_params(dataset="not-sent", **changes).fit(X, y)
    assert service.admin.http.get("/populations/not-sent").status_code == 404
    with pytest.raises(ApiProblem, match="clamped"):
        clone(forest).set_params(target_bounds=(0, 9)).fit(X, y)


def test_a_regressor_uploads_by_a_public_schema() -> None:
    frame = pd.DataFrame({"age": np.arange(300) % 100})
    days = pd.Series(frame["age"] / 10, name="days")
    forest = _uploading_regressor(
        "numbers-by-schema", bounds=None, target_bounds=None, schema=OF_NUMBERS
    ).fit(frame, days)
    assert forest.feature_names_in_.tolist() == ["age"]
    assert forest.score(frame, days) > 0.8
    with pytest.raises(TypeError, match="column 'los_days': not a number"):
        forest.fit(frame, days.astype(str) + " d")
