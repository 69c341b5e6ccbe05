"""Starts the ``grovekeeper`` of the distribution ``grovekeeper-client``."""

import sys


def main() -> None:
    """The command; without the extra ``cli`` it says what to install."""
    try:
        from grovekeeper_client.cli.main import main as run
    except ModuleNotFoundError as error:
        sys.exit(f'no module {error.name}: pip install "grovekeeper-client[cli]"')
    run()
