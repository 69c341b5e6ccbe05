"""What the rules of the ledger say, in little more than a hundred lines: every joint cell is looked at, one by one.

No rows, no hashes, no SQL, no cleverness, and nothing of the product. A test that runs random programs compares the
ledger with it step by step; a test of races replays the entries through it, and every prefix must have been admissible.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from app.privacy.composition import Scope
from tests.support.ledger_steps import UPLOADS

Cell = int | str
Box = Mapping[str, Sequence[Cell]]
JointCell = tuple[Cell, ...]
"""One cell of each partition, in order of the partitions' names."""

FrozenBox = tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True)
class Job:
    """What a job holds, and where it stands: ``reserve``, or the end that it came to; and what it took of δ."""

    amount: int
    box: Box
    state: str
    delta: int = 0


@dataclass
class Model:
    """An account: a cap, how it is cut, and its jobs in order.

    Attributes:
        cap: in force now.
        cells: the cells of each partition. Where uploads are cells, a box lists them, and new ones are appended here.
        highest: the highest cap in force since the first job.
        aside: what is set aside of δ.
        kind: accountant, δ, adjacency and unit column: what members of a population have in common.
    """

    cap: int
    cells: dict[str, list[Cell]]
    jobs: dict[str, Job] = field(default_factory=dict)
    highest: int = 0
    aside: int = 0
    kind: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        self.highest = max(self.highest, self.cap)

    def joint_cells(self, box: Box) -> list[JointCell]:
        """Every joint cell of a box, in canonical order."""
        return list(product(*(sorted(box.get(name, self.cells[name])) for name in sorted(self.cells))))

    def carried(self, cell: JointCell) -> tuple[int, int]:
        """(charged, reserved) of one joint cell: every job whose box covers it."""
        covering = [job for job in self.jobs.values() if self._covers(job.box, cell)]
        charged = sum(job.amount for job in covering if job.state == "charge")
        return charged, sum(job.amount for job in covering if job.state == "reserve")

    def tightest(self, box: Box) -> tuple[dict[str, Cell], int, int]:
        """The first of the joint cells that carry most, with what is charged and reserved there."""
        amounts = {cell: self.carried(cell) for cell in self.joint_cells(box)}
        cell = max(amounts, key=lambda cell: sum(amounts[cell]))
        return dict(zip(sorted(self.cells), cell, strict=True)), *amounts[cell]

    @property
    def load(self) -> int:
        """What the joint cell that carries most carries."""
        _, charged, reserved = self.tightest({})
        return charged + reserved

    def delta_spent(self, box: Box) -> int:
        """The most that a joint cell of a box has spent of what is set aside of δ."""
        jobs = self.jobs.values()
        return max(sum(job.delta for job in jobs if self._covers(job.box, cell)) for cell in self.joint_cells(box))

    def fits(self, box: Box) -> int:
        """What may still be asked for in a box."""
        _, charged, reserved = self.tightest(box)
        return max(self.cap - charged - reserved, 0)

    def reserve(self, job_id: str, amount: int, box: Box) -> bool:
        if amount > self.fits(box):
            return False
        self.jobs[job_id] = Job(amount, box, "reserve")
        return True

    def settle(self, job_id: str, end: str) -> bool:
        job = self.jobs[job_id]
        if job.state != "reserve":
            return False
        self.jobs[job_id] = Job(job.amount, job.box, end, job.delta)
        return True

    def set_cap(self, cap: int) -> None:
        is_used = any(job.state in ("reserve", "charge") for job in self.jobs.values())
        self.cap, self.highest = cap, max(self.highest, cap) if is_used else cap

    @property
    def printable(self) -> int:
        """Sums of ε hold as they stand; what is converted at a δ holds as a limit that was set before."""
        return max(self.cap, self.load) if "pure" in self.kind else self.highest

    def by_box(self) -> dict[FrozenBox, tuple[int, int]]:
        """(charged, reserved) of every distinct box that carries anything."""
        sums: dict[FrozenBox, tuple[int, int]] = {}
        for job in self.jobs.values():
            if job.state in ("charge", "reserve"):
                box = frozen(job.box)
                charged, reserved = sums.get(box, (0, 0))
                is_charged = job.state == "charge"
                sums[box] = (charged + job.amount * is_charged, reserved + job.amount * (not is_charged))
        return sums

    def _covers(self, box: Box, cell: JointCell) -> bool:
        named = zip(sorted(self.cells), cell, strict=True)
        return all(name not in box or coordinate in box[name] for name, coordinate in named)


