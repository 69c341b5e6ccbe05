"""Computes the exact loss over joint cells of declared partitions (parallel composition), and the scopes of jobs.

A dataset's loss is the maximum over *joint cells* of the sum of the charges that cover the cell (Theorem L,
docs/proofs/lemmas.md). A partition puts every row into exactly one cell by a rule that looks at nothing but that row,
so the charges of disjoint cells never add up for one record. With several partitions a record lies in one cell of each,
and the maximum runs over all combinations: it is not the maximum over the partitions taken one by one.
"""

from app.privacy.composition.cover import Table
from app.privacy.composition.joint_loads import JointCell, Loads, Tightest
from app.privacy.composition.numbering import Boxes, Numbering
from app.privacy.composition.partitions import (
    MISSING_CELL,
    OTHER_CELL,
    Cell,
    CellProblem,
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partition,
    Partitions,
    Scope,
    UnknownPartition,
    are_disjoint,
)

__all__ = [
    "MISSING_CELL",
    "OTHER_CELL",
    "Boxes",
    "Cell",
    "CellProblem",
    "ColumnPartition",
    "EpochPartition",
    "HashPartition",
    "JointCell",
    "Loads",
    "Numbering",
    "Partition",
    "Partitions",
    "Scope",
    "Table",
    "Tightest",
    "UnknownPartition",
    "are_disjoint",
]
