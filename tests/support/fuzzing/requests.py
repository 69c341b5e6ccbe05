"""Targets that read bodies and queries of requests: JSON, amounts, request types, event
trees, scopes, predictions.
"""

import json
import math
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import jsonschema_rs
from pydantic import BaseModel

from app.api import problems, requests
from app.core import json_text
from app.core.errors import MalformedRequest, TooLarge
from app.services import predict
from app.wire.base import Request
from grovekeeper_forests import amounts
from grovekeeper_forests.errors import GrovekeeperError
from grovekeeper_forests.privacy import accountants, events
from grovekeeper_forests.privacy.events import Adjacency, UnknownPrivacyEvent
from grovekeeper_forests.privacy.partitions import (
    CellProblem,
    HashPartition,
    Partitions,
    UnknownPartition,
)
from grovekeeper_verifier import amounts as verifier_amounts
from grovekeeper_verifier import events as verifier_events
from tests.support.openapi import DOCUMENT
from tests.support.operations import NOWHERE, REQUESTS
from tests.support.schemas import sized
from tests.support.server import declaration

_MAX_NODES = 500
_OF_TWO_LABELS = {
    "features": [{"name": "age", "type": "integer", "lower": 0, "upper": 99}],
    "labels": [
        {"name": "ill", "classes": ["no", "yes"]},
        {"name": "los_days", "cuts": [3, 7.5]},
    ],
}
_PARTITIONS = Partitions((HashPartition("shard", 4), HashPartition("fold", 2)))


def seeds_of_json() -> tuple[bytes, ...]:
    return (
        b'{"a": [1, 2.50, -3e-7, true, false, null, "\\u00e9\\ud83c\\udf32"], "b": {"c": {}}}',
        b"[[[[[[1]]]]]]",
        b"1e30",
        b'"text"',
    )


def run_json(data: bytes) -> bool:
    """What is accepted has one meaning, and a digest that does not depend on its
    spelling.
    """
    try:
        value = json_text.loads_exactly(data, max_nodes=_MAX_NODES)
    except (MalformedRequest, TooLarge):
        return False
    assert value == json.loads(data.decode("utf-8-sig"), parse_float=Decimal)
    assert _n_nodes(value) <= _MAX_NODES + 1
    spelled = json_text.loads_exactly(
        _spelled(value).encode("ascii"), max_nodes=10 * _MAX_NODES
    )
    assert spelled == value
    assert json_text.digest(spelled) == json_text.digest(value)
    return True


