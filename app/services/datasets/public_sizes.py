"""Numbers of rows that an owner says there are. Never counts: the service computes none that leaves it."""

from sqlalchemy.orm import Session

from app.datasets import catalog
from app.privacy.composition import Scope


def two_significant_digits(size: int) -> int:
    """A declared size as it is stored: an order of magnitude, never a count. Half rounds up."""
    scale: int = 10 ** max(len(str(size)) - 2, 0)
    return (2 * size + scale) // (2 * scale) * scale


def expected_rows(session: Session, dataset: catalog.Dataset, scope: Scope) -> int | None:
    """How many rows a box is expected to hold, by what was declared; ``None`` where no size was.

    Shares of several partitions multiply. Uploads count alike, and how many there are is public.
    """
    size = dataset.row.public_size
    if size is None:
        return None
    inside, all_cells = dataset.partitions.share(scope, n_epochs=len(catalog.epochs(session, dataset.id)))
    return max(size * inside // all_cells, 1)
