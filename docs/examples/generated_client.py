"""Trains and predicts with a client that openapi-python-client generated from
``openapi/openapi.json``.

    openapi-python-client generate --path openapi/openapi.json --meta none --output-path
    grovekeeper_generated python docs/examples/generated_client.py http://127.0.0.1:8731
    KEY

The folder of ``grovekeeper_generated`` has to be on ``PYTHONPATH``. The generator makes
no function for uploads, whose bodies are CSV.
"""

import secrets
import sys
import time

from grovekeeper_generated import AuthenticatedClient
from grovekeeper_generated.api.datasets import declare_dataset
from grovekeeper_generated.api.models import predict
from grovekeeper_generated.api.training import show_job, train_model
from grovekeeper_generated.models import DatasetIn, PredictIn, TrainIn

DECLARATION = {
    "name": f"people-{secrets.token_hex(6)}",
    "schema": {
        "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 120}],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "budget": {"accountant": "pure", "epsilon": "3"},
}
ROWS = "age,income\n" + "".join(
    f"{age},{'high' if age > 50 else 'low'}\n" for age in range(20, 80)
)


def main(url: str, key: str) -> None:
    """Declares, uploads, trains and predicts."""
    client = AuthenticatedClient(
        base_url=url, token=key, raise_on_unexpected_status=True
    )
    dataset = declare_dataset.sync(client=client, body=DatasetIn.from_dict(DECLARATION))
    uploaded = client.get_httpx_client().post(
        f"/datasets/{dataset.id}/rows",
        content=ROWS,
        headers={"Content-Type": "text/csv"},
    )
    uploaded.raise_for_status()
    small = {"n_estimators": 2, "max_depth": 2}
    request = {
        "dataset": dataset.id,
        "algorithm": "rdt-ta",
        "epsilon": "1",
        "parameters": small,
    }
    accepted = train_model.sync(
        client=client,
        body=TrainIn.from_dict(request),
        idempotency_key=secrets.token_hex(8),
    )
    while (job := show_job.sync(accepted.job_id, client=client)).state in (
        "queued",
        "running",
    ):
        time.sleep(0.2)
    rows = {"rows": [{"age": 30}, {"age": 70}]}
    predicted = predict.sync(
        job.model_id, client=client, body=PredictIn.from_dict(rows)
    )
    print(job.state, len(predicted.labels))


if __name__ == "__main__":
    main(*sys.argv[1:])
