"""Artifacts: equal bytes for equal forests, and rejection of every content that
prediction could not handle.
"""

import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as tensors

from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.forest.read import ArtifactInvalid
from grovekeeper_forests.trees.leaf_read_out import PooledSums
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {
        "name": "height",
        "type": "numeric",
        "lower": -1e300,
        "upper": 0.1,
        "missing": True,
    },
    {"name": "colour", "type": "categorical", "categories": ["red", "é", "0"]},
    classes=["a", "b", "c"],
)


def forest(slug: str = "mrf", n_rows: int = 40, **parameters: object) -> Forest:
    shape = {"n_estimators": 2, "max_depth": 3, **parameters}
    terms = (
        Terms(Fraction(1), "gdp", Fraction(1, 10**6))
        if slug == "nbrt"
        else Terms(Fraction(1))
    )
    settled = plan(PlanRequest(slug, shape, terms, 100), SCHEMA)
    generator = np.random.default_rng(3)
    columns = SanitisedColumns(
        (
            generator.uniform(-1, 0.1, n_rows),
            generator.integers(0, 3, n_rows).astype(np.int32),
        ),
        n_rows,
    )
    y = generator.integers(0, 3, n_rows).astype(np.int32)
    row_ids = generator.integers(0, 256, (n_rows, 16), dtype=np.uint8)
    rows = SanitisedRows(columns, y, row_ids)
    return grow(settled, SCHEMA, rows, SystemRandomness(), on_tree_done=lambda: None)


ROW = SanitisedColumns((np.zeros(1), np.zeros(1, dtype=np.int32)), 1)
METADATA = {
    "schema": SCHEMA.to_json(),
    "guarantee": {"text": "ε = 1"},
    "receipt": "words",
}


@pytest.mark.parametrize("slug", ["mrf", "rdt-pa", "rpf", "nbrt", "bms-rf"])
def test_the_memory_of_a_forest_is_that_of_its_arrays_and_of_each_read_out_that_was_used(
    slug: str,
) -> None:
    grown = forest(slug)
    released = sum(array.nbytes for array in grown.arrays.values())
    predictor = Predictor(grown, SCHEMA)
    sizes = [predictor.memory_bytes()]
    for read_out in predictor.read_outs:
        predictor.probabilities(ROW, read_out=read_out)
        sizes.append(predictor.memory_bytes())
    assert sizes[0] == released
    assert sizes[1] >= released + grown.plan.n_trees * 2**3 * 8, (
        "at least one float for each leaf"
    )
    assert sizes == sorted(sizes)
    predictor.probabilities(ROW)
    assert predictor.memory_bytes() == sizes[-1]


@pytest.mark.parametrize("slug", ["mrf", "rpf"])
def test_prediction_keeps_the_values_of_leaves_once(slug: str) -> None:
    predictor = Predictor(forest(slug), SCHEMA)
    predictor.prepare()
    (reader,) = predictor._readers.values()
    assert isinstance(reader, PooledSums)
    assert np.shares_memory(reader.sums.values, reader.sums.packed.trees.values)


@pytest.mark.parametrize("slug", ["mrf", "rdt-pa"])
@pytest.mark.parametrize("depth", [0, 3])
def test_an_artifact_survives_serialization(slug: str, depth: int) -> None:
    grown = forest(slug, max_depth=depth)
    artifact = released_forest.loads(released_forest.dumps(grown, METADATA))

    for name in ("feature", "threshold", "equals", "counts"):
        before, after = grown.arrays[name], artifact.forest.arrays[name]
        assert np.array_equal(before, after)
        assert before.dtype == after.dtype
    assert artifact.plan == grown.plan == artifact.forest.plan
    assert artifact.schema == SCHEMA
    assert artifact.metadata["guarantee"] == {"text": "ε = 1"}


def test_bytes_are_a_function_of_forest_and_metadata() -> None:
    grown = forest()
    backwards = dict(reversed(METADATA.items()))

    assert released_forest.dumps(grown, METADATA) == released_forest.dumps(
        grown, backwards
    )
    again = released_forest.loads(released_forest.dumps(grown, METADATA))
    assert released_forest.dumps(again.forest, again.metadata) == released_forest.dumps(
        grown, METADATA
    )


@pytest.mark.parametrize("slug", ["mrf", "rdt-ta"])
def test_number_of_bytes_does_not_depend_on_rows(slug: str) -> None:
    assert len(released_forest.dumps(forest(slug, 0), METADATA)) == len(
        released_forest.dumps(forest(slug, 500), METADATA)
    )


def test_only_public_things_are_stored() -> None:
    grown = forest(assignment="sharded")
    data = released_forest.dumps(grown, METADATA)

    assert set(tensors.load(data)) == {"feature", "threshold", "equals", "counts"}
    assert set(released_forest.loads(data).metadata) == {
        "format",
        "schema",
        "plan",
        "guarantee",
        "receipt",
    }
    assert set(grown.__dataclass_fields__) == {"plan", "arrays"}


