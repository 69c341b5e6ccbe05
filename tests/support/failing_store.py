"""An object store that answers calls with an error."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import obstore
from obstore.exceptions import BaseError, GenericError

CALLS = ("put", "get", "head", "list", "delete")


@contextmanager
def failing(*calls: str, error: BaseError | None = None) -> Iterator[None]:
    """Every object store answers these calls with an error in the block, or all calls if
    none are named.
    """
    if error is None:
        error = GenericError("canary")
    with ExitStack() as patches:
        for call in calls or CALLS:
            patches.enter_context(patch.object(obstore, call, side_effect=error))
        yield
