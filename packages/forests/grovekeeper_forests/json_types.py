"""Names the types of JSON values."""

from collections.abc import Mapping

JsonObject = dict[str, object]

JsonMapping = Mapping[str, object]
"""An object of JSON that a function reads and does not change."""
