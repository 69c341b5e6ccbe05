"""A tree in words is the tree that predicts, for every algorithm and kind of column."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grovekeeper_common import tree_words
from grovekeeper_forests import catalogue
from grovekeeper_forests.contract.algorithm import TwoDatasetAlgorithm
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.days import date_of
from grovekeeper_forests.data.encoding import NO_SPLIT
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import one_tree
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.one_tree import Node, describe, n_shown
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.pure.releases.test_importances import _BITS, _counted
from tests.support.schemas import schema_of

_FEATURES: list[dict[str, Any]] = [
    {"name": "age", "type": "integer", "lower": 0, "upper": 9, "missing": True},
    {"name": "height", "type": "numeric", "lower": -1, "upper": 1},
    {"name": "born", "type": "date", "lower": "2020-01-01", "upper": "2020-02-01"},
    {"name": "site", "type": "categorical", "categories": ["<a>", "b", "c"]},
    {
        "name": "grade",
        "type": "categorical",
        "categories": ["low", "mid", "high"],
        "ordered": True,
        "missing": True,
    },
]
_SCHEMA = schema_of(*_FEATURES, classes=["no", "yes"])
_NUMBERS = Schema.from_json(
    {
        "features": _FEATURES,
        "label": {"name": "days", "type": "number", "lower": 0, "upper": 60},
    }
)
_N_ROWS = 400


def _rows() -> tuple[SanitisedRows, list[dict[str, str | float | None]]]:
    """Rows as growth and prediction read them, and as the words name them."""
    generator = np.random.default_rng(5)
    age = generator.integers(0, 10, _N_ROWS).astype(np.float64)
    age[::9] = np.nan
    height = generator.uniform(-1, 1, _N_ROWS)
    born = generator.integers(0, 32, _N_ROWS).astype(np.float64)
    site = generator.integers(0, 4, _N_ROWS).astype(np.int32)
    grade = generator.integers(0, 5, _N_ROWS).astype(np.int32)
    columns = SanitisedColumns((age, height, born, site, grade), _N_ROWS)
    y = ((height > 0) ^ (site == 1)).astype(np.int32)
    row_ids = generator.integers(0, 256, (_N_ROWS, 16), dtype=np.uint8)
    first_day = _SCHEMA.features[2].first_day
    assert first_day is not None
    named: list[dict[str, str | float | None]] = []
    for row in range(_N_ROWS):
        named.append(
            {
                "age": None if np.isnan(age[row]) else age[row],
                "height": height[row],
                "born": date_of(born[row] + first_day),
                "site": ["<a>", "b", "c", "OTHER"][site[row]],
                "grade": ["low", "mid", "high", "OTHER", "missing"][grade[row]],
            }
        )
    return SanitisedRows(columns, y, row_ids), named


def _grown(slug: str, schema: Schema, **parameters: object) -> Forest:
    shape = {"n_estimators": 1, "max_depth": 3, **parameters}
    terms = Terms(Fraction(30))
    if slug == "nbrt":
        terms = Terms(Fraction(30), "gdp", Fraction(1, 10**6))
    settled = plan(PlanRequest(slug, shape, terms, _N_ROWS), schema)
    rows, _ = _rows()
    if schema.label.is_number:
        codes = (rows.y.astype(np.int64) << 29).astype(np.int32)
        rows = SanitisedRows(rows.features, codes, rows.row_ids)
    return grow(settled, schema, rows, SystemRandomness(), on_tree_done=lambda: None)


def _holds(test: str, row: dict[str, str | float | None]) -> bool:
    """Answers the question of a split as a reader would."""
    if " ≤ " in test:
        name, bound = test.split(" ≤ ")
        if row[name] in (None, "missing"):
            return bound.endswith(" or missing")
        bound = bound.removesuffix(" or missing")
        value = row[name]
        return value <= bound if isinstance(value, str) else value <= float(bound)  # type: ignore[operator]
    name, _, names = test.partition(" is ")
    is_not = names.startswith("not ")
    among = names.removeprefix("not ").split(" or ")
    return (("missing" if row[name] is None else row[name]) in among) is not is_not


def _leaf(nodes: list[Node], row: dict[str, str | float | None]) -> Node:
    node = nodes[0]
    while node.test is not None:
        place = node.yes if _holds(node.test, row) else node.no
        assert place is not None
        node = nodes[place]
    return node


_SLUGS = [
    slug
    for slug, algorithm in catalogue.BY_SLUG.items()
    if not isinstance(algorithm, TwoDatasetAlgorithm)
    and algorithm.adjacency.value != "label"
    and slug != "bms-rf"
]


@pytest.mark.parametrize("slug", _SLUGS)
def test_whoever_follows_the_words_gets_the_prediction(slug: str) -> None:
    forest = _grown(slug, _SCHEMA)
    rows, named = _rows()
    predicted = Predictor(forest, _SCHEMA).probabilities(rows.features)
    nodes = describe(forest, _SCHEMA, 0)
    assert len(nodes) <= 15
    n_splits = 0
    for row, shares in zip(named, predicted, strict=True):
        leaf = _leaf(nodes, row)
        n_splits += nodes[0].test is not None
        assert leaf.n_leaves == 1
        if shares[0] != pytest.approx(shares[1]):
            assert leaf.label == _SCHEMA.label.classes[int(shares.argmax())]
    assert n_splits
    assert len({node.test for node in nodes}) > 1


@pytest.mark.parametrize("slug", ["rpf", "nbrt"])
def test_a_leaf_of_numbers_says_the_number(slug: str) -> None:
    forest = _grown(slug, _NUMBERS)
    rows, named = _rows()
    predicted = Predictor(forest, _NUMBERS).numbers(rows.features)
    nodes = describe(forest, _NUMBERS, 0)
    said = [_leaf(nodes, row).number for row in named]
    assert said == pytest.approx(predicted.tolist())
    assert len(set(said)) > 1
    assert {node.label for node in nodes} == {None}


def test_a_tree_is_drawn_as_text_and_as_picture() -> None:
    forest = _counted([0, 1, 1], [[40, 0], [0, 10], [5, 15], [-5, -3]])
    nodes = describe(forest, _BITS, 0)
    tree = {"tree": 0, "nodes": [vars(node) for node in nodes]}
    assert tree_words.as_text(tree).splitlines() == [
        "a ≤ 0?",
        "├─ yes: b ≤ 0?",
        "│  ├─ yes: no 100.0 %",
        "│  └─ no: yes 100.0 %",
        "└─ no: b ≤ 0?",
        "   ├─ yes: yes 75.0 %",
        "   └─ no: no 50.0 %",
    ]
    picture = tree_words.as_svg(tree)
    assert picture.count("<text") == 7
    assert picture.count("<path") == 6


def test_a_split_that_sends_every_row_left_is_left_out() -> None:
    threshold = np.array([[NO_SPLIT, 0, 0]], dtype=np.uint8)
    counts = [[30, 0], [0, 10], [0, 900], [900, 0]]
    forest = _counted([0, 1, 0], counts, threshold=threshold)
    root, yes, no = describe(forest, _BITS, 0)
    assert root == Node("b ≤ 0", yes=1, no=2)
    assert (yes.label, no.label) == ("no", "yes")


def test_a_question_that_is_answered_above_is_left_out() -> None:
    counts = [[30, 0], [0, 900], [900, 0], [0, 10]]
    nodes = describe(_counted([0, 0, 1], counts), _BITS, 0)
    tree = {"tree": 0, "nodes": [vars(node) for node in nodes]}
    assert tree_words.as_text(tree).splitlines() == [
        "a ≤ 0?",
        "├─ yes: no 100.0 %",
        "└─ no: b ≤ 0?",
        "   ├─ yes: no 100.0 %",
        "   └─ no: yes 100.0 %",
    ]


def test_a_deep_tree_ends_after_four_levels_and_says_what_is_below() -> None:
    nodes = describe(_grown("rdt-ta", _SCHEMA, max_depth=6), _SCHEMA, 0)
    assert len(nodes) <= 31
    ends = [node for node in nodes if node.test is None]
    assert sum(node.n_leaves or 0 for node in ends) > len(ends)
    tree = {"tree": 0, "nodes": [vars(node) for node in nodes]}
    assert ", over " in tree_words.as_text(tree)


def test_an_end_of_several_leaves_pools_their_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_tree, "MOST_LEVELS", 1)
    forest = _counted([0, 1, 1], [[90, 0], [4, 6], [-5, 20], [-8, -3]])
    root, yes, no = describe(forest, _BITS, 0)
    assert root.test == "a ≤ 0"
    assert (yes.label, yes.share, yes.n_leaves) == ("no", 0.94, 2)
    assert (no.label, no.share, no.n_leaves) == ("yes", 1.0, 2)


@pytest.mark.parametrize(
    ("number", "words"), [(12.344, "12.34"), (123_456.0, "123,500"), (-0.5, "−0.5")]
)
def test_a_number_is_written_as_people_write_it(number: float, words: str) -> None:
    tree = {"tree": 0, "nodes": [vars(Node(number=number, n_leaves=1))]}
    assert tree_words.as_text(tree) == words


def test_names_are_no_markup() -> None:
    nodes = [
        Node("site is <a>", yes=1, no=2),
        Node(label="<b>", n_leaves=1),
        Node(number=1.0, n_leaves=1),
    ]
    picture = tree_words.as_svg({"tree": 0, "nodes": [vars(node) for node in nodes]})
    assert "&lt;a&gt;" in picture
    assert "<a>" not in picture
    assert "<b>" not in picture


def test_pairs_are_places_and_stacked_forests_show_their_first_layer() -> None:
    schema = schema_of(
        *({"name": name, "type": "integer", "lower": 0, "upper": 9} for name in "abc"),
        classes=["no", "yes"],
    )
    shape = {"n_estimators": 1, "max_depth": 1, "pairs": "ordered"}
    settled = plan(PlanRequest("rpf", shape, Terms(Fraction(1)), 100), schema)
    arrays = {
        "equals": np.zeros((1, 1), dtype=np.bool_),
        "counts": np.array([[[2560, 0], [0, 2560]]], dtype=np.int64),
        "selections": np.ones((1, 2), dtype=np.uint8),
        "cuts": np.zeros((0, 255), dtype=np.uint16),
    }
    asked = []
    # columns 3 and 4 are sum and difference of a and b, 5 and 6 of a and c
    for column in (5, 6):
        arrays["feature"] = np.array([[column]], dtype=np.int32)
        arrays["threshold"] = np.array([[3]], dtype=np.uint8)
        asked.append(describe(Forest(settled, dict(arrays)), schema, 0)[0].test)
    assert asked == [
        "place of a + place of c ≤ 3",
        "place of a − place of c ≤ -6",
    ]

    stacked = _grown("bms-rf", _SCHEMA, n_layers=2, n_estimators=2)
    assert n_shown(stacked, _SCHEMA) < len(stacked.arrays["feature"])
    assert describe(stacked, _SCHEMA, 0)
