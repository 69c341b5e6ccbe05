"""Predicts with the codecs of MLServer: a data frame, and for a model of numbers an
array; prints each answer.

python with_mlserver.py URL KEY MODEL MODEL_OF_NUMBERS
"""

import json
import sys
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
from mlserver.codecs import NumpyCodec, NumpyRequestCodec, PandasCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

ROWS = pd.DataFrame(
    {
        "age": [39, 70, 101],
        "hours": [40.5, np.nan, 2.0],
        "sex": pd.Series(["Male", "", "else"], dtype=object),
    }
)
NUMBERS = np.array([[39, 40.5], [70, 2.0], [101, 17.25]])


def predict(url: str, key: str, model: str, request: InferenceRequest) -> None:
    """Sends a request as MLServer's documentation does, and prints labels and
    probabilities.
    """
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = request.model_dump_json(by_alias=True).encode()
    with urlopen(
        Request(f"{url}/v2/models/{quote(model)}/infer", body, headers)
    ) as answer:
        outputs = {
            output.name: output
            for output in InferenceResponse.model_validate_json(answer.read()).outputs
        }
    shares = NumpyCodec.decode_output(outputs["probabilities"])
    print(json.dumps([StringCodec.decode_output(outputs["label"]), shares.tolist()]))


url, key, model, of_numbers = sys.argv[1:]
predict(url, key, model, PandasCodec.encode_request(ROWS, use_bytes=False))
predict(url, key, of_numbers, NumpyRequestCodec.encode_request(NUMBERS))
