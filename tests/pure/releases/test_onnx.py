"""ONNX exports in ONNX Runtime against the service's prediction, on rows at every edge."""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from grovekeeper_forests import catalogue, limits
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.contract.plan import Forest, Reader
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    sanitise_codes,
    sanitise_numbers,
)
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.errors import NotSupported, ParameterInvalid
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.onnx import model
from grovekeeper_forests.releases.forest.price import plan
from grovekeeper_forests.releases.forest.read import Artifact
from grovekeeper_forests.trees import leaf_read_out
from grovekeeper_forests.trees.leaf_read_out import LeafFamily
from tests.support.plans import request_for
from tests.support.schemas import schema_of

DIGEST = "ab" * 32
MANY = [f"category {number}" for number in range(255)]


def schema(n_classes: int) -> Schema:
    """A schema with awkward bounds, ties, all kinds of columns, and names that collide
    with an exporter's names.
    """
    declared = schema_of(
        {
            "name": "/value_0",
            "type": "numeric",
            "lower": -0.1,
            "upper": 0.30000000000000004,
            "missing": True,
        },
        {
            "name": "kind",
            "type": "categorical",
            "categories": ["red", "é", "0", "\u4e2d"],
            "missing": True,
        },
        {"name": "ordinary number", "type": "numeric", "lower": 1e-30, "upper": 1e30},
        {"name": "count", "type": "integer", "lower": -3, "upper": 4},
        {
            "name": "wide count",
            "type": "integer",
            "lower": 0,
            "upper": 10**6,
            "missing": True,
        },
        {
            "name": "size",
            "type": "categorical",
            "categories": ["S", "M", "L"],
            "ordered": True,
        },
        {
            "name": "rank",
            "type": "categorical",
            "categories": MANY,
            "ordered": True,
            "missing": True,
        },
        {"name": "label", "type": "categorical", "categories": MANY, "missing": True},
        {
            "name": "constant",
            "type": "numeric",
            "lower": 2,
            "upper": 2,
            "missing": True,
        },
        classes=[f"{number}é" for number in range(n_classes)],
        label="class",
    )
    return Schema.from_json(declared.to_json() | {"missing_values": ["NA", "red"]})


def raw_rows(schema: Schema, n_rows: int, *, seed: int) -> dict[str, np.ndarray]:
    """Inputs: edges and their neighbours, bounds and values beyond, infinities, NaN;
    known and other words.
    """
    generator = np.random.default_rng(seed)
    results = {}
    for index, feature in enumerate(schema.features):
        if feature.is_categorical:
            words = np.array(
                [*feature.categories, "", "NA", "undeclared", "RED"], dtype=object
            )
            results[feature.name] = generator.choice(words, (n_rows, 1))
        else:
            results[feature.name] = generator.choice(
                _telling_numbers(schema, index), (n_rows, 1)
            )
    return results


def _telling_numbers(schema: Schema, index: int) -> np.ndarray:
    feature = schema.features[index]
    edges = [
        quantile_bins.grid_edges(feature),
        *(Encoding.of(schema, n_bins).edges[index] for n_bins in (2, 17, 255)),
    ]
    near = np.unique(np.concatenate([*edges, [feature.lower, feature.upper]]))
    around = np.concatenate(
        [
            near,
            np.nextafter(near, np.inf),
            np.nextafter(near, -np.inf),
            near.astype(np.float32),
        ]
    )
    inside = np.linspace(feature.lower, feature.upper, len(around))
    outside = [-math.inf, math.inf, math.nan, 0.0, -0.0, 5e-324, -1e308, 1e308]
    return np.concatenate([around, inside, np.repeat(outside, 10)])


def sanitised(schema: Schema, raw: dict[str, np.ndarray]) -> SanitisedColumns:
    """The rows as the service's prediction reads them."""
    columns = [
        _sanitised(feature, raw[feature.name].ravel()) for feature in schema.features
    ]
    return SanitisedColumns(tuple(columns), len(columns[0]))


def _sanitised(feature: Feature, cells: np.ndarray) -> np.ndarray:
    if not feature.is_categorical:
        return sanitise_numbers(feature, cells)
    codes = dict.fromkeys(("", "NA"), feature.missing_code)
    codes |= {word: code for code, word in enumerate(feature.categories)}
    result = np.array(
        [codes.get(cell, feature.other_code) for cell in cells.tolist()], dtype=np.int32
    )
    return sanitise_codes(feature, result)


@cache
def artifact(
    slug: str, n_classes: int = 2, depth: int = 6, n_trees: int = 20
) -> Artifact:
    """A forest grown as a job grows it."""
    own = schema(n_classes)
    shape = {"n_estimators": n_trees, "max_depth": depth}
    accountant, delta = (
        ("pure", None)
        if "pure" in catalogue.algorithm(slug).accountants
        else ("gdp", Fraction(1, 10**6))
    )
    settled = plan(
        request_for(
            slug, shape, Fraction(200), 10**4, accountant=accountant, delta=delta
        ),
        own,
    )
    columns = sanitised(own, raw_rows(own, 600, seed=1))
    y = np.arange(600, dtype=np.int32) % n_classes
    row_ids = np.random.default_rng(2).integers(0, 256, (600, 16), dtype=np.uint8)
    rows = SanitisedRows(columns, y, row_ids)
    unlabelled = None if settled.unlabelled is None else rows
    forest = grow(
        settled,
        own,
        rows,
        SystemRandomness(),
        on_tree_done=lambda: None,
        unlabelled=unlabelled,
    )
    facts = {
        "schema": own.to_json(),
        "guarantee": {"text": "ε = 200"},
        "receipt": "words",
    }
    return released_forest.loads(released_forest.dumps(forest, facts))


