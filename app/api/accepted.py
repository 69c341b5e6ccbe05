"""Reads the fields by which a client says what it accepts (RFC 9110, 12.4)."""

import re

_NEVER = re.compile(r"(?i)(?:^|;)[ \t]*q[ \t]*=[ \t]*0(?:\.0*)?[ \t]*(?:;|$)")


def accepts(field: str, value: str) -> bool:
    """Whether a field names a value, in any letters, and not with the weight 0."""
    for item in field.split(","):
        name, _, parameters = item.partition(";")
        if name.strip().lower() == value and not _NEVER.search(parameters):
            return True
    return False
