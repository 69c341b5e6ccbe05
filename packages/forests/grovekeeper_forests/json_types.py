"""Names the types of JSON values."""

from collections.abc import Mapping
from typing import TypeAlias

JsonObject: TypeAlias = dict[str, object]

JsonMapping: TypeAlias = Mapping[str, object]
"""An object of JSON that a function reads and does not change."""
