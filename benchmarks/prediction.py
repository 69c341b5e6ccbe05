"""Measures the speed of prediction in one process, as ratios to scikit-learn and ONNX
Runtime on one thread.

Run ``python -m benchmarks.prediction``. Forests are full trees with random splits of 14
numbers and two classes. Our side begins with sanitised numbers and ends with
probabilities, so it includes the search of bins. ONNX Runtime runs our export of the
same forest, and scikit-learn a forest of as many trees of the same depth.
"""

from fractions import Fraction

import numpy as np
import onnxruntime
from sklearn.ensemble import RandomForestClassifier

from benchmarks.kernels import compare
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.onnx import model
from grovekeeper_forests.releases.forest.predictor import Predictor
from grovekeeper_forests.releases.forest.price import PlanRequest, plan

_N_FEATURES = 14
_SCHEMA = Schema(
    tuple(Feature(f"x{index}", "numeric", upper=1.0) for index in range(_N_FEATURES)),
    Label("y", ("no", "yes")),
)


def random_forest(n_trees: int, depth: int) -> released_forest.Artifact:
    """An artifact with random splits and counts."""
    rng = np.random.default_rng(0)
    planned = plan(
        PlanRequest(
            "mrf", {"n_estimators": n_trees, "max_depth": depth}, Terms(Fraction(1))
        ),
        _SCHEMA,
    )
    nodes = (n_trees, 2**depth - 1)
    arrays = {
        "feature": rng.integers(0, _N_FEATURES, nodes, dtype=np.int32),
        "threshold": rng.integers(
            0, int(planned.parameters["n_bins"]) - 1, nodes, dtype=np.uint8
        ),
        "equals": np.zeros(nodes, dtype=np.bool_),
        "counts": rng.integers(0, 100, (n_trees, 2**depth, 2)),
    }
    return released_forest.loads(
        released_forest.dumps(Forest(planned, arrays), {"schema": _SCHEMA.to_json()})
    )


def compare_forests(n_trees: int, depth: int, n_rows: int) -> None:
    """Prints the ratios for one forest and one number of rows."""
    artifact, rng = random_forest(n_trees, depth), np.random.default_rng(1)
    values = rng.random((n_rows, _N_FEATURES))
    columns = SanitisedColumns(
        tuple(np.ascontiguousarray(column) for column in values.T), n_rows
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.dumps(artifact, digest="0" * 64), options
    )
    inputs = {
        f"x{index}": column[:, np.newaxis]
        for index, column in enumerate(columns.columns)
    }
    peer = RandomForestClassifier(n_trees, max_depth=depth, n_jobs=1, random_state=0)
    peer.fit(rng.random((20_000, _N_FEATURES)), rng.integers(0, 2, 20_000))
    floats = values.astype(np.float32)

    def ours() -> object:
        return Predictor(artifact.forest, _SCHEMA).probabilities(columns)

    name = f"{n_rows:,} rows, {n_trees} trees of depth {depth}"
    compare(
        f"{name}; scikit-learn predict_proba", ours, lambda: peer.predict_proba(floats)
    )
    compare(
        f"{name}; ONNX Runtime", ours, lambda: session.run(["probabilities"], inputs)
    )


def main() -> None:
    """Prints all ratios."""
    print(
        f"{'median of the paired ratios; above 1: ours is faster':<72} {'ratio':>9}   (range)"
    )
    for n_trees, depth in ((100, 8), (400, 6)):
        for n_rows in (1, 100, 100_000):
            compare_forests(n_trees, depth, n_rows)


if __name__ == "__main__":
    main()
