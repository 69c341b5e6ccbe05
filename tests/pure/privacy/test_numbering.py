"""Numbering of scopes: equal lists share a number, and concurrent additions disturb no
reader.
"""

from collections.abc import Iterator

from grovekeeper_forests.privacy.joint_loads import Loads
from grovekeeper_forests.privacy.numbering import Numbering
from grovekeeper_forests.privacy.partitions import HashPartition, Partitions
from grovekeeper_forests.privacy.scope import Cell, Scope

AMOUNTS = [5, 7, 11]


def _numbering() -> Numbering:
    result = Numbering(["shard", "coin"])
    result.add("both", {"shard": (0, 1), "coin": (1,)})
    result.add("shard", {"shard": (1, 2)})
    result.add("all", {})
    return result


def test_loads_are_computed_for_scopes_by_their_keys() -> None:
    numbering = _numbering()
    assert "both" in numbering
    assert "neither" not in numbering
    partitions = Partitions((HashPartition("shard", 4), HashPartition("coin", 2)))
    result = Loads(
        partitions, numbering.boxes(["both", "shard", "all"], AMOUNTS)
    ).largest()
    assert (result.load, result.cell) == (23, {"coin": 1, "shard": 1})
    fewer = Loads(partitions, numbering.boxes(["shard", "all"], AMOUNTS[:2])).largest()
    assert (fewer.load, fewer.cell) == (12, {"coin": 0, "shard": 1})
    assert Loads(partitions, numbering.boxes([], AMOUNTS[:0])).largest().load == 0


def test_equal_lists_are_kept_once() -> None:
    numbering = _numbering()
    before = numbering.size
    numbering.add("again", Scope({"shard": (0, 1), "coin": (1,)}))
    assert numbering.size == before + 1, "the scope, and none of its cells"


def test_another_thread_may_add_cells_while_a_question_is_answered() -> None:
    numbering = _numbering()

    class Domain(tuple[Cell, ...]):
        """A tuple of cells during whose iteration another thread seems to add two new
        cells per step.
        """

        def __iter__(self) -> Iterator[Cell]:
            for cell in super().__iter__():
                numbering.add(
                    f"late-{cell}", Scope({"shard": (100 + int(cell), 200 + int(cell))})
                )
                yield cell

    lists = (
        numbering.boxes(["both", "shard", "all"], AMOUNTS)
        .sides["shard"]
        .clipped(Domain((1, 2, 101, 202, 203)))
    )
    assert lists.covers[lists.of_box].tolist() == [
        [True, False, False, False, False],
        [True, True, False, False, False],
        [True] * 5,
    ]
