"""Names the types of JSON values."""

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

JsonMapping: TypeAlias = Mapping[str, Any]
"""An object of JSON that a function reads and does not change."""
