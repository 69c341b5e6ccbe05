"""Decorates functions as commands of the operator.

They are commands as those of the client are, and report errors of the installation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.core.errors import Unavailable
from grovekeeper_client.cli import command as of_client
from grovekeeper_forests.errors import GrovekeeperError


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except GrovekeeperError as error:
        sentence = str(error)
        if isinstance(error, Unavailable):
            # what the driver says is for the operator, and no caller of the API reads it
            reason = str(getattr(error.__cause__, "orig", "")).partition("\n")[0]
            sentence += reason and f": {reason}"
        raise of_client.Failed("installation", sentence) from error


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a function a typer command, as ``command`` of the client does."""
    return of_client.command(_told()(function))


class Group(of_client.Group):
    """A group of commands."""

    made = staticmethod(command)
