"""Names the types of JSON values."""

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]

JsonMapping = Mapping[str, Any]
"""An object of JSON that a function reads and does not change."""
