"""Reads a file of rows on this machine for ``grovekeeper datasets check``, and words what
is wrong with its declaration or with the options.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.api.problems import invalid_request
from app.core.errors import InvalidRequest
from app.services.datasets import check_file
from app.wire.datasets import DatasetIn
from grovekeeper_client.cli.command import WrongUse, read_bytes
from grovekeeper_client.cli.problems import in_words
from grovekeeper_client.uploads import headers_of
from grovekeeper_forests.errors import ParameterInvalid


def checked(
    declaration: Path, rows: Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """What an upload of a file would do: its problems, and the cells that it maps.

    Raises:
        WrongUse: an option is not valid, or the declaration is none.
    """
    text = read_bytes(declaration)
    file = check_file.OwnersFile(rows, headers_of(rows), options)
    try:
        _ = file.terms
    except InvalidRequest as invalid:
        raise WrongUse(f"an option is not valid: {_listed(invalid)}") from None
    try:
        return check_file.check_file(text, file)
    except check_file.NotADeclaration as error:
        refusal = invalid_request(error.faults, DatasetIn)
    except ParameterInvalid as error:
        refusal = InvalidRequest.of(error)
    except InvalidRequest as error:
        refusal = error
    raise WrongUse(f"{declaration} is no declaration: {_listed(refusal)}")


def _listed(refusal: InvalidRequest) -> str:
    """The problems of an answer of the service, as commands write them."""
    problems = []
    for error in refusal.errors:
        members = {name: value for name, value in vars(error).items() if value}
        problems.append(in_words({"at": error.at, **members}))
    return "; ".join(problems)
