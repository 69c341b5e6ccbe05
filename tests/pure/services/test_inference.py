"""Requests of the Open Inference Protocol, byte by byte: those of a known client, and
hostile ones.

The first two requests are the bytes that tritonclient 2.73.0 sends for these columns.
"""

import json
import math
import struct
from typing import Any

import pytest

from app.core import limits
from app.core.errors import InvalidRequest, MalformedRequest, TooLarge
from app.services import inference_requests
from app.services.inference_requests import Cells, read_request
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.errors import GrovekeeperError, ParameterInvalid
from tests.support.schemas import schema_of
from tests.support.set_limits import SetLimit

_OF_TRITONCLIENT = (
    b'{"id":"7","inputs":[{"name":"age","shape":[3],"datatype":"INT64","parameters":{"binary_data_size":24}},'
    b'{"name":"sex","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":21}},'
    b'{"name":"hours","shape":[3,1],"datatype":"FP64","parameters":{"binary_data_size":24}}],'
    b'"parameters":{"binary_data_output":true}}'
    b"'\x00\x00\x00\x00\x00\x00\x004\x00\x00\x00\x00\x00\x00\x00\xf9\xff\xff\xff\xff\xff\xff\xff"
    b"\x04\x00\x00\x00Male\x00\x00\x00\x00\x05\x00\x00\x00\xc3\x96zge"
    b"\x00\x00\x00\x00\x00@D@\x00\x00\x00\x00\x00\x00\xf8\x7f\x9cu\x00\x88<\xe47~"
)
_JSON_OF_TRITONCLIENT = (
    b'{"id":"7","inputs":[{"name":"age","shape":[3],"datatype":"INT64","data":[39,52,-7]},'
    b'{"name":"sex","shape":[3],"datatype":"BYTES","data":["Male","","\\u00D6zge"]},'
    b'{"name":"hours","shape":[3,1],"datatype":"FP64","data":[40.5,2.0,1e+300]}],'
    b'"outputs":[{"name":"label","parameters":{"binary_data":false}},'
    b'{"name":"probabilities","parameters":{"binary_data":true}}]}'
)
_PEOPLE = {"age": [39, 52, -7], "sex": ["Male", None, "Özge"]}


def sized(n_features: int) -> Schema:
    """A schema of so many columns of numbers, of which the first have these names."""
    names = ["a", "age", "hours", "sex", *(f"x{n}" for n in range(4, n_features))]
    features = (
        {"name": name, "type": "numeric", "lower": 0, "upper": 1}
        for name in names[:n_features]
    )
    return schema_of(*features, classes=("c0", "c1"))


def _listed(cells: Cells) -> list[Any]:
    return (
        cells
        if isinstance(cells, list)
        else [None if math.isnan(cell) else cell for cell in cells.tolist()]
    )


def test_bytes_of_a_known_client_are_read() -> None:
    request, columns = read_request(_OF_TRITONCLIENT, ["314"], sized(4))
    assert {name: _listed(cells) for name, cells in columns.items()} == {
        **_PEOPLE,
        "hours": [40.5, None, 1e300],
    }
    assert request.parameters is not None
    assert (request.id, request.parameters.binary_data_output, request.outputs) == (
        "7",
        True,
        None,
    )


def test_json_of_a_known_client_is_read() -> None:
    request, columns = read_request(_JSON_OF_TRITONCLIENT, [], sized(4))
    assert columns == {**_PEOPLE, "hours": [40.5, 2.0, 1e300]}
    assert request.outputs is not None
    assert [(item.name, item.parameters and item.parameters.binary_data) for item in request.outputs] == [
        ("label", False), ("probabilities", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "cells"),
    [
        ("FP64", [3], [1, 2.5, None], [1, 2.5, None]),
        ("FP64", [2, 1], [[1], [None]], [1, None]),
        ("INT64", [0], [], []),
        ("INT8", [3], [-128, 127, None], [-128, 127, None]),
        ("BYTES", [2, 1], ["a", ""], ["a", None]),
    ],
)
def test_values_in_json_are_flat_or_nested(
    datatype: str, shape: list[int], data: Any, cells: list[object]
) -> None:
    assert read_request(_body(datatype, shape, data=data), [], sized(2))[1] == {
        "a": cells
    }