@dataclass
class Together:
    """A population: one cap over what a person can lose in all its members, who may have a row in any cell of each."""

    cap: int
    kind: tuple[str | None, ...]
    members: dict[str, Model] = field(default_factory=dict)
    highest: int = 0

    def __post_init__(self) -> None:
        self.highest = max(self.highest, self.cap)

    @property
    def load(self) -> int:
        """Of the person who can lose most."""
        return sum(member.load for member in self.members.values())

    def fits(self, account_id: str, box: Box) -> int:
        """What may still be asked for in a box of a member: nothing while the sum is over the cap."""
        others = sum(member.load for name, member in self.members.items() if name != account_id)
        _, charged, reserved = self.members[account_id].tightest(box)
        return max(self.cap - others - charged - reserved, 0) if self.load <= self.cap else 0

    def join(self, account_id: str, account: Model) -> bool:
        """Whether it may: members have everything in common that is not None here, and set no δ aside."""
        if account.aside or any(own not in (None, its) for own, its in zip(self.kind, account.kind, strict=True)):
            return False
        self.kind = account.kind
        self.members[account_id] = account
        if account.load and "pure" not in self.kind:
            self.highest += account.highest
        return True

    def set_cap(self, cap: int) -> None:
        self.cap, self.highest = cap, max(self.highest, cap) if self.load else cap

    @property
    def printable(self) -> int:
        """The same rule as of an account."""
        return max(self.cap, self.load) if "pure" in self.kind else self.highest


def frozen(box: Box) -> FrozenBox:
    """A box as a key."""
    return tuple((name, tuple(cells)) for name, cells in sorted(box.items()))


def second(job_id: str) -> str:
    """By what a job's second reservation on one account is known."""
    return f"{job_id}/1"


def replay(entries: Iterable[Any], cells: Mapping[str, Sequence[Cell]]) -> Model:
    """Runs the entries of an account through the model; each admission must have been one, and each end the first."""
    model = Model(0, {name: list(listed) for name, listed in cells.items()})
    for entry in entries:
        job_id, box = str(entry.job_id), frozen(entry.scope)
        match entry.kind.value:
            case "open":
                model.cap = model.highest = entry.amount
            case "cap":
                model.set_cap(entry.amount)
            case "reserve":
                if job_id in model.jobs:
                    both = model.joint_cells(model.jobs[job_id].box), model.joint_cells(entry.scope)
                    assert set(both[0]).isdisjoint(both[1]), "two of one job share no cell"
                    job_id = second(job_id)
                assert job_id not in model.jobs
                assert model.reserve(job_id, entry.amount, entry.scope), f"over the cap at entry {entry.sequence}"
            case end:
                parts = [part for part in (job_id, second(job_id)) if part in model.jobs]
                part = next(part for part in parts if frozen(model.jobs[part].box) == box)
                assert entry.amount == model.jobs[part].amount
                assert model.settle(part, end)
    return model


def replay_population(entries: Iterable[Any]) -> tuple[int, dict[str, int]]:
    """The cap and the loads of a population's members after its entries: no load grew to a sum over the cap."""
    cap, loads = 0, dict[str, int]()
    for entry in entries:
        match entry.kind.value:
            case "open" | "cap":
                cap = entry.amount
            case kind:
                member = entry.details["member"]["dataset"]
                assert (kind == "join") is (member not in loads)
                grew = kind == "load" and entry.amount > loads[member]
                loads[member] = entry.amount
                assert not grew or sum(loads.values()) <= cap, f"over the cap at entry {entry.sequence}"
    return cap, loads


def order_of(cell: Cell) -> tuple[int, str]:
    """Canonical order: numbers by their size, texts as they are."""
    return (cell, "") if isinstance(cell, int) else (0, cell)


def picked(model: Model, picks: dict[str, frozenset[int]]) -> Scope:
    """The cells that were picked of the partitions that there are."""
    return {
        name: tuple(sorted({model.cells[name][pick % len(model.cells[name])] for pick in listed}, key=order_of))
        for name, listed in sorted(picks.items())
        if name in model.cells
    }


def box_of(model: Model, picks: dict[str, frozenset[int]]) -> Scope:
    """The same; where uploads are cells, all of them unless some were picked."""
    uploads = {UPLOADS: tuple(model.cells[UPLOADS])} if UPLOADS in model.cells else {}
    return dict(sorted({**uploads, **picked(model, picks)}.items()))
