"""Makes opaque ids: a short prefix that names the kind of resource, then 80 random bits."""

import base64
import re
import secrets

from app.core import limits

DATASET = "ds"
EPOCH = "ep"
RESERVATION = "rs"
JOB = "jb"
MODEL = "md"
PROFILE = "pf"
EVALUATION = "ev"
KEY = "key"
SUBJECT = "sub"
POPULATION = "pop"
WEBHOOK = "wh"
DELIVERY = "whd"
PROCESS = "pr"
ERASURE = "er"

_REFERENCE = re.compile(rf"[A-Za-z0-9._-]{{1,{limits.MAX_DATASET_NAME_CHARS}}}", re.ASCII)


def is_reference(text: str) -> bool:
    """Whether a text has the form of an id or a name. Other texts need no query, and may hold characters such as NUL
    that a database refuses."""
    return _REFERENCE.fullmatch(text) is not None


def new(prefix: str) -> str:
    """A new id, such as ``ds_4xk2m7q3vdn5t6wa``: lower case letters and digits after the prefix."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(10)).decode('ascii').lower()}"
