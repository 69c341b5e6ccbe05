"""A member of a population keeps its tightest joint cell and what is reserved there beside its load.

For the members that there are both are looked for here, among the boxes of their accounts. Where that is too much work
a cell is named that carries as much as was found, and said not to be exact until the member's next entry.

Revision ID: 0018
Revises: 0017
"""

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import rfc8785
import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOST_CHOICES = 200_000


class _Box(NamedTuple):
    scope: dict[str, frozenset[Any]]
    load: int
    reserved: int


def upgrade() -> None:
    op.add_column("population_members", sa.Column("reserved", INTEGER, nullable=True))
    op.add_column("population_members", sa.Column("tightest_cell", sa.Text(), nullable=True))
    op.add_column("population_members", sa.Column("is_exact", sa.Boolean(), nullable=True))
    connection = op.get_bind()
    for (account_id,) in connection.execute(sa.text("SELECT account_id FROM population_members")).all():
        rows = connection.execute(_BOXES, {"id": account_id}).all()
        boxes = [
            _Box({name: frozenset(cells) for name, cells in json.loads(scope).items()}, load, reserved)
            for scope, load, reserved in rows
        ]
        cell, is_exact = _tightest(boxes)
        reserved = sum(box.reserved for box in boxes if all(cell[name] in cells for name, cells in box.scope.items()))
        found = {"reserved": reserved, "cell": rfc8785.dumps(cell).decode("utf-8"), "is_exact": is_exact}
        connection.execute(_KEEP, {**found, "id": account_id})
    with op.batch_alter_table("population_members") as members:
        members.alter_column("reserved", nullable=False, existing_type=INTEGER)
        members.alter_column("tightest_cell", nullable=False, existing_type=sa.Text())
        members.alter_column("is_exact", nullable=False, existing_type=sa.Boolean())
        members.create_check_constraint(
            op.f("ck_population_members_reserved_within_load"), "reserved >= 0 AND reserved <= load"
        )


def _tightest(boxes: Sequence[_Box]) -> tuple[dict[str, Any], bool]:
    """The joint cell with the largest load, the first of equals, and whether no other can have more.

    Cells that are in the same boxes are one choice. A cell that no box names carries no more than any that one does.
    """
    choices = {
        name: _choices(name, boxes) for name in sorted({name for box in boxes for name in box.scope})
    }  # by partition: the boxes that a cell is in, and the first such cell
    everywhere = frozenset(range(len(boxes)))

    def load(covers: Sequence[frozenset[int]]) -> int:
        return sum(boxes[index].load for index in everywhere.intersection(*covers))

    is_exact = math.prod(map(len, choices.values())) <= _MOST_CHOICES
    if is_exact:
        best = max(itertools.product(*choices.values()), key=load)  # of equals the first
    else:
        best = tuple(max(each, key=lambda covers: load([covers])) for each in choices.values())
    return {name: own[covers] for (name, own), covers in zip(choices.items(), best, strict=True)}, is_exact


def _choices(name: str, boxes: Sequence[_Box]) -> dict[frozenset[int], Any]:
    found: dict[frozenset[int], Any] = {}
    for cell in sorted(frozenset[Any]().union(*(box.scope[name] for box in boxes if name in box.scope))):
        covers = frozenset(index for index, box in enumerate(boxes) if name not in box.scope or cell in box.scope[name])
        found.setdefault(covers, cell)
    return found


_BOXES = sa.text("SELECT scope, charged + reserved, reserved FROM account_boxes WHERE account_id = :id")
_KEEP = sa.text(
    "UPDATE population_members SET reserved = :reserved, tightest_cell = :cell, is_exact = :is_exact"
    " WHERE account_id = :id"
)
