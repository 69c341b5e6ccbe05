"""Holds shards of rows as several machines do, in this process: messages, lost
machines, and no network.
"""

from collections.abc import Callable

import numpy as np

from grovekeeper_forests import remote
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.coded_rows import CodedBlock, CodedColumns, CodedRows
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.releases.forest.draw import code_request
from grovekeeper_forests.remote import CodedDistributedRows, ShardStates, StateMissing
from tests.privacy.noiseless import coded


class Machines:
    """Shards of rows in this process, of which one is lost before every
    ``lost_every``-th question.
    """

    def __init__(
        self, shards: list[Callable[[], CodedRows]], *, lost_every: int
    ) -> None:
        self._read, self._lost_every = shards, lost_every
        self._shards = [ShardStates(read) for read in shards]
        self.n_questions = self.n_full = 0

    def total(self, brief: bytes, full: Callable[[], bytes]) -> np.ndarray:
        self.n_questions += 1
        if self.n_questions % self._lost_every == 0:
            lost = self.n_questions % len(self._shards)
            self._shards[lost] = ShardStates(self._read[lost])
        counted: np.ndarray = sum(
            remote.loads(self._answer(shard, brief, full)) for shard in self._shards
        )
        return counted

    def _answer(
        self, shard: ShardStates, brief: bytes, full: Callable[[], bytes]
    ) -> bytes:
        try:
            return remote.dumps(shard.answer(remote.loads(brief)))
        except StateMissing:
            self.n_full += 1
            return remote.dumps(shard.answer(remote.loads(full())))


def shards_of(whole: CodedRows) -> list[Callable[[], CodedRows]]:
    """Functions that read the blocks of rows, which no other function reads."""

    def reader(block: CodedBlock, place: slice) -> Callable[[], CodedRows]:
        ids = None if whole.ids is None else whole.ids[place]
        return lambda: CodedRows(
            CodedColumns(whole.features.public, [block]), whole.y[place], ids
        )

    ends = np.cumsum([block.n_rows for block in whole.features.blocks]).tolist()
    places = [
        slice(end - block.n_rows, end)
        for block, end in zip(whole.features.blocks, ends, strict=True)
    ]
    return [
        reader(block, place)
        for block, place in zip(whole.features.blocks, places, strict=True)
    ]


def on_machines(
    values: SanitisedRows, plan: Plan, schema: Schema, *, n_rows: int = 100
) -> CodedDistributedRows:
    """The rows as the growth of a plan reads them from machines; one machine for every
    ``n_rows`` rows.
    """
    asked = code_request(plan, schema)
    assert asked is not None
    return CodedDistributedRows(
        Machines(shards_of(coded(values, asked, n_rows=n_rows)), lost_every=4)
    )