def test_loaded_forest_predicts_like_the_grown_one() -> None:
    grown = forest()
    loaded = released_forest.loads(released_forest.dumps(grown, METADATA))
    columns = SanitisedColumns(
        (np.array([np.nan, 0.1, -1e300]), np.array([3, 0, 2], dtype=np.int32)), 3
    )

    assert np.array_equal(
        Predictor(grown, SCHEMA).probabilities(columns),
        loaded.predictor.probabilities(columns),
    )


def rewritten(
    change: Callable[[dict[str, Any], dict[str, np.ndarray]], object],
) -> bytes:
    data = released_forest.dumps(forest(), METADATA)
    arrays = tensors.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = json.loads(header["__metadata__"]["grovekeeper"])
    change(metadata, arrays)
    return tensors.save(arrays, metadata={"grovekeeper": json.dumps(metadata)})


def replace_in(target: dict, *path: str, value: object) -> None:
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value


BROKEN: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], object]] = {
    "feature too large": lambda m, a: a["feature"].__setitem__((0, 0), 2),
    "feature negative": lambda m, a: a["feature"].__setitem__((1, 6), -1),
    "feature of another type": lambda m, a: a.update(
        feature=a["feature"].astype(np.int64)
    ),
    "threshold of another type": lambda m, a: a.update(
        threshold=a["threshold"].astype(np.int16)
    ),
    "equals as bytes": lambda m, a: a.update(equals=a["equals"].astype(np.uint8)),
    "counts as floats": lambda m, a: a.update(counts=a["counts"].astype(np.float64)),
    "counts of fewer leaves": lambda m, a: a.update(counts=a["counts"][:, :4].copy()),
    "counts of another class list": lambda m, a: a.update(
        counts=a["counts"][:, :, :2].copy()
    ),
    "one tree less": lambda m, a: a.update(feature=a["feature"][:1].copy()),
    "flat nodes": lambda m, a: a.update(threshold=a["threshold"].ravel()),
    "no counts": lambda m, a: a.pop("counts"),
    "another tensor": lambda m, a: a.update(exact=np.zeros(1)),
    "another format": lambda m, a: m.update(format="grovekeeper-forest/2"),
    "no plan": lambda m, a: m.pop("plan"),
    "no schema": lambda m, a: m.pop("schema"),
    "a plan of other trees": lambda m, a: replace_in(m, "plan", "n_trees", value=3),
    "a plan of another depth": lambda m, a: replace_in(
        m, "plan", "parameters", "max_depth", value=2
    ),
    "an unknown algorithm": lambda m, a: replace_in(m, "plan", "algorithm", value="x"),
    "a schema that breaks a rule": lambda m, a: m["schema"]["features"][0].update(
        upper=-2e300
    ),
    "a schema with a surprise": lambda m, a: m["schema"]["features"][0].update(
        surprise=1
    ),
    "a schema of fewer features": lambda m, a: (
        m["schema"]["features"].pop(),
        a["feature"].fill(1),
    ),
    "a schema that is no object": lambda m, a: m.update(schema="census"),
    "a bound beyond any double": lambda m, a: m["schema"]["features"][0].update(
        lower=-(10**400)
    ),
    "half of a surrogate pair": lambda m, a: m.update(receipt="\ud800"),
    "a number that JSON does not have": lambda m, a: replace_in(
        m, "guarantee", "epsilon", value=float("nan")
    ),
    "features that are no list": lambda m, a: m["schema"].update(features=7),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_artifact_that_could_mislead_prediction_is_refused(
    change: Callable[..., object],
) -> None:
    with pytest.raises(ArtifactInvalid):
        released_forest.loads(rewritten(change))


def test_unchanged_rewriting_is_accepted() -> None:
    assert (
        released_forest.loads(rewritten(lambda metadata, arrays: None)).schema == SCHEMA
    )


def test_foreign_bytes_are_refused() -> None:
    data = released_forest.dumps(forest(), METADATA)
    plain = tensors.save({"counts": np.zeros(3)})
    other = tensors.save({"counts": np.zeros(3)}, metadata={"grovekeeper": "[]"})
    nested = tensors.save(
        {"counts": np.zeros(3)}, metadata={"grovekeeper": "[" * 100_000}
    )
    for broken in (
        nested,
        b"",
        data[:-1],
        data[:100],
        data + b"\0",
        b"\x80\x04N.",
        b"PK\x03\x04" + data,
        plain,
        other,
    ):
        with pytest.raises(ArtifactInvalid) as refused:
            released_forest.loads(broken)
        assert str(refused.value) == "the bytes are not a valid model artifact"


@cache
def sample() -> bytes:
    return released_forest.dumps(forest(), METADATA)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_are_refused_or_still_safe(data: st.DataObject) -> None:
    original = bytearray(sample())
    for _ in range(data.draw(st.integers(1, 4))):
        original[data.draw(st.integers(0, len(original) - 1))] = data.draw(
            st.integers(0, 255)
        )
    columns = SanitisedColumns(
        (np.array([0.0, np.nan]), np.array([1, 3], dtype=np.int32)), 2
    )
    try:
        artifact = released_forest.loads(bytes(original))
    except ArtifactInvalid:
        return
    probabilities = artifact.predictor.probabilities(columns)
    assert probabilities.shape == (2, 3)
    assert np.all(np.isfinite(probabilities))
