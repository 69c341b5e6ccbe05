"""Computes the exact loss over joint cells of declared partitions (parallel composition), and the scopes of jobs.

A dataset's loss is the maximum over *joint cells* of the sum of the charges that cover the cell (Theorem L,
docs/proofs/lemmas.md). A partition assigns every row to exactly one cell by a rule that depends on that row alone, so
the charges of disjoint cells never add up for one row. With several partitions a row lies in one cell of each, and the
maximum is over all combinations of cells; it can differ from the maximum over each partition separately.

The package itself has partitions and scopes. Its modules of arithmetic need numpy, which takes 0.06 s of CPU and 12 MB
to import: a process that admits no request does without.
"""

from app.privacy.composition.partitions import (
    MISSING_CELL,
    OTHER_CELL,
    Cell,
    CellProblem,
    ColumnPartition,
    EpochPartition,
    HashPartition,
    JointCell,
    Partition,
    Partitions,
    Scope,
    UnknownPartition,
    are_disjoint,
)

__all__ = [
    "MISSING_CELL",
    "OTHER_CELL",
    "Cell",
    "CellProblem",
    "ColumnPartition",
    "EpochPartition",
    "HashPartition",
    "JointCell",
    "Partition",
    "Partitions",
    "Scope",
    "UnknownPartition",
    "are_disjoint",
]
