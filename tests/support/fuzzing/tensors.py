"""Target that reads requests of the Open Inference Protocol: a JSON object and the
bytes of tensors behind it.
"""

import json
import math
import struct

from app.services import inference_requests
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.errors import GrovekeeperError
from tests.support.schemas import sized

_TEXT = (
    b'{"inputs": [{"name": "age", "shape": [2], "datatype": "INT64", "parameters": {"binary_data_size": 16}},'
    b' {"name": "sex", "shape": [2, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 9}},'
    b' {"name": "hours", "shape": [2], "datatype": "FP64", "data": [1.5, null]}]}'
)
_BYTES = struct.pack("<2q", 39, -1) + struct.pack("<I", 1) + b"M" + struct.pack("<I", 0)


def seeds() -> tuple[bytes, ...]:
    """The value of the header on the first line, if it is not empty, and then the body."""
    flat = (
        b'{"inputs": [{"name": "a", "shape": [1], "datatype": "BYTES", "data": ["x"]}],'
        b' "outputs": [{"name": "label"}]}'
    )
    all_columns = (
        b'{"model_name": "m", "inputs": [{"name": "a", "shape": [2, 3], "datatype": "UINT8",'
        b' "data": [1, 2, 3, 4, 5, 6], "parameters": {"content_type": "np"}}], "parameters": {"priority": 1}}'
    )
    return (
        str(len(_TEXT)).encode() + b"\n" + _TEXT + _BYTES,
        b"\n" + flat,
        b"\n" + all_columns,
    )


def run(data: bytes) -> bool:
    """What is accepted has as many cells as its shapes say, and means the same when it
    is written in JSON.
    """
    header, _, body = data.partition(b"\n")
    try:
        request, columns = inference_requests.read_request(
            body, [header.decode("latin-1")] if header else [], sized(3)
        )
    except GrovekeeperError:
        return False
    if len(columns) != len(request.inputs):  # one tensor has all columns
        (tensor,) = request.inputs
        assert {len(values) for values in columns.values()} == {tensor.shape[0]}
        return True
    for tensor in request.inputs:
        values = columns[tensor.name]
        cells = (
            values
            if isinstance(values, list)
            else [None if math.isnan(cell) else cell for cell in values.tolist()]
        )
        assert len(cells) == tensor.shape[0] <= forest_limits.MAX_PREDICTION_ROWS
        # numbers that JSON does not have
        if math.inf not in cells and -math.inf not in cells:
            written = {
                "name": tensor.name,
                "shape": tensor.shape[:1],
                "datatype": tensor.datatype,
                "data": cells,
            }
            # JSON of these has no fractions
            if not tensor.datatype.startswith(("FP", "BYTES")):
                of_json = bool if tensor.datatype == "BOOL" else int
                written["data"] = [
                    None if cell is None else of_json(cell) for cell in cells
                ]
            again, read = inference_requests.read_request(
                json.dumps({"inputs": [written]}).encode(), [], sized(3)
            )
            assert (read, len(again.inputs)) == ({tensor.name: written["data"]}, 1)
    return True
