"""Describes an algorithm for ``GET /algorithms``: its paper's claims and errors, this version, measured accuracy."""

from dataclasses import dataclass

_MEASURED = ("adult", "banknote", "mushroom", "nursery", "pendigits")
"""The public tables on which every algorithm is measured."""


@dataclass(frozen=True)
class Measured:
    """A mean accuracy from the tables of the results.

    Attributes:
        dataset: a public table of ``docs/results``.
        accountant: accountant of the account that pays ε.
        epsilon: decimal text.
        percent: mean accuracy on held-out rows, over several splits; decimal text.
    """

    dataset: str
    accountant: str
    epsilon: str
    percent: str

    def to_json(self) -> dict[str, str]:
        """Every field."""
        return {
            "dataset": self.dataset,
            "accountant": self.accountant,
            "epsilon": self.epsilon,
            "percent": self.percent,
        }


@dataclass(frozen=True)
class About:
    """The description of an algorithm, in sentences.

    Attributes:
        claimed: the guarantee that the paper claims; ``None`` where the algorithm has no paper.
        wrong: known errors in the claim or in the paper's code; ``None`` where none are known.
        here: the implementation in this service.
        proof: the page with the theorem.
        results: the page with the accuracy and the method of measurement.
        accuracy: some of the measured accuracies.
    """

    claimed: str | None
    wrong: str | None
    here: str
    proof: str
    results: str
    accuracy: tuple[Measured, ...]

    def to_json(self) -> dict[str, object]:
        """Every field, JSON-able."""
        return {
            "claimed": self.claimed,
            "wrong": self.wrong,
            "here": self.here,
            "proof": self.proof,
            "results": self.results,
            "accuracy": [measurement.to_json() for measurement in self.accuracy],
        }


def at_epsilon_one(percents: str, *, accountant: str = "pure") -> tuple[Measured, ...]:
    """Accuracies at ε = 1 on Adult, Banknote, Mushroom, Nursery and Pendigits, in this order, with spaces between."""
    return tuple(
        Measured(dataset, accountant, "1", percent)
        for dataset, percent in zip(_MEASURED, percents.split(), strict=True)
    )
