"""Predicts with KServe's client, with JSON and with bytes; prints ``labels`` and
``probabilities`` of each.

python with_kserve.py URL KEY MODEL
"""

import asyncio
import json
import sys

import numpy as np
from kserve import (
    InferenceRESTClient,
    InferInput,
    InferRequest,
    InferResponse,
    RESTConfig,
)

COLUMNS = {
    "age": ("INT32", np.array([39, 70, 101], dtype=np.int32)),
    "hours": ("FP32", np.array([40.5, 2.0, 17.25], dtype=np.float32)),
    "sex": ("BYTES", np.array(["Male", "", "else"], dtype=np.object_)),
}


def request(model: str, *, binary: bool) -> InferRequest:
    """A tensor for each column."""
    inputs = []
    for name, (datatype, values) in COLUMNS.items():
        tensor = InferInput(name, [len(values)], datatype)
        tensor.set_data_from_numpy(values, binary_data=binary)
        inputs.append(tensor)
    return InferRequest(model, inputs, parameters={"priority": 1})


async def main() -> None:
    """Asks without a key whether the server is ready, and with it whether the model is,
    and predicts twice.
    """
    url, key, model = sys.argv[1:]
    headers = {"Authorization": f"Bearer {key}"}
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(url)
    assert await client.is_server_ready(url)
    assert await client.is_model_ready(url, model, headers=headers)
    for binary in (False, True):
        answer = await client.infer(
            url, request(model, binary=binary), model_name=model, headers=headers
        )
        assert isinstance(answer, InferResponse)
        outputs = {output.name: output.as_numpy() for output in answer.outputs}
        print(
            json.dumps(
                [
                    [str(label) for label in outputs["label"]],
                    outputs["probabilities"].tolist(),
                ]
            )
        )
    await client.close()


asyncio.run(main())
