"""Opaque ids: a short prefix that says what the thing is, then 80 random bits."""

import base64
import re
import secrets

DATASET = "ds"
EPOCH = "ep"
RESERVATION = "rs"
JOB = "jb"
MODEL = "md"
PROFILE = "pf"
EVALUATION = "ev"
KEY = "key"
POPULATION = "pop"

_REFERENCE = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def is_reference(text: str) -> bool:
    """Whether a text could be an id or a name at all. No database need be asked about others: one has no NUL."""
    return _REFERENCE.fullmatch(text) is not None


def new(prefix: str) -> str:
    """A fresh id, such as ``ds_4xk2m7q3vdn5t6wa``: lower case letters and digits only after the prefix."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(10)).decode('ascii').lower()}"
