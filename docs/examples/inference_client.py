"""Predicts with ``tritonclient``, a client of the Open Inference Protocol, as JSON and
as binary tensors.

    pip install 'tritonclient[http]'
    python docs/examples/inference_client.py http://127.0.0.1:8731 KEY census@production

The model has the columns ``age``, ``hours`` and ``sex``. A missing number is NaN, a
missing category the empty text.
"""

import sys
from urllib.parse import urlsplit

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

COLUMNS = {
    "age": ("INT64", np.array([39, 70, 101], dtype=np.int64)),
    "hours": ("FP64", np.array([40.5, np.nan, 2.0])),
    "sex": ("BYTES", np.array([b"Male", b"", b"else"], dtype=np.object_)),
}


def inputs(*, binary: bool) -> list[InferInput]:
    """One tensor per column. JSON has no NaN, so a JSON request leaves the missing
    number at zero.
    """
    tensors = []
    for name, (datatype, values) in COLUMNS.items():
        tensor = InferInput(name, [len(values)], datatype)
        tensor.set_data_from_numpy(
            values if binary else np.nan_to_num(values) if name == "hours" else values,
            binary,
        )
        tensors.append(tensor)
    return tensors


def main() -> None:
    """Asks whether the model is ready, predicts twice, and prints the labels and the
    probabilities.
    """
    url, key, model = sys.argv[1:]
    headers = {"Authorization": f"Bearer {key}"}
    client = InferenceServerClient(urlsplit(url).netloc)
    print(
        "ready",
        client.is_server_ready() and client.is_model_ready(model, headers=headers),
    )
    for binary in (True, False):
        outputs = [
            InferRequestedOutput(name, binary_data=binary)
            for name in ("label", "probabilities")
        ]
        answer = client.infer(  # adds to the headers
            model,
            inputs(binary=binary),
            outputs=outputs,
            headers=dict(headers),
            priority=1,
            timeout=5_000_000,
        )
        labels = [
            text.decode() if isinstance(text, bytes) else text
            for text in answer.as_numpy("label")
        ]
        print("binary" if binary else "json", *labels)
        for row in answer.as_numpy("probabilities"):
            print(*(repr(float(probability)) for probability in row))


main()
