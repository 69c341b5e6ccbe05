"""Wire models: request models are closed and strict, response models state every field."""

import importlib
import inspect
import pkgutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import TypeAdapter, ValidationError

import app.wire
from app.wire.base import Answer, Problem, Request
from app.wire.datasets import DatasetIn
from app.wire.inference import InferenceOut
from app.wire.training import TrainIn

MODELS = {
    f"{module.name}.{name}": model
    for module in pkgutil.iter_modules(app.wire.__path__, "app.wire.")
    for name, model in inspect.getmembers(
        importlib.import_module(module.name), inspect.isclass
    )
    if issubclass(model, Request | Answer)
    and model.__module__ == module.name
    and model not in (Request, Answer)
}


@pytest.mark.parametrize("name", MODELS)
def test_a_request_is_strict_and_an_answer_has_no_default(name: str) -> None:
    model = MODELS[name]
    assert model.__doc__ or issubclass(model, Answer | Request)
    assert model.model_config["extra"] == "forbid"
    assert model.model_config["frozen"] is True
    if issubclass(model, Request):
        assert model.model_config["strict"] is True
    elif model is not InferenceOut:  # the Open Inference Protocol has optional members
        assert [
            field
            for field, facts in model.model_fields.items()
            if not facts.is_required()
        ] == []


def test_optional_fields_of_a_declaration_have_the_published_defaults() -> None:
    schema = {
        "features": [{"name": "x", "type": "numeric", "lower": 0, "upper": 1}],
        "label": {"name": "y", "classes": ["a", "b"]},
    }
    declared = DatasetIn.model_validate(
        {
            "name": "n",
            "schema": schema,
            "budget": {"accountant": "pure", "epsilon": "1"},
        }
    )
    assert declared.privacy_unit.model_dump() == {
        "column": None,
        "form": None,
        "max_rows": 1,
    }
    assert (declared.protects, declared.partitions, declared.public_size) == (
        "row",
        [],
        None,
    )
    assert declared.population is None
    (feature,) = declared.schema_.features
    assert (feature.missing, feature.ordered, feature.bounds, feature.categories) == (
        False,
        False,
        None,
        None,
    )


def test_optional_fields_of_a_training_request_have_the_published_defaults() -> None:
    requested = TrainIn.model_validate(
        {"dataset": "n", "algorithm": "mrf", "epsilon": "1"}
    )
    assert (requested.delta, requested.parameters, requested.scope, requested.name) == (
        None,
        {},
        {},
        None,
    )


def test_a_problem_keeps_members_of_its_type() -> None:
    problem = Problem.model_validate(
        {"type": "t", "title": "T", "status": 409, "detail": "d", "cap": "3"}
    )
    assert problem.model_dump()["cap"] == "3"


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Lets the interpreter change between threads as often as it can."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("frequent_switches")
def test_threads_that_use_an_answer_first_validate_and_write_it_in_full() -> None:
    """Before 2.14, pydantic let the others use the validator of the base class while
    one of them built the class.
    """

    class Part(Answer):
        name: str

    class Whole(Answer):
        parts: list[Part]

    assert not Whole.__pydantic_complete__, "built before its first use"
    written, start = TypeAdapter(Whole), threading.Barrier(8)

    def use(_: int) -> bytes:
        start.wait()
        with pytest.raises(ValidationError):
            Whole.model_validate({"parts": [{"name": "a", "hidden": 1}]})
        return written.dump_json(written.validate_python(Whole(parts=[Part(name="a")])))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(8))) == {b'{"parts":[{"name":"a"}]}'}
