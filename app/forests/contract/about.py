"""What people should know of an algorithm before they pay for it: claims, flaws, what runs here, how good it is."""

from dataclasses import dataclass

_MEASURED = ("adult", "banknote", "mushroom", "nursery", "pendigits")
"""The tables that every algorithm was run on."""


@dataclass(frozen=True)
class Measured:
    """A mean accuracy that stands in the tables of the results.

    Attributes:
        dataset: a public table of ``docs/results``.
        accountant: of the account that the ε was spent on.
        epsilon: decimal text.
        percent: mean over splits of rows that were not trained on; decimal text.
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
    """The story of an algorithm, in sentences.

    Attributes:
        claimed: what its paper says that it guarantees; ``None`` where there is no paper but ours.
        wrong: what does not hold of that, or of the paper's code; ``None`` where nothing is known to be wrong.
        here: what runs here.
        proof: the page with its theorem.
        results: the page with its accuracy and how it was measured.
        accuracy: some of those numbers.
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
            "accuracy": [each.to_json() for each in self.accuracy],
        }


def at_epsilon_one(percents: str, *, accountant: str = "pure") -> tuple[Measured, ...]:
    """Accuracies at ε = 1 on Adult, Banknote, Mushroom, Nursery and Pendigits, in this order, with spaces between."""
    return tuple(
        Measured(dataset, accountant, "1", percent)
        for dataset, percent in zip(_MEASURED, percents.split(), strict=True)
    )
