"""Prepares what the pages of models show: accuracy, what the trees look at, a form of one
row, aliases, and models side by side.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from app.api.pages import words
from app.wire.evaluations import (
    AccuracyOut,
    ErrorOut,
    EvaluationOut,
    MajorityOut,
    ReleasedAccuracyOut,
    ReleasedErrorOut,
)
from app.wire.models import (
    ComparedModelOut,
    FeatureUseOut,
    LeafShareOut,
    ModelSummary,
    TreeOut,
)
from grovekeeper_common import scope_words, tree_words
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.model_words import NO_IMPORTANCES
from grovekeeper_common.number_words import (
    NO_SCORE,
    ON_TRAINING_ROWS,
    grouped,
    mean_error_in_words,
    other_score_in_words,
    share_in_words,
)

_SHOWN_CLASSES = 10
_SHOWN_FEATURES = 12


@dataclass(frozen=True)
class EvaluationRow:
    """An evaluation of a model, its noisy numbers in words."""

    id: str
    name: str
    dataset_name: str
    created_at: str
    score: str
    interval: str
    majority: str


def evaluation_row(evaluation: EvaluationOut, model_id: str) -> EvaluationRow:
    """The row of an evaluation in the table of a model. A choice of the best of several
    measures the best alone.
    """
    is_measured = evaluation.best in (None, model_id)
    accuracy = evaluation.accuracy if is_measured else None
    mae = evaluation.mae if is_measured else None
    other = other_score_in_words(evaluation.model_dump()) or NO_SCORE
    return EvaluationRow(
        id=evaluation.id,
        name=evaluation.name or evaluation.id,
        dataset_name=evaluation.dataset_name,
        created_at=evaluation.created_at,
        score=_score(accuracy, mae, other=other),
        interval=_interval(accuracy, mae),
        majority=_majority(evaluation.majority),
    )


def _score(
    accuracy: AccuracyOut | None, mae: ErrorOut | None, *, other: str = NO_SCORE
) -> str:
    """An accuracy, or the mean absolute error of a model that predicts a number.

    Args:
        other: the words where neither is there.
    """
    if mae is not None:
        value, _ = mean_error_in_words(mae.model_dump())
        return _noted(value, mae.on_training_rows)
    if accuracy is None:
        return other
    if accuracy.estimate is None:
        return "not told: the noise outweighs the counts"
    return _noted(share_in_words(accuracy.estimate), accuracy.on_training_rows)


def _noted(score: str, on_training_rows: bool) -> str:
    return f"{score} {ON_TRAINING_ROWS}" if on_training_rows else score


def _interval(accuracy: AccuracyOut | None, mae: ErrorOut | None) -> str:
    if mae is not None:
        return mean_error_in_words(mae.model_dump())[1]
    if accuracy is None or accuracy.estimate is None:
        return ""
    low, high = accuracy.interval.low, accuracy.interval.high
    return f"{share_in_words(low)} to {share_in_words(high)}"


def _majority(majority: MajorityOut | None) -> str:
    if majority is None:
        return "not released"
    return f"{share_in_words(majority.share)} ({majority.label}), noisy"


@dataclass(frozen=True)
class ListedModel:
    """A model in a list.

    Attributes:
        cells: that it was trained on, and what it predicts where its dataset has several
            labels, in words.
        leaves: of all trees; empty where the job is unknown.
        score: the newest accuracy or mean absolute error that was released, in words,
            or that none was.
        interval: with probability 0.95; empty without a score.
        released: the score with its evaluation; ``None`` without one.
    """

    model: ModelSummary
    cells: str
    leaves: str
    score: str
    interval: str
    released: ReleasedAccuracyOut | ReleasedErrorOut | None


def listed_model(model: ModelSummary) -> ListedModel:
    """The row of a model in the list of models."""
    n_leaves = model.n_leaves
    score = _score(model.accuracy, model.error)
    cells = scope_words.cell(model.scope or {})
    if model.label is not None:
        cells = f"{cells}, predicts {model.label}"
    return ListedModel(
        model,
        cells=cells,
        leaves="" if n_leaves is None else grouped(n_leaves),
        score=f"MAE {score}" if model.error else score,
        interval=_interval(model.accuracy, model.error),
        released=model.accuracy or model.error,
    )


@dataclass(frozen=True)
class ComparedFeature:
    """What each of several models makes of a feature, in words, with the share of its
    bar.
    """

    name: str
    uses: Sequence[tuple[float, str]]


def compared_features(models: Sequence[ComparedModelOut]) -> list[ComparedFeature]:
    """The features that models side by side look at, the most important first."""
    uses = [
        {feature.name: feature for feature in _used_features(model.features)}
        for model in models
    ]
    # the first of each model, and what every other model makes of them
    names = dict.fromkeys(
        name for by_name in uses for name in list(by_name)[:_SHOWN_FEATURES]
    )
    nothing = UsedFeature("", 0.0, "–")
    features = []
    for name in names:
        of_models = [by_name.get(name, nothing) for by_name in uses]
        shown = [(use.share, use.words) for use in of_models]
        features.append(ComparedFeature(name, shown))
    return sorted(features, key=lambda feature: -max(feature.uses)[0])


@dataclass(frozen=True)
class UsedFeature:
    """A feature that the trees look at.

    Attributes:
        share: of its bar.
        words: its importance, or its number of splits where there is none.
    """

    name: str
    share: float
    words: str


@dataclass(frozen=True)
class TreeUse:
    """What the trees of a model look at.

    Attributes:
        features: those with the longest bars.
        n_others: features with splits that are not among them.
        missing: why there are no importances; empty if there are.
    """

    features: Sequence[UsedFeature]
    n_others: int
    missing: str


def leaf_shares(leaves: Sequence[LeafShareOut]) -> str:
    """The shares of the leaves that favour each class, in words."""
    return words.listed(
        [f"{share_in_words(leaf.share)} {leaf.label}" for leaf in leaves]
    )


def tree_use(used: Sequence[FeatureUseOut]) -> TreeUse:
    """What the trees look at, the most important features first."""
    features = _used_features(used)
    has_counts = all(it.importance is not None for it in used if it.n_splits)
    return TreeUse(
        features[:_SHOWN_FEATURES],
        n_others=len(features[_SHOWN_FEATURES:]),
        missing="" if has_counts else NO_IMPORTANCES,
    )


@dataclass(frozen=True)
class DrawnTree:
    """A tree of a model.

    Attributes:
        number: from 0.
        before: the number of the tree before it, if there is one.
        after: the number of the tree after it, if there is one.
    """

    number: int
    n_trees: int
    before: int | None
    after: int | None
    picture: Markup
    text: str


def drawn_tree(tree: TreeOut) -> DrawnTree:
    """The picture and the text of a tree."""
    answer = tree.model_dump()
    number, n_trees = tree.tree, tree.n_trees
    return DrawnTree(
        number,
        n_trees,
        before=number - 1 if number else None,
        after=number + 1 if number + 1 < n_trees else None,
        picture=Markup(tree_words.as_svg(answer)),  # noqa: S704 - escaped there
        text=tree_words.as_text(answer),
    )


def _used_features(used: Sequence[FeatureUseOut]) -> list[UsedFeature]:
    """The features that any split looks at, the most important first."""
    split = [feature for feature in used if feature.n_splits]
    n_splits = sum(feature.n_splits for feature in split)
    features = []
    for feature in split:
        share = feature.n_splits / n_splits
        in_words = grouped(feature.n_splits)
        if feature.importance is not None:
            share = feature.importance
            in_words = share_in_words(feature.importance)
        features.append(UsedFeature(feature.name, share, in_words))
    features.sort(key=lambda feature: -feature.share)
    return features


@dataclass(frozen=True)
class RowField:
    """A field of the form for one row.

    Attributes:
        text: what was typed, or chosen.
        categories: the choices; ``None`` for a field of a number.
        bounds: of a number, in words.
        may_be_missing: whether the field may be empty.
    """

    name: str
    text: str
    categories: Sequence[str] | None
    bounds: str
    is_number: bool
    may_be_missing: bool


def row_fields(schema: JsonMapping, row: Mapping[str, str]) -> list[RowField]:
    """The fields of the form for one row of a schema, with what was sent in them."""
    fields = []
    for feature in schema["features"]:
        has_bounds = feature["type"] != "categorical"
        fields.append(
            RowField(
                name=feature["name"],
                text=row.get(feature["name"], ""),
                categories=None if has_bounds else feature["categories"],
                bounds=f"{feature['lower']} to {feature['upper']}"
                if has_bounds
                else "",
                is_number=has_bounds and feature["type"] != "date",
                may_be_missing=bool(feature.get("missing")),
            )
        )
    return fields


def example_row(schema: JsonMapping) -> Markup:
    """A row of a schema as Python writes it for an exported model: lower bounds, 0 days
    since the first day, and categories.
    """
    cells = []
    for feature in schema["features"]:
        if feature["type"] == "categorical":
            # A category is any text: it must end neither the string nor the page.
            value = htmlsafe_json_dumps(feature["categories"][0])
        else:
            is_date = feature["type"] == "date"
            value = htmlsafe_json_dumps(0 if is_date else feature["lower"])
        cells.append(htmlsafe_json_dumps(feature["name"]) + Markup(": ") + value)
    return Markup("{{{}}}").format(Markup(", ").join(cells))


def first_days(schema: JsonMapping) -> list[tuple[str, str]]:
    """The features that are dates, each with the day from which an exported model
    counts.
    """
    return [
        (feature["name"], feature["lower"])
        for feature in schema["features"]
        if feature["type"] == "date"
    ]


def likeliest(shares: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """The likeliest classes, in descending order of probability."""
    return sorted(shares, key=lambda item: -item[1])[:_SHOWN_CLASSES]


@dataclass(frozen=True)
class NamedModel:
    """The model that an alias names, or named.

    Attributes:
        id: ``None`` if the alias was removed.
        is_shown: whether it is the model of the page.
    """

    id: str | None
    name: str
    is_shown: bool


def named_model(id: str | None, shown: str, names: Mapping[str, str]) -> NamedModel:
    """A model by its id.

    Args:
        shown: the id of the model of the page.
        names: of models, by id.
    """
    name = "" if id is None else names.get(id, id)
    return NamedModel(id, name, is_shown=id == shown)
