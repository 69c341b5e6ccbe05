"""Generates requests from the OpenAPI document: cases of schemathesis, with ids and
bodies that the service knows.

A generated body alone hardly ever passes the first check. So most bodies are valid
bodies with a few generated members.
"""

import secrets
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, TypeAlias

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.core import NOT_SET
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from tests.support.estate import Estate
from tests.support.openapi import DOCUMENT
from tests.support.operations import REQUESTS

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
Case: TypeAlias = schemathesis.Case[Operation]

TRICKS = (
    "", "\x00", "a\x00b", "\ufeff", "\u202e", "🌲", "e\u0301", "\u00e9", "\u212a", "0", "1_0", "٣", "1e-9999999",
    "1e99", "-0", "NaN", "null", "a" * 200, "é" * 40, "/", "../..", "..%2f..%2fetc", "%00", "%", "%s", "{0}", "${x}",
    "' OR 1=1 --", "'; DROP TABLE entries; --", '" OR ""="', "\\", "%' ESCAPE '%", "x\r\nX-Injected: 1", "<script>",
)  # fmt: skip
"""Texts that other services have read as a path, as SQL, as a format, as a header, as a
number or as markup.
"""

VALUES: tuple[Any, ...] = (
    *TRICKS,
    0,
    -1,
    10**18,
    2**63,
    10**30,
    1e308,
    -1e308,
    5e-324,
    0.1,
    None,
    True,
    [],
    {},
    [[]],
    {"": {}},
)


@cache
def operations() -> dict[str, Operation]:
    """All operations by id."""
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    # the requests carry keys of the estate
    schema.config.generation.update(with_security_parameters=False)
    every = [
        result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)
    ]
    return {operation.definition.raw["operationId"]: operation for operation in every}


def each_case(
    name: str, n_cases: int, *, number: int, send: Callable[[str, Case], None]
) -> None:
    """Sends cases of an operation: half of them match its schemas, and half break them
    in one or more places.

    Args:
        name: the operation's id.
        n_cases: how many cases are sent; fewer where the operation takes no input.
        number: decides which cases.
        send: sends a case of the operation and never raises.
    """

    def send_one(case: Case) -> None:
        send(name, case)

    for mode in (
        GenerationMode if _can_break_a_schema(name) else (GenerationMode.POSITIVE,)
    ):
        once = settings(
            max_examples=max(n_cases // 2, 1),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        run: Any = given(_generated(name, mode))(send_one)  # type: ignore[no-untyped-call]
        run = seed(number)(once(run))
        run()


def _can_break_a_schema(name: str) -> bool:
    """Whether an operation has a body or a query. Every text matches the schema of a
    path or a header.
    """
    raw = operations()[name].definition.raw
    return "requestBody" in raw or any(
        parameter["in"] == "query" for parameter in raw.get("parameters", ())
    )


@cache
def _generated(name: str, mode: GenerationMode) -> Any:
    return operations()[name].as_strategy(generation_mode=mode)


@dataclass
class Sender:
    """Changes generated cases so that they reach further into the service, with the
    keys and ids of an estate.
    """

    estate: Estate
    random: Random

    def forms(
        self, name: str, case: Case, n_forms: int
    ) -> Iterator[tuple[Case, dict[str, str]]]:
        """Differently changed copies of a case, with the headers of a caller."""
        for _ in range(n_forms):
            form = case.operation.Case(
                path_parameters=dict(case.path_parameters),
                headers=dict(case.headers),
                query=dict(case.query),
                body=case.body,
                media_type=case.media_type,
            )
            yield form, self._changed(name, form)

    def _changed(self, name: str, case: Case) -> dict[str, str]:
        valid = REQUESTS[name](self.estate.targets)[2]
        if self.random.random() < 0.9:
            self._address(case)
        if case.body is not NOT_SET and self.random.random() < 0.8:
            case.body = self._crossed(
                valid.get("json", valid.get("content")), case.body
            )
        headers = self._authorization()
        if "Idempotency-Key" in valid.get("headers", {}) and self.random.random() < 0.8:
            headers["Idempotency-Key"] = secrets.token_hex(8)
        return headers

    def _authorization(self) -> dict[str, str]:
        choice = self.random.random()
        if choice < 0.02:
            return self.random.choice(
                [{}, {"Authorization": "Bearer x"}, _bearer(self.estate.revoked.key)]
            )
        callers = self.estate.callers
        return _bearer(
            (
                callers["admin"]
                if choice < 0.8
                else self.random.choice([*callers.values()])
            ).key
        )

    def _address(self, case: Case) -> None:
        """Puts ids of the estate into the path, but into no deletion: other requests
        need the objects.
        """
        targets = self.estate.targets
        if case.method == "DELETE":
            return
        for name in case.path_parameters or {}:
            kinds = (
                ("dataset", "population")
                if name == "account"
                else (name.removesuffix("_id"),)
            )
            case.path_parameters[name] = getattr(
                targets, self.random.choice(kinds), targets.dataset
            )

    def _crossed(self, valid: Any, generated: Any) -> Any:
        """A valid body with some members of a generated body, or with one value
        replaced by another.
        """
        if not isinstance(valid, dict):
            return self.random.choice([valid, generated])
        body = deepcopy(valid)
        if isinstance(generated, dict) and generated and self.random.random() < 0.5:
            names = sorted(generated)
            return body | {
                name: generated[name]
                for name in self.random.sample(
                    names, self.random.randint(0, 2) % len(names)
                )
            }
        self._replace_one(body)
        return body

    def _replace_one(self, value: Any) -> None:
        """Replaces one value inside an object or a list, or the name of one member."""
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = self.random.choice(places)
        if (
            value[place]
            and isinstance(value[place], dict | list)
            and self.random.random() < 0.8
        ):
            self._replace_one(value[place])
        elif isinstance(value, dict) and self.random.random() < 0.2:
            value[self.random.choice(TRICKS)] = value.pop(place)
        else:
            value[place] = self.random.choice(VALUES)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