def exported(artifact: Artifact, read_out: str | None = None) -> bytes:
    return model.dumps(artifact, digest=DIGEST, read_out=read_out)


def session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"]
    )


def ours(
    artifact: Artifact, raw: dict[str, np.ndarray], read_out: str | None = None
) -> np.ndarray:
    columns = sanitised(artifact.schema, raw)
    return artifact.predictor.probabilities(columns, read_out=read_out)


SLUGS = [slug for slug, mechanism in catalogue.BY_SLUG.items() if mechanism.read_outs]
READ_OUTS = [
    (slug, read_out) for slug in SLUGS for read_out in catalogue.read_outs(slug)
]


@pytest.mark.covering("slug, read_out", "n_classes")
@pytest.mark.parametrize(("slug", "read_out"), READ_OUTS)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_export_says_what_prediction_says(
    slug: str, read_out: str, n_classes: int
) -> None:
    """Thousands of rows at the edges; labels agree unless the scores of two classes are
    within the tolerance.
    """
    grown = artifact(slug, n_classes)
    raw = raw_rows(grown.schema, 6_000, seed=3)
    expected = ours(grown, raw, read_out)
    *labels, probabilities = session(exported(grown, read_out)).run(None, raw)

    assert probabilities.dtype == np.float64
    assert np.abs(probabilities - expected).max() < 1e-12
    assert len(np.unique(expected, axis=0)) > 10, (
        "rows that all look alike would prove nothing"
    )
    if read_out == leaf_read_out.DRAW:
        assert labels == []
        return
    two_best = np.sort(expected, axis=1)[:, -2:]
    is_clear = two_best[:, 1] - two_best[:, 0] > 1e-12
    if read_out in (leaf_read_out.VOTE, leaf_read_out.SUM) or slug in ("rpf", "nbrt"):
        # sums of integers are exact in any order: the first of equal classes is
        # identical
        is_clear[:] = True
    classes = np.array(grown.schema.label.classes)
    assert np.array_equal(
        labels[0][is_clear], classes[expected.argmax(axis=1)][is_clear]
    )
    assert is_clear.mean() > 0.5


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("depth", [0, 1])
def test_smallest_trees_are_exported_too(slug: str, depth: int) -> None:
    grown = artifact(slug, 3, depth, 1)
    raw = raw_rows(grown.schema, 500, seed=4)

    assert session(exported(grown)).run(None, raw)[-1] == pytest.approx(
        ours(grown, raw), abs=1e-12
    )


@pytest.mark.parametrize("slug", ["rdt-mv", "srt"])
def test_the_deepest_trees_are_exported_too(slug: str) -> None:
    grown = artifact(slug, 2, limits.MAX_DEPTH, 1)
    raw = raw_rows(grown.schema, 100, seed=6)

    assert grown.forest.depth == limits.MAX_DEPTH
    assert session(exported(grown)).run(None, raw)[-1] == pytest.approx(
        ours(grown, raw), abs=1e-12
    )


@pytest.mark.parametrize("slug", ["mrf", "rdt-mv", "rpf", "nbrt"])
def test_another_implementation_of_the_standard_reads_the_same(slug: str) -> None:
    """The reference evaluator of ONNX shares no code with ONNX Runtime."""
    grown = artifact(slug, 3, 4, 3)
    raw = raw_rows(grown.schema, 40, seed=5)
    proto = onnx.load_from_string(exported(grown))
    labels, probabilities = ReferenceEvaluator(proto).run(None, raw)

    assert probabilities == pytest.approx(ours(grown, raw), abs=1e-12)
    assert labels.tolist() == session(exported(grown)).run(None, raw)[0].tolist()


@pytest.mark.parametrize("slug", SLUGS)
def test_an_exported_model_predicts_a_single_row_as_in_a_batch(slug: str) -> None:
    """The last bits may differ: a runtime may add and exponentiate in another order."""
    grown = artifact(slug, 5)
    raw = raw_rows(grown.schema, 20, seed=6)
    requested = session(exported(grown))
    together = requested.run(None, raw)[-1]
    alone = [
        requested.run(
            None, {name: cells[row : row + 1] for name, cells in raw.items()}
        )[-1][0]
        for row in range(20)
    ]

    assert np.array(alone) == pytest.approx(together, abs=1e-14)
    assert requested.run(None, {name: cells[:0] for name, cells in raw.items()})[
        -1
    ].shape == (0, 5)