def _n_nodes(value: Any) -> int:
    inner = (
        [*value, *value.values()]
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    return 1 + sum(map(_n_nodes, inner))


def _spelled(value: Any) -> str:
    """Another spelling: members in reverse order, escaped text, other spaces, and
    decimals with an exponent.
    """
    match value:
        case Decimal():
            return f"{value:e}"
        case dict():
            members = [
                f"{json.dumps(name)} : {_spelled(item)}"
                for name, item in reversed(value.items())
            ]
            return "{ " + " ,\n".join(members) + "}"
        case list():
            return "[" + ",\t".join(map(_spelled, value)) + " ]"
    return json.dumps(value)


def seeds_of_amounts() -> tuple[bytes, ...]:
    return (
        b"0.5",
        b"1e-6",
        b"123456789012.000000000000000001",
        b"2E+5",
        b"0.1",
        b"100",
        b"000.10e1",
    )


def run_amount(data: bytes) -> bool:
    """An amount is exact and not negative, and the service and the verifier write and
    read equal text.
    """
    values: list[object] = [data.decode("utf-8", "replace")]
    try:
        values.append(json_text.loads_exactly(data, max_nodes=2))
    except (MalformedRequest, TooLarge):
        values.append(data)
    exact: Fraction | None = None
    for value in values:
        try:
            exact = amounts.parse(value)
        except amounts.NotAnAmount:
            continue
        assert exact == Fraction(str(value))
        assert exact >= 0
        text = amounts.to_text(exact)
        assert Fraction(text) == exact
        try:
            steps = verifier_amounts.to_steps(text, 120)
        except verifier_amounts.NotAnAmount:
            assert exact >= 10**18  # more digits than any balance has
        else:
            assert Fraction(steps, 10**120) == exact
            assert verifier_amounts.from_steps(steps, 120) == text
    return exact is not None


@cache
def _models() -> tuple[tuple[type[BaseModel], jsonschema_rs.Validator], ...]:
    """Every type of a request body, with its schema in the OpenAPI document."""
    components = DOCUMENT["components"]
    models = sorted(_subclasses(Request), key=lambda model: model.__name__)
    return tuple(
        (
            model,
            jsonschema_rs.validator_for(
                {**components["schemas"][model.__name__], "components": components}
            ),
        )
        for model in models
        if model.__name__ in components["schemas"]
    )


def _subclasses(kind: type[Request]) -> set[type[Request]]:
    return {
        kind,
        *(
            inner
            for subclass in kind.__subclasses__()
            for inner in _subclasses(subclass)
        ),
    }


def seeds_of_bodies() -> tuple[bytes, ...]:
    """Valid bodies of every operation, each read as every type: the first byte decides
    which.
    """
    options = [ask(NOWHERE)[2] for ask in REQUESTS.values()]
    texts = [
        json.dumps(option["json"]).encode() for option in options if "json" in option
    ]
    texts.append(json.dumps(declaration(schema=_OF_TWO_LABELS)).encode())
    return tuple(
        bytes([number]) + text for text in texts for number in range(len(_models()))
    )


def run_body(data: bytes) -> bool:
    """A body is refused with a short problem, or it also matches the schema in the
    OpenAPI document.
    """
    model, schema = _models()[(data[0] if data else 0) % len(_models())]
    text = data[1:]
    try:
        value, _ = requests._read(model, text, _MAX_NODES)
    except GrovekeeperError as error:
        answer = problems.response_to(error)
        assert answer.status_code in (400, 413, 422)
        assert len(answer.body) < 100_000
        return False
    assert schema.is_valid(_plain(value)), next(
        schema.iter_errors(_plain(value))
    ).message
    return True


def _plain(value: Any) -> Any:
    """A JSON value without exact decimals."""
    match value:
        case Decimal():
            return float(value) if math.isfinite(float(value)) else 1e308
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            return [_plain(item) for item in value]
    return value


def seeds_of_events() -> tuple[bytes, ...]:
    leaves = [
        {"type": kind, "adjacency": adjacency, sensitivity: "2", scale: "1/4", size: 3}
        for kind, (sensitivity, scale, size) in verifier_events._LEAVES.items()
        for adjacency in ("add_remove", "label")
    ]
    parts = [{"times": 7, "event": leaf} for leaf in leaves[::2]]
    trees = [
        {"type": "sequential/1", "parts": parts},
        {
            "type": "parallel/1",
            "over": "trees",
            "parts": [{"times": 1, "event": {"type": "sequential/1", "parts": parts}}],
        },
    ]
    return tuple(json.dumps(event).encode() for event in (*leaves, *trees))


def run_event(data: bytes) -> bool:
    """Service and verifier agree whether an event has a bound, and the service's price
    covers the verifier's loss.
    """
    try:
        event = events.foreign(json_text.loads_exactly(data, max_nodes=_MAX_NODES))
    except (GrovekeeperError, UnknownPrivacyEvent):
        return False
    form = event.to_json()
    assert events.from_json(form) == event
    for accountant in accountants.ALL:
        for adjacency in (Adjacency.ADD_REMOVE_ONE, Adjacency.LABEL):
            verified = _verified_loss(form, adjacency, accountant.NAME)
            try:
                loss = accountant.loss(event, adjacency=adjacency)
            except UnknownPrivacyEvent:
                assert verified is None
                continue
            assert verified is not None
            assert 0 <= verified <= loss
            assert accountant.NAME != "pure" or verified == loss
    return True


def _verified_loss(form: Any, adjacency: Adjacency, accountant: str) -> Fraction | None:
    try:
        return verifier_events.total(
            form, adjacency=adjacency.value, accountant=accountant
        )
    except verifier_events.NotAnEvent:
        return None


def seeds_of_scopes() -> tuple[bytes, ...]:
    return (b"{}", b'{"shard": [0, 3], "fold": [1]}', b'{"shard": [2]}')


def run_scope(data: bytes) -> bool:
    """A scope names cells that exist, once each."""
    try:
        value = json_text.loads_exactly(data, max_nodes=_MAX_NODES)
        scope = _PARTITIONS.read_scope(value) if isinstance(value, dict) else None
    except (GrovekeeperError, CellProblem, UnknownPartition):
        return False
    if scope is None:
        return False
    assert set(scope) <= {"shard", "fold"}
    assert all(
        set(cells) <= set(range(4)) and len(set(cells)) == len(cells) > 0
        for cells in scope.values()
    )
    return True


def seeds_of_predictions() -> tuple[bytes, ...]:
    return (
        b'{"rows": [{"age": 39, "sex": "Male"}, {"age": 1e300, "sex": null}], "read_out": "mv"}',
        b'{"columns": {"age": [39, 2.5, null], "sex": ["Male", ":", "{"]}}',
    )


def run_prediction(data: bytes) -> bool:
    """What is accepted is the only meaning of the text: two readers see equal rows."""
    try:
        body = predict.decode(data, sized(3))
    except GrovekeeperError:
        return False
    other = json.loads(data)
    for mine, theirs in (
        (body.rows, other.get("rows")),
        (body.columns, other.get("columns")),
    ):
        assert json.dumps(mine, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    assert body.read_out == other.get("read_out")
    return True
