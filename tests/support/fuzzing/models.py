"""Targets that read model artifacts: as bytes, and as a header and tensors that belong
together.
"""

import json
from fractions import Fraction
from functools import cache

import numpy as np
import rfc8785

from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.sanitiser import (
    SanitisedColumns,
    SanitisedRows,
    sanitise_prediction_rows,
)
from grovekeeper_forests.data.schema import Feature
from grovekeeper_forests.noise.randomness import SystemRandomness
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.draw import grow
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.support.schemas import schema_of

_SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": -1, "upper": 0.1, "missing": True},
    {"name": "colour", "type": "categorical", "categories": ["red", "é", "0"]},
    classes=["a", "b", "c"],
)
_BETWEEN = b"\x00"
"""Separates metadata, header and tensors of an input in parts; JSON has no such byte."""


def _forest(slug: str) -> Forest:
    settled = plan(
        PlanRequest(slug, {"n_estimators": 2, "max_depth": 2}, Terms(Fraction(1)), 100),
        _SCHEMA,
    )
    columns = SanitisedColumns(
        (np.linspace(-1, 0.1, 12), np.arange(12, dtype=np.int32) % 3), 12
    )
    rows = SanitisedRows(
        columns, np.arange(12, dtype=np.int32) % 3, np.zeros((12, 16), np.uint8)
    )
    return grow(settled, _SCHEMA, rows, SystemRandomness(), on_tree_done=lambda: None)


@cache
def seeds() -> tuple[bytes, ...]:
    metadata = {
        "schema": _SCHEMA.to_json(),
        "guarantee": {"text": "ε = 1"},
        "receipt": "words",
    }
    return tuple(
        released_forest.dumps(_forest(slug), metadata) for slug in ("mrf", "rdt-pa")
    )


def seeds_in_parts() -> tuple[bytes, ...]:
    return tuple(map(_parts, seeds()))


def _parts(artifact: bytes) -> bytes:
    end = 8 + int.from_bytes(artifact[:8], "little")
    header = json.loads(artifact[8:end])
    metadata: str = header.pop("__metadata__")["grovekeeper"]
    return (
        metadata.encode()
        + _BETWEEN
        + json.dumps(header).encode()
        + _BETWEEN
        + artifact[end:]
    )


def run_parts(data: bytes) -> bool:
    """Reads an artifact whose lengths fit its parts, so that changes get past the
    container.
    """
    metadata, header, tensors = (*data.split(_BETWEEN, 2), b"", b"")[:3]
    text = json.dumps({"grovekeeper": metadata.decode("utf-8", "replace")})
    framed = b'{"__metadata__":' + text.encode() + b"," + header.lstrip()[1:]
    return run(len(framed).to_bytes(8, "little") + framed + tensors)


def run(data: bytes) -> bool:
    """An artifact is refused, or it predicts finite probabilities that add up to 1, and
    is written and read again.
    """
    try:
        artifact = released_forest.loads(data)
    except released_forest.ArtifactInvalid:
        return False
    rows = [
        {
            feature.name: cell
            for feature in artifact.schema.features
            for cell in [_cell(feature, n)]
        }
        for n in range(3)
    ]
    columns = sanitise_prediction_rows(artifact.schema, rows)
    probabilities = artifact.predictor.probabilities(columns)
    assert probabilities.shape == (3, artifact.schema.n_classes)
    assert np.isfinite(probabilities).all()
    assert np.allclose(probabilities.sum(axis=1), 1)
    codes = artifact.predictor.labels(probabilities)
    assert ((codes >= 0) & (codes < artifact.schema.n_classes)).all()
    json.dumps(artifact.metadata, ensure_ascii=False, allow_nan=False).encode()
    try:
        written = released_forest.dumps(
            artifact.forest, {"schema": artifact.schema.to_json()}
        )
    except rfc8785.IntegerDomainError:
        # a count of the event beyond 2^53, which no plan of the service has
        return True
    again = released_forest.loads(written)
    assert again.plan == artifact.plan
    assert again.schema == artifact.schema
    return True


def _cell(feature: Feature, number: int) -> object:
    if feature.type == "categorical":
        return (*feature.categories, "another")[number % (len(feature.categories) + 1)]
    return (feature.lower, feature.upper, 0)[number]
