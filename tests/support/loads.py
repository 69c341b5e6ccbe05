"""Computes loads over joint cells from a plain list of amounts on boxes."""

from collections.abc import Sequence
from typing import NamedTuple

from grovekeeper_forests.privacy.joint_loads import Loads
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import JointCell, Scope


class BoxAmount(NamedTuple):
    """An amount on every joint cell of a box."""

    scope: Scope
    amount: int


def loads_of(
    partitions: Partitions, boxes: Sequence[BoxAmount], *, inside: Scope | None = None
) -> Loads:
    """The loads of the joint cells inside a box."""
    numbering = Numbering(partition.name for partition in partitions.declared)
    for key, box in enumerate(boxes):
        numbering.add(key, box.scope)
    amounts = [box.amount for box in boxes]
    return Loads(partitions, numbering.boxes(range(len(boxes)), amounts), inside=inside)


def load_at(loads: Loads, boxes: Sequence[BoxAmount], cell: JointCell) -> int:
    """The load of one joint cell: the sum of the amounts on the boxes that ``loads``
    says cover it.
    """
    covering = zip(boxes, loads.covering(cell), strict=True)
    return sum(box.amount for box, is_covering in covering if is_covering)
