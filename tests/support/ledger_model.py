"""Models the rules of the ledger by brute force over joint cells, without code of the
product.

Tests of random programs compare the ledger with the model after every step. What they
write is judged by the functions of the proofs (:mod:`tests.support.checked_exports`).
The model stays for what these do not state: rooms, tightest cells with their charged
and reserved parts, δ, and accounts that are opened while a program runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from grovekeeper_forests.privacy.scope import Scope
from tests.support.ledger_steps import UPLOADS

Cell = int | str
Box = Mapping[str, Sequence[Cell]]
JointCell = tuple[Cell, ...]
"""One cell of each partition, in order of the partitions' names."""

FrozenBox = tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True)
class Job:
    """A reservation: its amount, its box, its state (``reserve``, or the kind of its
    last entry), and its δ.
    """

    amount: int
    box: Box
    state: str
    delta: int = 0


@dataclass
class Model:
    """An account with its jobs in order.

    Attributes:
        cap: the cap in force.
        cells: cells of each partition. Uploads append cells; a box lists the uploads
            that it covers.
        highest: highest cap in force since the first job.
        aside: steps of δ that are set aside.
        kind: accountant, δ, adjacency and unit column, which members of a population
            have in common.
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
        return list(
            product(
                *(
                    sorted(box.get(name, self.cells[name]))
                    for name in sorted(self.cells)
                )
            )
        )

    def carried(self, cell: JointCell) -> tuple[int, int]:
        """(charged, reserved) of one joint cell, over all jobs whose boxes cover the
        cell.
        """
        covering = [job for job in self.jobs.values() if self._covers(job.box, cell)]
        charged = sum(job.amount for job in covering if job.state == "charge")
        return charged, sum(job.amount for job in covering if job.state == "reserve")

    def tightest(self, box: Box) -> tuple[dict[str, Cell], int, int]:
        """The joint cell with the largest load in a box, with its charged and reserved
        amounts.

        Among equal loads, cells of declared categories come before OTHER and MISSING,
        in the order of the partitions.
        """
        amounts = {cell: self.carried(cell) for cell in self.joint_cells(box)}
        names = sorted(self.cells)

        def rank(cell: JointCell) -> tuple[int, list[bool]]:
            named = dict(zip(names, cell, strict=True))
            return sum(amounts[cell]), [
                named[name] not in ("OTHER", "MISSING") for name in self.cells
            ]

        cell = max(amounts, key=rank)
        return dict(zip(names, cell, strict=True)), *amounts[cell]

    @property
    def load(self) -> int:
        """The largest load of any joint cell."""
        _, charged, reserved = self.tightest({})
        return charged + reserved

    def delta_spent(self, box: Box) -> int:
        """The largest δ that a joint cell of a box has spent."""
        jobs = self.jobs.values()
        return max(
            sum(job.delta for job in jobs if self._covers(job.box, cell))
            for cell in self.joint_cells(box)
        )

    def fits(self, box: Box) -> int:
        """The largest amount that fits in a box."""
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
        """The amount of the printed guarantee: for ``pure`` cap or load; otherwise the
        highest cap, because the conversion at a δ holds for a limit that was set
        before.
        """
        return max(self.cap, self.load) if "pure" in self.kind else self.highest

    def by_box(self) -> dict[FrozenBox, tuple[int, int]]:
        """(charged, reserved) of every distinct box with spend."""
        sums: dict[FrozenBox, tuple[int, int]] = {}
        for job in self.jobs.values():
            if job.state in ("charge", "reserve"):
                box = frozen(job.box)
                charged, reserved = sums.get(box, (0, 0))
                is_charged = job.state == "charge"
                sums[box] = (
                    charged + job.amount * is_charged,
                    reserved + job.amount * (not is_charged),
                )
        return sums

    def _covers(self, box: Box, cell: JointCell) -> bool:
        named = zip(sorted(self.cells), cell, strict=True)
        return all(
            name not in box or coordinate in box[name] for name, coordinate in named
        )


@dataclass
class PopulationModel:
    """A population: a cap on the sum of its members' loads, because a person may have a
    row in any cell of each.
    """

    cap: int
    kind: tuple[str | None, ...]
    members: dict[str, Model] = field(default_factory=dict)
    highest: int = 0

    def __post_init__(self) -> None:
        self.highest = max(self.highest, self.cap)

    @property
    def load(self) -> int:
        """The sum of the members' loads."""
        return sum(member.load for member in self.members.values())

    def fits(self, account_id: str, box: Box) -> int:
        """The largest amount that fits in a box of a member; 0 while the sum of loads
        is over the cap.
        """
        others = sum(
            member.load for name, member in self.members.items() if name != account_id
        )
        _, charged, reserved = self.members[account_id].tightest(box)
        return (
            max(self.cap - others - charged - reserved, 0)
            if self.load <= self.cap
            else 0
        )

    def join(self, account_id: str, account: Model) -> bool:
        """Joins an account that agrees with every field of ``kind`` that is not
        ``None`` and sets no δ aside.
        """
        if account.aside or any(
            mine not in (None, its)
            for mine, its in zip(self.kind, account.kind, strict=True)
        ):
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
        """The amount of the printed guarantee, by the rule of :attr:`Model.printable`."""
        return max(self.cap, self.load) if "pure" in self.kind else self.highest


def frozen(box: Box) -> FrozenBox:
    """A box as a dictionary key."""
    return tuple((name, tuple(cells)) for name, cells in sorted(box.items()))


def second_part(job_id: str) -> str:
    """The model's name of a job's second reservation on one account."""
    return f"{job_id}/1"


def order_of(cell: Cell) -> tuple[int, str]:
    """Sort key of the canonical order: numbers by size, texts by character."""
    return (cell, "") if isinstance(cell, int) else (0, cell)


def picked_cells(model: Model, picks: dict[str, frozenset[int]]) -> Scope:
    """The picked cells of the account's partitions."""
    known = {name: listed for name, listed in picks.items() if name in model.cells}
    return Scope(
        {
            name: {model.cells[name][pick % len(model.cells[name])] for pick in listed}
            for name, listed in known.items()
        }
    )


def box_of(model: Model, picks: dict[str, frozenset[int]]) -> Scope:
    """The picked cells; all uploads if uploads are cells and none was picked."""
    uploads = {UPLOADS: tuple(model.cells[UPLOADS])} if UPLOADS in model.cells else {}
    return Scope({**uploads, **picked_cells(model, picks)})
