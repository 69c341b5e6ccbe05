"""Says in words what a verification of an account covered, and whose word it is."""

from grovekeeper_common.json_types import JsonMapping


def verification_in_words(verification: JsonMapping) -> str:
    """A verification on one line, with the entries that it says nothing about."""
    words = str(verification["verdict"])
    if verification["entries"] is not None:
        words += f" up to entry {verification['entries']}"
    words += (
        f", {_source(verification)}, {verification['at'][:16].replace('T', ' ')} UTC"
    )
    since = verification["entries_since"]
    if since:
        words += f"; {since} {'entry' if since == 1 else 'entries'} since"
    return words


def _source(verification: JsonMapping) -> str:
    if verification["by"] is None:
        return "by the service itself"
    name = verification["by_name"] or verification["by"]
    return f"as {name} states"
