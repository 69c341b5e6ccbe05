"""Makes the OpenAPI document once per test process."""

import json
from typing import Any

from app.api.main import openapi_text

TEXT = openapi_text()
DOCUMENT: dict[str, Any] = json.loads(TEXT)
