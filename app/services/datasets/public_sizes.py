"""Public sizes: round numbers of rows that an owner declares, never counts."""

from sqlalchemy.orm import Session

from app.datasets import catalog
from app.privacy.composition import Scope


def two_significant_digits(size: int) -> int:
    """A declared size rounded to two significant digits, half up."""
    scale: int = 10 ** max(len(str(size)) - 2, 0)
    return (2 * size + scale) // (2 * scale) * scale


def expected_rows(session: Session, dataset: catalog.Dataset, scope: Scope) -> int | None:
    """The expected number of rows in a scope, from declared sizes alone; ``None`` where no size is declared.

    Shares of several partitions multiply. All uploads have equal shares; their number is public.
    """
    size = dataset.row.public_size
    if size is None:
        return None
    inside, all_cells = dataset.partitions.share(scope, n_epochs=len(catalog.epochs(session, dataset.id)))
    return max(size * inside // all_cells, 1)
