"""Defines the messages between the service and the child process that decodes an upload.

The service sends one line of JSON: the form of the body, its size, and the names of the columns of numbers. The child
then sends frames, each a kind, a length and a payload; the service believes none of them:

=====  =====================================================================================
kind   payload
=====  =====================================================================================
``R``  an offset and a length: the service answers with these bytes of the body, without a frame
``T``  bytes of the rows (:mod:`app.datasets.columnar.batches`)
``V``  JSON, and the last frame: the problem of the body, or ``null``, and columns that have it
=====  =====================================================================================
"""

import struct
from enum import StrEnum

HEAD = struct.Struct(">cI")
RANGE = struct.Struct(">QI")
READ, TEXT, VERDICT = b"R", b"T", b"V"
MAX_FRAME_BYTES = 1024 * 1024
"""Bytes of a payload, and of a range of the body."""


class Problem(StrEnum):
    """Why a body is refused. Never says anything about a cell."""

    MALFORMED = "malformed-file"
    ENCRYPTED = "encrypted-file"
    TYPE = "unsupported-type"
    LONG_LINE = "line-too-long"
    ROW_GROUPS = "row-groups"
    COLUMNS = "columns"
    METADATA = "metadata"
    ROWS = "rows"
    MEMORY = "memory"
