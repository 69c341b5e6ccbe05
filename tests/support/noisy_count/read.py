"""Reads a released number of rows."""

import json


def read(data: bytes) -> int:
    """The number in the units of its event.

    Raises:
        ValueError: the bytes are no such release.
    """
    match json.loads(data):
        case {"count": int(count), **rest} if not rest:
            return count
    raise ValueError("not a released number")
