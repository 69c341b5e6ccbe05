"""Sends requests with canaries to a running service, and records every answer."""

from typing import Any

import httpx

from tests.support.canaries import Canaries
from tests.support.server import CSV, Caller, Server, declaration, new_idempotency_key

HEADER = "amount,height,colour,patient,region,income"
DECLARATION: dict[str, Any] = {
    "schema": {
        "features": [
            {"name": "amount", "type": "integer", "lower": 0, "upper": 2 * 10**15},
            {"name": "height", "type": "numeric", "lower": 0.5, "upper": 2.5, "missing": True},
            {"name": "colour", "type": "categorical", "categories": ["red", "blue"], "missing": True},
        ],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "budget": {"accountant": "pure", "epsilon": "100"},
    "privacy_unit": {"column": "patient", "max_rows": 2},
    "partitions": [
        {"name": "shard", "kind": "hash", "cells": 2},
        {"name": "region", "kind": "column", "column": "region", "categories": ["EU", "US"]},
    ],
}  # fmt: skip


class Walk:
    """Requests with canaries, and every byte that came back."""

    def __init__(self, server: Server, canaries: Canaries) -> None:
        self.server = server
        self.canaries = canaries
        self.owner = server.caller("owner")
        self.answers: list[tuple[str, bytes]] = []

    def ask(
        self,
        caller: Caller | httpx.Client,
        method: str,
        path: str,
        *expected: int,
        **sent: Any,
    ) -> httpx.Response:
        """Sends a request and records status, headers and body of the answer."""
        client = caller.http if isinstance(caller, Caller) else caller
        answer = client.request(method, path, **sent)
        head = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
        self.answers.append(
            (
                f"{method} {path}",
                f"{answer.status_code}\n{head}\n".encode() + answer.content,
            )
        )
        assert not expected or answer.status_code in expected, (
            path,
            answer.status_code,
            answer.text,
        )
        return answer

    def declared(self, **changes: Any) -> str:
        body = declaration(**{**DECLARATION, **changes})
        answer = self.ask(self.owner, "POST", "/datasets", 201, json=body)
        return str(answer.json()["id"])

    def upload(
        self, dataset: str, kind: str, body: bytes, *expected: int, **headers: str
    ) -> httpx.Response:
        """Uploads a private body, whose hashes are searched for later."""
        sent = {"content": self.canaries.body(kind, body), "headers": CSV | headers}
        return self.ask(
            self.owner, "POST", f"/datasets/{dataset}/rows", *expected, **sent
        )

    def submitted(self, path: str, body: dict[str, Any]) -> str:
        answer = self.ask(
            self.owner, "POST", path, 202, json=body, headers=new_idempotency_key()
        )
        return str(answer.json()["job_id"])

    def ended(self, job_id: str) -> dict[str, Any]:
        """Follows a job to its end; every event is recorded."""
        self.ask(self.owner, "GET", f"/jobs/{job_id}/events", 200)
        return dict(self.ask(self.owner, "GET", f"/jobs/{job_id}", 200).json())

    def rows(self, name: str, n_rows: int = 120) -> str:
        """Rows with canaries in every column."""
        it = self.canaries
        usual = (
            f"{it.integer(f'amount {index % 7}')},{it.number(f'height {index % 5}')},{('red', 'blue')[index % 2]},"
            f"{it.text(f'patient {name} {index % 40}')},{('EU', 'US')[index % 2]},{('low', 'high')[index % 3 == 0]}"
            for index in range(n_rows)
        )
        unusual = (
            f"{it.integer('amount out of bounds') * 3},1.5,red,{it.text(f'patient {name} a')},EU,low",
            f"-{it.integer('negative amount')},{it.number('height out of bounds') + 7},red,"
            f"{it.text(f'patient {name} b')},US,high",
            f"5,1.5,{it.text('unknown category')},{it.text(f'patient {name} c')},EU,low",
            f"5,1.5,blue,{it.text(f'patient {name} d')},{it.text('unknown region')},low",
            f"5,1.5,blue,{it.text(f'patient {name} e')},EU,{it.text('unknown label')}",
            f"5,,,{it.text(f'patient {name} f')},,",
            f"{it.integer('amount without patient')},1.5,red,,EU,low",
        )  # fmt: skip
        return "\n".join([HEADER, *usual, *unusual, ""])

    def rows_of_numbers(self, n_rows: int = 120) -> str:
        """Rows with canaries in every column, the label among them."""
        it = self.canaries
        rows = (
            f"{it.integer(f'amount {index % 7}')},{it.number(f'height {index % 5}')},red,"
            f"{it.text(f'patient numbers {index % 80}')},EU,{it.number(f'income {index % 9}')}"
            for index in range(n_rows)
        )
        unusual = f"5,1.5,blue,{it.text('patient numbers x')},EU,{it.number('income out of bounds') + 7}"
        return "\n".join([HEADER, *rows, unusual, ""])
