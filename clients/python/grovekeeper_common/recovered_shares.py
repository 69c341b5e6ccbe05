"""Finds the ε from which on similar public tables recovered a share, for pages and for
the command line.
"""

from collections.abc import Iterable


def needed_epsilon(curve: Iterable[tuple[str, float]], *, percent: int) -> str | None:
    """The ε from which on similar tables recovered a share in the middle, at every
    larger ε, too; ``None``: at none.

    Each ε of a curve was measured on other tables, so a curve falls where a hard table
    joins.

    Args:
        curve: every ε with the share in the middle, in ascending order.
    """
    needed = None
    for epsilon, middle in curve:
        needed = (needed or epsilon) if 100 * middle >= percent else None
    return needed
