"""Uploads a frame, predicts with pandas and Arrow, and trains an estimator; prints the answers.

python with_client.py URL KEY DATASET MODEL
"""

import json
import sys

import pandas as pd
import pyarrow as pa

from grovekeeper_client import ApiProblem, Grovekeeper
from grovekeeper_client.estimator import PrivateForestClassifier

AGES = list(range(100))
ROWS = pd.DataFrame(
    {
        "age": AGES,
        "hours": [age / 2 for age in AGES],
        "sex": pd.Categorical(["Female", "Male"] * 50),
        "income": ["low"] * 50 + ["high"] * 50,
    }
)
ASKED = pd.DataFrame({"age": [39, 70, 100], "hours": [40.5, None, 2.0], "sex": ["Male", None, "Female"]})


def main() -> None:
    """Prints one line for each step."""
    url, key, name, model_name = sys.argv[1:]
    service = Grovekeeper(url, key)
    dataset, model = service.dataset(name), service.model(model_name)
    print(json.dumps(dataset.upload(ROWS)["rows"]))
    print(json.dumps(model.predict(ASKED).tolist()))
    print(json.dumps(model.predict(pa.Table.from_pandas(ASKED, preserve_index=False)).to_pylist()))
    forest = PrivateForestClassifier(name, epsilon="0.1", service=service).fit()
    print(json.dumps(sorted(map(str, forest.classes_))))
    try:
        dataset.upload(ROWS.assign(hours="170,5"))
    except ApiProblem as problem:
        print(json.dumps("hours: not a number" in str(problem)))


main()
