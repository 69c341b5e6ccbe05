"""A model of the service in MLflow's registry, with the receipt of its price.

    pip install "grovekeeper-client[mlflow]"
    python with_mlflow.py http://127.0.0.1:8731 KEY census@production FOLDER ROWS.csv

The key has the role ``owner`` on the dataset. Runs, models and the database of the
registry are in FOLDER. ROWS.csv has the columns of the model.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path

import mlflow
import pandas as pd

from grovekeeper_client import Grovekeeper
from grovekeeper_client.adapters import mlflow as adapter


def main() -> None:
    """Registers the model, takes it out of the registry again, predicts with it, and
    prints lines of JSON.
    """
    url, key, name, folder, file = sys.argv[1:]
    mlflow.set_tracking_uri(Path(folder).absolute().as_uri())
    model = Grovekeeper(url, key).model(name)
    registered = adapter.register(model, "census-income")
    client = mlflow.MlflowClient()
    version = client.get_model_version("census-income", registered.version)
    print(json.dumps(dict(version.tags)))
    taken = Path(mlflow.artifacts.download_artifacts("models:/census-income/1"))
    print(json.dumps(sha256((taken / "model.onnx").read_bytes()).hexdigest()))
    receipt = mlflow.artifacts.download_artifacts(
        run_id=version.run_id, artifact_path="receipt"
    )
    print(json.dumps(sorted(file.name for file in Path(receipt).iterdir())))
    print(json.dumps(receipt))
    rows = pd.read_csv(file)
    categories = rows.select_dtypes(exclude="number")
    rows = rows.fillna(dict.fromkeys(categories, ""))
    answer = mlflow.pyfunc.load_model("models:/census-income/1").predict(rows)
    print(json.dumps({output: array.tolist() for output, array in answer.items()}))


main()