def test_votes_that_tie_go_to_the_first_class() -> None:
    grown = artifact("rdt-mv", 2)
    raw = raw_rows(grown.schema, 4_000, seed=7)
    expected = ours(grown, raw)
    is_tie = expected[:, 0] == expected[:, 1]
    labels, probabilities = session(exported(grown)).run(None, raw)

    assert is_tie.any()
    assert np.array_equal(probabilities[is_tie], expected[is_tie])
    assert set(labels[is_tie].tolist()) == {"0é"}


def test_inputs_are_the_columns_and_outputs_keep_out_of_their_way() -> None:
    """One column is named ``label``, and another one is named like an internal value."""
    grown = artifact("mrf")
    requested = session(exported(grown))
    shapes = {
        tensor.name: (tensor.type, tensor.shape) for tensor in requested.get_inputs()
    }

    assert list(shapes) == [feature.name for feature in grown.schema.features]
    assert shapes["count"] == ("tensor(double)", ["n_rows", 1])
    assert shapes["label"] == ("tensor(string)", ["n_rows", 1])
    assert [output.name for output in requested.get_outputs()] == [
        "label_",
        "probabilities",
    ]
    assert [output.shape for output in requested.get_outputs()] == [
        ["n_rows"],
        ["n_rows", 2],
    ]


def test_drawn_labels_are_left_to_the_caller() -> None:
    outputs = session(exported(artifact("rdt-pa"))).get_outputs()

    assert [output.name for output in outputs] == ["probabilities"]


@pytest.mark.parametrize("slug", SLUGS)
def test_guarantee_receipt_and_schema_travel_with_the_model(slug: str) -> None:
    grown = artifact(slug)
    facts = session(exported(grown)).get_modelmeta().custom_metadata_map

    assert json.loads(facts["schema"]) == grown.schema.to_json()
    assert json.loads(facts["plan"]) == grown.plan.to_json()
    assert json.loads(facts["guarantee"]) == {"text": "ε = 200"}
    assert facts["receipt"] == "words"
    assert facts["artifact_sha256"] == DIGEST
    assert facts["read_out"] == catalogue.read_outs(slug)[0]


def test_same_artifact_gives_the_same_bytes() -> None:
    grown = artifact("rpf")
    again = released_forest.loads(released_forest.dumps(grown.forest, grown.metadata))

    assert exported(grown) == exported(again)
    assert exported(grown) != exported(artifact("mrf"))


def test_numbers_in_single_precision_are_refused() -> None:
    """Rounding to single precision could have moved them across a threshold."""
    grown = artifact("mrf")
    raw = raw_rows(grown.schema, 5, seed=9)
    raw["count"] = np.zeros((5, 1), dtype=np.float32)

    with pytest.raises(InvalidArgument, match=r"tensor\(double\)"):
        session(exported(grown)).run(None, raw)


class NewFamily(LeafFamily):
    """An algorithm family with a separate reader, unknown to the export."""

    def reader(self, forest: Forest, schema: Schema, read_out: str) -> Reader:
        return lambda columns: np.full(
            (columns.n_rows, schema.n_classes), 1 / schema.n_classes
        )


def test_family_without_a_form_in_onnx_is_not_supported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogue, "family", lambda slug: NewFamily())

    with pytest.raises(NotSupported, match="artifact format onnx"):
        exported(artifact("mrf"))


def test_read_out_that_the_model_does_not_offer_is_refused() -> None:
    with pytest.raises(ParameterInvalid) as refused:
        exported(artifact("rpf"), "mv")
    assert [(error.place, error.problem) for error in refused.value.problems] == [
        (("read_out",), "unknown-choice")
    ]


def _changed(slug: str, change: Callable[[dict[str, Any]], None]) -> Artifact:
    grown = artifact(slug)
    arrays = {name: array.copy() for name, array in grown.forest.arrays.items()}
    change(arrays)
    return Artifact(
        Forest(grown.plan, arrays), grown.schema, grown.plan, grown.metadata
    )


def test_number_split_by_equality_is_never_exported_as_something_else() -> None:
    """Growth never makes such a split; an export that guessed its meaning would be
    wrong without an error.
    """

    def change(arrays: dict[str, Any]) -> None:
        arrays["feature"][0, 0], arrays["equals"][0, 0] = 2, True

    with pytest.raises(AssertionError, match="thresholds only"):
        exported(_changed("mrf", change))


def test_any_set_of_codes_may_go_right() -> None:
    """Sets that growth draws seldom or never: no code, every code, one code, every
    second code.
    """
    masks = [0, 2**256 - 1, 1, int("10" * 128, 2)]

    def change(arrays: dict[str, Any]) -> None:
        arrays["feature"][:, 0] = 7  # 255 categories and OTHER
        for tree in range(len(arrays["right"])):
            mask = masks[tree % len(masks)]
            arrays["right"][tree, 0] = [
                mask >> 64 * word & (2**64 - 1) for word in range(4)
            ]

    grown = _changed("nbrt", change)
    raw = raw_rows(grown.schema, 2_000, seed=8)

    assert session(exported(grown)).run(None, raw)[-1] == pytest.approx(
        ours(grown, raw), abs=1e-12
    )
