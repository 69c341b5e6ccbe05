"""Finds the address and the key of a service in the environment and in the home."""

from collections.abc import Mapping
from pathlib import Path

from grovekeeper_client.errors import NoKey
from grovekeeper_common.secret_files import read_secret

DEFAULT_URL = "http://127.0.0.1:8731"
ADMIN_KEY_FILE = "admin.key"
"""The file of a home with the key of its first admin."""

_KEY = "GROVEKEEPER_API_KEY"
_KEY_FILE = "GROVEKEEPER_API_KEY_FILE"


def url_of(environ: Mapping[str, str]) -> str:
    """``GROVEKEEPER_URL``, or the address of a service on this machine."""
    return environ.get("GROVEKEEPER_URL", "").strip() or DEFAULT_URL


def key_of(environ: Mapping[str, str]) -> str:
    """``GROVEKEEPER_API_KEY``, the content of ``GROVEKEEPER_API_KEY_FILE``, or the
    admin key of this machine's home.

    Raises:
        NoKey: none of them exists.
        ValueError: both variables are set, or the file cannot be read. The message
            shows no key.
    """
    key = environ.get(_KEY, "").strip()
    file = environ.get(_KEY_FILE, "").strip()
    if key and file:
        raise ValueError(f"set {_KEY} or {_KEY_FILE}, not both")
    if key:
        return key
    if file:
        return read_secret(Path(file), f"the file that {_KEY_FILE} names")
    home = home_of(environ)
    if home is None or not (home / ADMIN_KEY_FILE).is_file():
        raise NoKey
    file_of_home = home / ADMIN_KEY_FILE
    return read_secret(file_of_home, f"the key file {file_of_home}")


def source_of_key(environ: Mapping[str, str]) -> str:
    """The variable or the file from which :func:`key_of` takes the key."""
    if environ.get(_KEY, "").strip():
        return _KEY
    home = home_of(environ) or Path()
    return environ.get(_KEY_FILE, "").strip() or str(home / ADMIN_KEY_FILE)


def home_of(environ: Mapping[str, str]) -> Path | None:
    """``GROVEKEEPER_HOME``, or a folder in the home of this account, if it has one."""
    try:
        named = environ.get("GROVEKEEPER_HOME", "").strip() or "~/.grovekeeper"
        home = Path(named).expanduser()
    except RuntimeError:
        return None
    return home.absolute()
