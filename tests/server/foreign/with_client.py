"""Uploads a frame, predicts with pandas and Arrow, and trains both estimators; prints
the answers.

python with_client.py URL KEY DATASET MODEL
"""

import json
import sys

import pandas as pd
import pyarrow as pa

from grovekeeper_client import ApiProblem, Grovekeeper
from grovekeeper_client.estimator import (
    PrivateForestClassifier,
    PrivateForestRegressor,
)

AGES = list(range(100))
ROWS = pd.DataFrame(
    {
        "age": AGES,
        "hours": [age / 2 for age in AGES],
        "sex": pd.Categorical(["Female", "Male"] * 50),
        "income": ["low"] * 50 + ["high"] * 50,
    }
)
ASKED = pd.DataFrame(
    {"age": [39, 70, 100], "hours": [40.5, None, 2.0], "sex": ["Male", None, "Female"]}
)


class Polars:
    """Gives texts as views, as polars does."""

    def __init__(self, table: pa.Table) -> None:
        views = pa.array(table.column("sex").to_pylist(), pa.string_view())
        self._table = table.set_column(table.column_names.index("sex"), "sex", views)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def main() -> None:
    """Prints one line for each step."""
    url, key, name, model_name = sys.argv[1:]
    service = Grovekeeper(url, key)
    dataset, model = service.dataset(name), service.model(model_name)
    print(json.dumps(dataset.upload(ROWS)["rows"]))
    print(json.dumps(model.predict(ASKED).tolist()))
    table = pa.Table.from_pandas(ASKED, preserve_index=False)
    for asked in (table, Polars(table)):
        print(json.dumps(model.predict(asked).to_pylist()))
    forest = PrivateForestClassifier(name, epsilon="0.1", service=service).fit()
    print(json.dumps(sorted(map(str, forest.classes_))))
    numbers = ROWS[["age", "hours"]]
    regressor = PrivateForestRegressor(
        "stays",
        50,
        delta="1e-6",
        upload=True,
        bounds=(0, 100),
        target_bounds=(0, 10),
        service=service,
    ).fit(numbers, ROWS["age"] / 10)
    print(json.dumps(regressor.predict(numbers).tolist()))
    try:
        dataset.upload(ROWS.assign(hours="170,5"))
    except ApiProblem as problem:
        print(json.dumps("hours: not a number" in str(problem)))


main()
