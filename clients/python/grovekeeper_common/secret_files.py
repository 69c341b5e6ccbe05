"""Reads the secret in a file; no message shows the secret or its file's name, where a
person may have typed the secret itself.
"""

from pathlib import Path


def read_secret(file: Path, name: str) -> str:
    """The secret in a file.

    Args:
        name: of the file, in sentences.

    Raises:
        ValueError: the file cannot be read, is no text or is empty.
    """
    try:
        secret = file.expanduser().read_text(encoding="utf-8-sig").strip()
    except (OSError, RuntimeError) as error:  # the latter of ``~`` without a home
        cause = getattr(error, "strerror", error)
        raise ValueError(f"{name} cannot be read: {cause}") from None
    except UnicodeDecodeError:  # which holds the secret
        raise ValueError(
            f"{name} is not UTF-8 text; older shells of Windows write UTF-16"
        ) from None
    if not secret:
        raise ValueError(f"{name} is empty")
    return secret
