"""A model of the service in MLflow's registry, with the receipt of its price.

    pip install "grovekeeper-client[mlflow]"
    python with_mlflow.py http://127.0.0.1:8731 KEY census@production FOLDER

The key has the role ``owner`` on the dataset. Runs, models and the database of the
registry are in FOLDER.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path

import mlflow

from grovekeeper_client import Grovekeeper
from grovekeeper_client.adapters import mlflow as adapter


def main() -> None:
    """Registers the model, takes it out of the registry again, and prints lines of
    JSON.
    """
    url, key, name, folder = sys.argv[1:]
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


main()
