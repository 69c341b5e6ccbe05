"""Reads the committed OpenAPI document, which ``tests/architecture/test_openapi.py``
compares with the code.
"""

import json
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text(encoding="utf-8"))
