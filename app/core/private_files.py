"""Keeps private files and folders closed to other accounts of the machine."""

import logging
from collections.abc import Iterable
from pathlib import Path

from app.core.errors import InstallationError

_OTHERS = 0o077
_log = logging.getLogger(__name__)


def close_to_others(paths: Iterable[Path]) -> None:
    """Removes the access of other accounts from files and folders, as far as they exist.

    Raises:
        InstallationError: the access cannot be removed, because the file belongs to another account.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode & 0o777
            if mode & _OTHERS:
                path.chmod(mode & ~_OTHERS)
                _log.warning("other accounts could open a private file or folder of the home; their access was removed")
        except FileNotFoundError:
            continue
        except OSError:
            raise InstallationError(
                f"other accounts have access to {path}, which is not this account's. Run: chmod go= '{path}'"
            ) from None
