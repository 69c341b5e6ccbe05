"""Asks the functions that ``proofs`` speaks of, in the words of the ledger.

:mod:`tests.support.checked_ledger` is generated from the proofs. Everything here
translates amounts, cells and jobs for it, and decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from grovekeeper_forests.privacy.partitions import Partitions
from grovekeeper_forests.privacy.scope import WHOLE, Cell
from tests.support import checked_ledger, checked_values
from tests.support.checked_values import integer, listed, natural, number, size, some

_checked = checked_values.Deep(checked_ledger)
Box = Mapping[str, Iterable[Cell]]


class Step(NamedTuple):
    """An entry of a dataset's account; ``highest`` is that of an opening load."""

    kind: str
    amount: int
    scope: Box = WHOLE
    job: object = None
    highest: int = 0


class Names:
    """The numbers of a dataset's cells and jobs; ``parts`` are its partitions."""

    def __init__(self, domains: Mapping[str, Sequence[Cell] | None]) -> None:
        """``None`` stands for uploads, which are numbered when a scope names them."""
        self._jobs: dict[object, int] = {}
        self._cells = {
            name: {cell: number for number, cell in enumerate(domain or ())}
            for name, domain in domains.items()
        }
        self.parts = listed(
            ("None",) if domain is None else some(range(len(domain)))
            for domain in domains.values()
        )

    @classmethod
    def of(cls, partitions: Partitions) -> Self:
        """The names of declared partitions."""
        return cls({each.name: each.known_cells for each in partitions.declared})

    def scope(self, scope: Box) -> Any:
        """The cells of each partition that a scope restricts."""
        return listed(
            some(known.setdefault(cell, len(known)) for cell in scope[name])
            if name in scope
            else ("None",)
            for name, known in self._cells.items()
        )

    def entry(self, step: Step) -> Any:
        """The entry of a step."""
        amount = integer(step.amount)
        if step.kind == "cap":
            return ("Cap", amount)
        if step.kind == "load":
            return ("Opening", amount, integer(step.highest))
        job = natural(self._jobs.setdefault(step.job, len(self._jobs)))
        return (step.kind.capitalize(), job, ("Box", self.scope(step.scope), amount))

    def largest(self, boxes: Iterable[tuple[Box, int]], inside: Box = WHOLE) -> int:
        """The largest load in a scope, by brute force over its joint cells."""
        amounts = [("Box", self.scope(box), integer(amount)) for box, amount in boxes]
        return self.largest_of(listed(amounts), inside)

    def largest_of(self, boxes: Any, inside: Box) -> int:
        """The same of boxes that the checked functions have made."""
        return number(_checked.brute_largest(self.parts, boxes, self.scope(inside)))


class Account:
    """A dataset's account after the entries that it has taken."""

    def __init__(self, names: Names, cap: int) -> None:
        self._names, self._state = names, _checked.opened(integer(cap))

    def take(self, *steps: Step) -> bool:
        """Takes all of some entries; none if one of them cannot follow."""
        top = lambda boxes, inside: _checked.brute_largest(  # noqa: E731 - not bound
            self._names.parts, boxes, inside
        )
        entries = listed(self._names.entry(step) for step in steps)
        answer = _checked.call(checked_ledger.run, top, self._state, entries)
        self._state = self._state if answer == ("None",) else answer[1]
        return bool(answer != ("None",))

    @property
    def caps(self) -> tuple[int, int]:
        """In force, and the highest."""
        return number(self._state[1]), number(self._state[2])

    def load(self, scope: Box = WHOLE) -> int:
        """The largest load in a scope."""
        return self._names.largest_of(_checked.boxes(self._state), scope)


class World:
    """Some datasets, by number, and a population that they may join."""

    def __init__(
        self, datasets: Sequence[tuple[Names, int]], cap: int, accountant: str
    ) -> None:
        self._names = [names for names, _ in datasets]
        opening = lambda at: integer(datasets[size(at)][1])  # noqa: E731 - its code is read
        parts = lambda at: self._names[size(at)].parts  # noqa: E731
        self._is_pure = (str(accountant == "pure"),)
        self._history = _checked.history(
            parts, checked_ledger.brute_largest, self._is_pure
        )
        self._world = _checked.opened_world(opening, integer(cap))

    def take(self, *acts: tuple[Any, ...]) -> bool:
        """Takes all of some acts, or none: ("Own", dataset, step), ("Join", dataset),
        ("PopulationCap", cap), ("Continue", dataset, erased dataset, its highest cap).
        """
        taken = listed(self._act(*act) for act in acts)
        answer = _checked.call(self._history, self._world, taken)
        self._world = self._world if answer == ("None",) else answer[1]
        return bool(answer != ("None",))

    @property
    def standing(self) -> tuple[int, int, int, int]:
        """What the members carry together; the cap, the highest, what is printed."""
        printed = number(_checked.printed(self._is_pure, self._world))
        together = number(_checked.together(self._world))
        return together, number(self._world[4]), number(self._world[5]), printed

    def carried(self, at: int) -> int:
        """What the population's newest entry says about a member."""
        return number(_checked.call(self._world[3], natural(at)))

    def _act(self, kind: str, first: int, *others: Any) -> Any:
        match kind:
            case "Own":
                return (kind, natural(first), self._names[first].entry(*others))
            case "Continue":
                erased, highest = others
                return (kind, natural(first), natural(erased), integer(highest))
            case "Join":
                return (kind, natural(first))
        return (kind, integer(first))
