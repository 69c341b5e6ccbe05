"""Defines the parts of a job's PRIVATE rows, which are in the memory of this process or of other machines.

Growth names a method of a part and its arguments. Both can be sent to another machine, as a function cannot. Arguments
are public facts, released numbers, and the key that assigns the rows of one job to trees.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from app.forests.data.encoding import Encoding

HISTOGRAMS: Final = frozenset({"class_histogram", "joint_histogram"})
"""Methods of parts whose sums may be larger than the rows of a part. They take ``onto``, the sums of other parts or
``None``, add to it, and return it."""


class Parts(Protocol):
    """Parts of the rows in one state, for example in the nodes of a level of a tree."""

    def total(self, method: str, /, *args: Any, **named: Any) -> NDArray[np.int64]:
        """The exact PRIVATE sum of the integers that a method returns for every part; no state changes."""

    def each(self, method: str, /, *args: Any, **named: Any) -> None:
        """Changes the state of every part by a method without a result."""

    def map(self, method: str, /, *args: Any, **named: Any) -> "Parts":
        """The parts that a method makes of every part, such as the rows of one tree; no state changes."""


@dataclass(frozen=True)
class CodedPart:
    """PRIVATE rows by the bins that a forest grows on.

    Attributes:
        encoding: public or released bins.
        codes: uint8 ``(n_features, n_rows)``.
        y: int32 ``(n_rows,)`` classes.
        ids: uint8 ``(n_rows, 16)``, or ``None`` if the job needs no ids.
    """

    encoding: Encoding
    codes: NDArray[np.uint8]
    y: NDArray[np.int32]
    ids: NDArray[np.uint8] | None

    @property
    def row_ids(self) -> NDArray[np.uint8]:
        """The stable random id that ingestion gives to each row; never published."""
        if self.ids is None:
            raise ValueError("the ids of the rows were not read")
        return self.ids


class Form(Protocol):
    """A part of the rows in the form that an algorithm counts."""

    @classmethod
    def of(cls, part: CodedPart, /, *args: Any) -> Self:
        """The part in this form, in its first state."""


class DistributedRows(Protocol):
    """All PRIVATE rows of a job, on other machines."""

    def code_counts(self, index: int) -> NDArray[np.int64]:
        """Exact PRIVATE number of rows of every code of one column by the public grid."""

    def parts(self, encoding: Encoding, form: type[Form], *args: Any) -> Parts:
        """The rows in the form that an algorithm counts; see :func:`app.forests.trees.row_parts.parts_of`."""
