"""Adds examples of requests and answers to the OpenAPI document.

``examples.json`` has what a real server received and answered, by operation id; ``python -m tests.support.examples``
makes it anew. Problems follow from the table of problems.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from app.api.problems import INTERNAL, MEDIA_TYPE, PROBLEMS

_RECORDED = ("application/json", "text/plain")
FILE = Path(__file__).with_name("examples.json")
PROBLEM_EXAMPLES: dict[str, dict[str, Any]] = {
    row.slug: {"value": {"type": row.slug, "title": row.title, "status": row.status, "detail": f"{row.title}."}}
    for row in (*PROBLEMS.values(), INTERNAL)
}
"""The components of the document that show problems, by type."""


def document_examples(operations: Iterable[dict[str, Any]]) -> None:
    """Adds examples to every operation of the document, where the operation has none."""
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    for operation in operations:
        shown = recorded.get(operation["operationId"], {})
        bodies = [(operation.get("requestBody", {}).get("content", {}), shown.get("request"))]
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                bodies.append((answer.get("content", {}), shown.get("answer")))
            else:
                slugs = answer["description"].replace("`", "").split(", ")
                references = {slug: {"$ref": f"#/components/examples/{slug}"} for slug in slugs}
                answer["content"][MEDIA_TYPE]["examples"] = references
        for content, example in bodies:
            for media_type, media in content.items():
                is_shown = example is None or media_type not in _RECORDED or {"example", "examples"} & media.keys()
                if not is_shown:
                    media["example"] = example
