"""``proofs/to_python.py``: what Coq extracts and what Python computes are the same."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.scripts import loaded

_SCRIPT = Path(__file__).parents[2] / "proofs" / "to_python.py"


def _name(name: str, what: str = "rel") -> dict[str, Any]:
    return {"what": f"expr:{what}", "name": name}


def _built(constructor: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"what": "expr:constructor", "name": constructor, "args": list(arguments)}


def _applied(function: dict[str, Any], *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"what": "expr:apply", "func": function, "args": list(arguments)}


def _function(names: list[str], body: dict[str, Any]) -> dict[str, Any]:
    return {"what": "expr:lambda", "argnames": names, "body": body}


def _choice(value: dict[str, Any], *cases: tuple[Any, ...]) -> dict[str, Any]:
    """Cases of a value: a constructor with the names of its arguments, and a body."""
    return {
        "what": "expr:case",
        "expr": value,
        "cases": [
            {
                "pat": {"what": "pat:constructor", "name": name, "argnames": names},
                "body": body,
            }
            for name, names, body in cases
        ],
    }


def _definition(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"what": "decl:term", "name": name, "value": value}


@pytest.fixture
def script() -> ModuleType:
    return loaded(_SCRIPT)


def _module(script: ModuleType, *definitions: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(script.to_python({"declarations": list(definitions)}), names)
    return names


_ADD = _definition(
    "add",
    _function(
        ["n", "m"],
        _choice(
            _name("n"),
            ("O", [], _name("m")),
            (
                "S",
                ["n'"],
                _built("S", _applied(_name("add", "global"), _name("n'"), _name("m"))),
            ),
        ),
    ),
)
_TWO, _FOUR = ("S", ("S", ("O",))), ("S", ("S", ("S", ("S", ("O",)))))


def test_a_function_calls_itself_on_the_arguments_of_a_constructor(
    script: ModuleType,
) -> None:
    module = _module(script, _ADD)
    assert module["add"](_TWO, _TWO) == _FOUR


def test_functions_take_fewer_and_more_values_than_they_have_names(
    script: ModuleType,
) -> None:
    add = _name("add", "global")
    two = _built("S", _built("S", _built("O")))
    add_two = _definition("add_two", _applied(add, two))
    constant = _definition("constant", _function(["x"], add))
    both = _definition(
        "both",
        _function(["x"], _applied(_name("constant", "global"), _name("x"), two, two)),
    )
    module = _module(script, _ADD, add_two, constant, both)
    assert module["call"](module["add_two"], _TWO) == _FOUR
    assert module["both"](("O",)) == _FOUR


def test_fields_of_a_record_keep_their_places_inside_an_expression(
    script: ModuleType,
) -> None:
    """A choice with one case among the arguments of another function."""
    second = _choice(_name("p"), ("Pair", ["x", "y"], _name("y")))
    first = _choice(_name("p"), ("Pair", ["x", "y"], _name("x")))
    swap = _definition("swap", _function(["p"], _built("Pair", second, first)))
    module = _module(script, swap)
    assert module["swap"](("Pair", ("O",), _TWO)) == ("Pair", _TWO, ("O",))


def test_a_choice_inside_an_expression_takes_the_case_of_the_value(
    script: ModuleType,
) -> None:
    negated = _choice(
        _name("b"), ("True", [], _built("False")), ("False", [], _built("True"))
    )
    module = _module(
        script, _definition("some", _function(["b"], _built("Some", negated)))
    )
    assert module["some"](("True",)) == ("Some", ("False",))
    assert module["some"](("False",)) == ("Some", ("True",))


@pytest.mark.parametrize(
    "value",
    [
        {"what": "expr:axiom"},
        {"what": "expr:fix", "funcs": []},
        _function(["add"], _name("add")),
    ],
    ids=["an axiom", "a function inside a function", "a name that hides a definition"],
)
def test_what_has_no_translation_is_refused(
    script: ModuleType, value: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"no translation|hide definitions"):
        script.to_python({"declarations": [_ADD, _definition("wrong", value)]})