def _body(datatype: str, shape: object, **changes: object) -> bytes:
    return json.dumps(
        {"inputs": [{"name": "a", "datatype": datatype, "shape": shape, **changes}]}
    ).encode()


def _binary(
    datatype: str, shape: object, content: bytes, *, size: object = None
) -> tuple[bytes, list[str]]:
    text = _body(
        datatype,
        shape,
        parameters={"binary_data_size": len(content) if size is None else size},
    )
    return text + content, [str(len(text))]


_ONE = struct.pack("<d", 1.0)
_SIZE = "/inputs/0/parameters/binary_data_size"
_JSON = _body("FP64", [1], data=[1.0])

HOSTILE: dict[str, tuple[bytes, list[str], type[GrovekeeperError], str]] = {
    "a header beyond the body": (_JSON, [str(len(_JSON) + 1)], MalformedRequest, ""),
    "a negative header": (_JSON, ["-1"], MalformedRequest, ""),
    "a header with a sign": (_JSON, [f"+{len(_JSON)}"], MalformedRequest, ""),
    "a header in other digits": (_JSON, ["٣"], MalformedRequest, ""),
    "a huge header": (_JSON, ["9" * 5_000], MalformedRequest, ""),
    "an empty header": (_JSON, [""], MalformedRequest, ""),
    "two headers": (_JSON, [str(len(_JSON))] * 2, MalformedRequest, ""),
    "a header that cuts the object": (_JSON, [str(len(_JSON) - 1)], MalformedRequest, ""),
    "bytes that no tensor has": (_JSON + b"x", [str(len(_JSON))], MalformedRequest, ""),
    "a name twice": (b'{"inputs": [], "inputs": []}', [], MalformedRequest, ""),
    "NaN in JSON": (_JSON.replace(b"[1.0]", b"[NaN]"), [], MalformedRequest, ""),
    "a number of many digits": (_JSON.replace(b"[1.0]", b"[" + b"9" * 10_000 + b"]"), [], MalformedRequest, ""),
    "deep nesting": (b"[" * 20_000, [], MalformedRequest, ""),
    "half of a surrogate pair": (_JSON[:-1] + rb', "id": "\ud800"}', [], MalformedRequest, ""),
    "a name with half of a pair": (_JSON[:-1] + rb', "\udfff": 1}', [], MalformedRequest, ""),
    "no object": (b"[]", [], InvalidRequest, "/inputs"),
    "no inputs": (b"{}", [], InvalidRequest, "/inputs"),
    "an input that is no object": (b'{"inputs": [1]}', [], InvalidRequest, "/inputs/0"),
    "an input without a shape": (b'{"inputs": [{"name": "a"}]}', [], InvalidRequest, "/inputs/0/shape"),
    "a side that is no number": (_body("FP64", [1, "x"], data=[]), [], InvalidRequest, "/inputs/0/shape/1"),
    "a name that is no text": (_JSON.replace(b'"a"', b"7"), [], InvalidRequest, "/inputs/0/name"),
    "a long id": (_JSON[:-1] + b', "id": "' + b"x" * 129 + b'"}', [], InvalidRequest, "/id"),
    "three outputs": (_JSON[:-1] + b', "outputs": [{"name": "label"}, 1, 2]}', [], InvalidRequest, "/outputs"),
    "a parameter of another type": (
        _JSON[:-1] + b', "parameters": {"binary_data_output": 1}}', [], InvalidRequest,
        "/parameters/binary_data_output",
    ),
    "parameters that are no object": (_JSON[:-1] + b', "parameters": []}', [], InvalidRequest, "/parameters"),
    "text in base64": (
        _body("BYTES", [1], data=["QQ=="], parameters={"content_type": "base64"}), [], InvalidRequest,
        "/inputs/0/parameters/content_type",
    ),
    "more bytes than there are": (*_binary("FP64", [1], _ONE, size=9), InvalidRequest, _SIZE),
    "a negative size": (*_binary("FP64", [1], _ONE, size=-8), InvalidRequest, _SIZE),
    "a huge size": (*_binary("FP64", [1], _ONE, size=2**70), InvalidRequest, _SIZE),
    "a size that is no number": (*_binary("FP64", [1], _ONE, size=True), InvalidRequest, _SIZE),
    "fewer bytes than the shape": (*_binary("FP64", [2], _ONE), InvalidRequest, "/inputs/0"),
    "a size without bytes": (_body("FP64", [1], parameters={"binary_data_size": 8}), [], InvalidRequest, _SIZE),
    "data and bytes": (
        _body("FP64", [1], data=[1.0], parameters={"binary_data_size": 0}), [], InvalidRequest, "/inputs/0",
    ),
    "neither data nor bytes": (_body("FP64", [1]), [], InvalidRequest, "/inputs/0"),
    "a shape that overflows": (_body("FP64", [2**62, 4], data=[]), [], InvalidRequest, "/inputs/0/shape"),
    "a shape of huge numbers": (_body("FP64", [2**80], data=[]), [], TooLarge, ""),
    "a negative shape": (_body("FP64", [-1], data=[]), [], InvalidRequest, "/inputs/0/shape"),
    "two negative sides": (_body("FP64", [-1, -1], data=[1.0]), [], InvalidRequest, "/inputs/0/shape"),
    "no side": (_body("FP64", [], data=[1.0]), [], InvalidRequest, "/inputs/0/shape"),
    "a row of three": (_body("FP64", [1, 3], data=[1.0, 2.0, 3.0]), [], InvalidRequest, "/inputs/0/shape"),
    "too many rows": (_body("FP64", [forest_limits.MAX_PREDICTION_ROWS + 1], data=[]), [], TooLarge, ""),
    "fewer values than the shape": (_body("FP64", [2], data=[1.0]), [], InvalidRequest, "/inputs/0"),
    "a boolean": (_body("FP64", [1], data=[True]), [], InvalidRequest, "/inputs/0/data"),
    "a fraction among integers": (_body("INT64", [1], data=[1.5]), [], InvalidRequest, "/inputs/0/data"),
    "an integer below its datatype": (_body("INT8", [2], data=[None, -129]), [], InvalidRequest, "/inputs/0/data"),
    "an integer above its datatype": (_body("UINT64", [1], data=[2**64]), [], InvalidRequest, "/inputs/0/data"),
    "a negative integer without a sign": (_body("UINT8", [1], data=[-1]), [], InvalidRequest, "/inputs/0/data"),
    "a number among strings": (_body("BYTES", [1], data=[1]), [], InvalidRequest, "/inputs/0/data"),
    "another datatype": (_body("BF16", [1], data=[1.0]), [], InvalidRequest, "/inputs/0/datatype"),
    "a number among booleans": (_body("BOOL", [1], data=[1]), [], InvalidRequest, "/inputs/0/data"),
    "a byte that is no boolean": (*_binary("BOOL", [2], b"\x01\x02"), InvalidRequest, "/inputs/0"),
    "half of a float": (*_binary("FP32", [1], b"\0\0"), InvalidRequest, "/inputs/0"),
    "all columns and one more": (_body("FP64", [1, 3], data=[1, 2, 3]), [], InvalidRequest, "/inputs/0/shape"),
    "too few numbers of all columns": (_body("FP64", [2, 2], data=[1, 2, 3]), [], InvalidRequest, "/inputs/0"),
    "texts of all columns": (_body("BYTES", [1, 2], data=["a", "b"]), [], InvalidRequest, "/inputs/0/shape"),
    "a string that ends early": (*_binary("BYTES", [1], struct.pack("<I", 4) + b"abc"), InvalidRequest, "/inputs/0"),
    "a string of four gigabytes": (*_binary("BYTES", [1], b"\xff\xff\xff\xffabc"), InvalidRequest, "/inputs/0"),
    "a string without its length": (*_binary("BYTES", [1], b"\x00\x00\x00"), InvalidRequest, "/inputs/0"),
    "strings and more": (*_binary("BYTES", [1], b"\x01\x00\x00\x00abc"), InvalidRequest, "/inputs/0"),
    "a string that is not UTF-8": (*_binary("BYTES", [1], b"\x01\x00\x00\x00\xff"), InvalidRequest, "/inputs/0"),
    "a column twice": (
        json.dumps({"inputs": json.loads(_JSON)["inputs"] * 2}).encode(), [], InvalidRequest, "/inputs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_request_is_refused_where_it_lies(name: str) -> None:
    body, lengths, kind, at = HOSTILE[name]
    with pytest.raises(kind) as refused:
        read_request(body, lengths, sized(2))
    if isinstance(refused.value, InvalidRequest):
        assert [error.at for error in refused.value.errors] == [at]


def test_infinities_and_nan_of_bytes_are_numbers_and_missing() -> None:
    body, lengths = _binary(
        "FP64", [3], struct.pack("<3d", math.inf, -math.inf, math.nan)
    )
    assert _listed(read_request(body, lengths, sized(2))[1]["a"]) == [
        math.inf,
        -math.inf,
        None,
    ]


def test_values_are_counted_before_they_are_built(
    set_limit: SetLimit,
) -> None:
    set_limit("MAX_PREDICTION_BODY_NODES", 5)
    with pytest.raises(TooLarge):
        read_request(_JSON, [], sized(2))


@pytest.mark.parametrize("n_inputs", [3, 270_000])
def test_more_tensors_than_a_model_has_columns_are_refused_before_they_are_built(
    n_inputs: int,
) -> None:
    """Each empty tensor costs more than a hundred times its bytes."""
    tensor = {"name": "a", "datatype": "FP64", "shape": [0], "data": []}
    with pytest.raises(TooLarge) as refused:
        read_request(json.dumps({"inputs": [tensor] * n_inputs}).encode(), [], sized(2))
    # The larger body is not even parsed: its values and names are counted.
    assert refused.value.limit == (
        2 if n_inputs == 3 else inference_requests._max_nodes(2)
    )


def test_rows_times_features_of_a_model_have_a_limit() -> None:
    for n_rows, n_features in ((501, 2_000), (10_001, 3)):
        with pytest.raises(TooLarge) as refused:
            read_request(
                _body("FP64", [n_rows], data=[1.0] * n_rows), [], sized(n_features)
            )
        assert refused.value.limit == n_rows - 1
        assert read_request(
            _body("FP64", [n_rows - 1], data=[1.0] * (n_rows - 1)),
            [],
            sized(n_features),
        )[1]


_FOREIGN = [
    ({"model_name": "m", "model_version": None}, {}),
    (
        {"parameters": {"content_type": "pd", "headers": {}}},
        {"parameters": {"content_type": "np"}},
    ),
    (
        {
            "parameters": {
                "timeout": 1_000,
                "priority": 1,
                "sequence_id": 7,
                "sequence_start": True,
            }
        },
        {"ragged": [1]},
    ),
    ({"parameters": None, "outputs": None, "id": None}, {"parameters": None}),
    (
        {
            "outputs": [
                {
                    "name": "label",
                    "x": 1,
                    "parameters": {"priority": 1, "classification": None},
                }
            ]
        },
        {"parameters": {}},
    ),
]


@pytest.mark.parametrize(("of_request", "of_input"), _FOREIGN)
def test_members_and_parameters_of_other_programs_are_ignored(
    of_request: dict[str, Any], of_input: dict[str, Any]
) -> None:
    body = json.loads(_body("FP64", [1], data=[1.0], **of_input)) | of_request
    assert read_request(json.dumps(body).encode(), [], sized(1))[1] == {"a": [1.0]}


@pytest.mark.parametrize(
    "parameters",
    [
        {"classification": 1},
        {"shared_memory_region": "r", "shared_memory_byte_size": 8},
        {"shared_memory_offset": 0},
    ],
)
def test_an_output_that_would_be_sent_otherwise_is_refused(
    parameters: dict[str, Any],
) -> None:
    outputs = [{"name": "probabilities"}, {"name": "label", "parameters": parameters}]
    body = json.loads(_body("FP64", [1], data=[1.0])) | {"outputs": outputs}
    with pytest.raises(InvalidRequest) as refused:
        read_request(json.dumps(body).encode(), [], sized(1))
    (error,) = refused.value.errors
    place = f"/outputs/1/parameters/{next(iter(parameters))}"
    assert (error.at, error.problem) == (place, "not-offered")


_HELD = {
    "FP16": ("<e", 0.5), "FP32": ("<f", -2.5), "FP64": ("<d", 0.1), "INT8": ("<b", -128), "INT16": ("<h", -300),
    "INT32": ("<i", 2**31 - 1), "INT64": ("<q", -(2**53)), "UINT8": ("<B", 255), "UINT16": ("<H", 65_535),
    "UINT32": ("<I", 2**32 - 1), "UINT64": ("<Q", 2**53), "BOOL": ("<?", True),
}  # fmt: skip


@pytest.mark.parametrize("datatype", _HELD)
def test_numbers_of_every_datatype_are_read_without_a_loss(datatype: str) -> None:
    form, value = _HELD[datatype]
    for n_rows in (1, limits.MAX_CELLS_AT_ONCE + 1):
        body, lengths = _binary(datatype, [n_rows], struct.pack(form, value) * n_rows)
        assert (
            _listed(read_request(body, lengths, sized(1))[1]["a"]) == [value] * n_rows
        )
        body = _body(datatype, [n_rows], data=[value] * n_rows)
        assert read_request(body, [], sized(1))[1] == {"a": [value] * n_rows}


def test_booleans_are_numbers_of_a_column_of_numbers_alone() -> None:
    schema = schema_of(
        {"name": "a", "type": "categorical", "categories": ["x"]}, classes=("c0", "c1")
    )
    for columns, kind in ((read_request(_body("BOOL", [1], data=[True]), [], schema)[1], bool),
                          (read_request(_body("BOOL", [1], data=[True]), [], sized(1))[1], int)):  # fmt: skip
        assert [type(cell) for cell in columns["a"]] == [kind]


@pytest.mark.parametrize("name", ["a", "age"])
def test_one_tensor_of_numbers_has_all_columns_in_declared_order(name: str) -> None:
    expected = {"a": [1, 3, 5], "age": [2, 4, 6]}
    content = struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    tensor: dict[str, Any] = {"name": name, "datatype": "FP32", "shape": [3, 2]}
    for data in ([1, 2, 3, 4, 5, 6], [[1, 2], [3, 4], [5, 6]]):
        assert (
            read_request(
                json.dumps({"inputs": [tensor | {"data": data}]}).encode(), [], sized(2)
            )[1]
            == expected
        )
    text = json.dumps(
        {"inputs": [tensor | {"parameters": {"binary_data_size": len(content)}}]}
    ).encode()
    assert read_request(text + content, [str(len(text))], sized(2))[1] == expected


@pytest.mark.parametrize("others", [[], [{"name": "age", "shape": [9, 9]}]])
def test_a_tensor_that_the_model_does_not_read_is_named_before_a_shape(
    others: list[dict[str, Any]],
) -> None:
    usual = {"datatype": "FP64", "data": [1]}
    unknown = {"name": "ages", "shape": [2, 2, 2]}
    inputs = [usual | tensor for tensor in (*others, unknown)]
    body = json.dumps({"inputs": inputs}).encode()
    with pytest.raises(ParameterInvalid) as refused:
        read_request(body, [], sized(2))
    [problem] = refused.value.problems
    assert (problem.problem, problem.column) == ("unknown-column", "ages")


def test_one_tensor_is_a_column_where_a_model_has_categories_or_its_shape_says_so() -> (
    None
):
    schema = schema_of(
        {"name": "a", "type": "numeric", "lower": 0, "upper": 1},
        {"name": "s", "type": "categorical", "categories": ["x"]},
        classes=("c0", "c1"),
    )
    with pytest.raises(InvalidRequest) as refused:
        read_request(_body("FP64", [1, 2], data=[1, 2]), [], schema)
    assert refused.value.errors[0].problem == "not-a-column"
    assert read_request(_body("FP64", [2, 1], data=[1, 2]), [], sized(2))[1] == {
        "a": [1, 2]
    }
    assert read_request(_body("FP64", [2, 1], data=[1, 2]), [], sized(1))[1] == {
        "a": [1, 2]
    }
