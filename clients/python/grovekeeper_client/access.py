"""Finds the address and the key of the service in the environment, as the command line does."""

import os
from collections.abc import Mapping
from pathlib import Path

from grovekeeper_client.errors import NoKey

DEFAULT_URL = "http://127.0.0.1:8731"
_KEY = "GROVEKEEPER_API_KEY"
_KEY_FILE = "GROVEKEEPER_API_KEY_FILE"


def url_of(environ: Mapping[str, str]) -> str:
    """``GROVEKEEPER_URL``, or the address of a service on this machine."""
    return environ.get("GROVEKEEPER_URL") or DEFAULT_URL


def key_of(environ: Mapping[str, str]) -> str:
    """``GROVEKEEPER_API_KEY``, the content of ``GROVEKEEPER_API_KEY_FILE``, or the admin key of this machine's home.

    Raises:
        NoKey: none of them exists.
        ValueError: both variables are set, or the file cannot be read. The message shows no key.
    """
    key, file = environ.get(_KEY), environ.get(_KEY_FILE)
    if key and file:
        raise ValueError(f"set {_KEY} or {_KEY_FILE}, not both")
    if key:
        return key
    if file:
        return _read(Path(file))
    home = Path(environ.get("GROVEKEEPER_HOME") or "~/.grovekeeper").expanduser()
    if not (home / "admin.key").is_file():
        raise NoKey
    return _read(home / "admin.key")


def from_environment() -> tuple[str, str]:
    """Address and key of the environment of this process; see :func:`key_of` for the errors."""
    return url_of(os.environ), key_of(os.environ)


def _read(file: Path) -> str:
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"the key file {file} cannot be read") from None
    if not key:
        raise ValueError(f"the key file {file} is empty")
    return key
