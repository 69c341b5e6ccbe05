"""Opaque ids: a short prefix that says what the thing is, then 80 random bits."""

import base64
import secrets

DATASET = "ds"
EPOCH = "ep"
ACCOUNT = "ac"
RESERVATION = "rs"
JOB = "jb"
MODEL = "md"
KEY = "key"


def new(prefix: str) -> str:
    """A fresh id, such as ``ds_4xk2m7q3vdn5t6wa``: lower case letters and digits only after the prefix."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(10)).decode('ascii').lower()}"
