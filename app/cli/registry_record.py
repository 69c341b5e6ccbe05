"""Completes a record for the public registry of deployments with the members that only its owner knows."""

from pathlib import Path
from typing import Any

import yaml

from app.cli.command import WrongUse
from app.core import limits

Record = dict[str, Any]


def read_part(file: Path) -> Record:
    """Reads the owner's part of a record from YAML or JSON.

    Raises:
        WrongUse: the file cannot be read, or is no mapping.
    """
    try:
        text = file.read_text(encoding="utf-8")
        part = yaml.safe_load(text) if len(text) <= limits.MAX_JSON_BODY_BYTES else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise WrongUse(f"{file} cannot be read as YAML or JSON") from None
    if not isinstance(part, dict):
        raise WrongUse(f"{file} is no mapping of at most {limits.MAX_JSON_BODY_BYTES} bytes")
    return part


def completed(answer: Record, part: Record) -> tuple[Record, list[str]]:
    """The record with the owner's part, and the required members that are still missing.

    Args:
        answer: of ``GET /ledger/{account}/deployment``.
        part: the owner's part, in the shape of the record.

    Raises:
        WrongUse: the part has a member that the service fills in, or that the registry does not have.
    """
    owners = answer["missing"]["required"] + answer["missing"]["optional"]
    given = _members(part, owners, at="")
    record = answer["record"]
    for pointer, value in given.items():
        record = _with(record, pointer.split("/")[1:], value)
    missing = [pointer for pointer in answer["missing"]["required"] if pointer not in given]
    is_justified = not missing and "/deployment/implementation/justification" in given
    return {**record, "tier": 3 if is_justified else record["tier"]}, missing


def to_yaml(record: Record) -> str:
    """The record as the registry stores it."""
    text: str = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=100)
    return text


def _members(part: Record, owners: list[str], *, at: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in part.items():
        pointer = f"{at}/{name}"
        if pointer in owners:
            found[pointer] = value if not hasattr(value, "isoformat") else value.isoformat()
        elif isinstance(value, dict) and any(it.startswith(f"{pointer}/") for it in owners):
            found |= _members(value, owners, at=pointer)
        else:
            raise WrongUse(f"{pointer} is not for the owner to fill in; these are: {', '.join(owners)}")
    return found


def _with(record: Record, path: list[str], value: object) -> Record:
    name, *rest = path
    return {**record, name: _with(record.get(name, {}), rest, value) if rest else value}
