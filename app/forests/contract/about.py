"""Describes an algorithm for ``GET /algorithms``: its paper's claims and errors, and this version."""

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """The description of an algorithm, in sentences.

    Attributes:
        claimed: the guarantee that the paper claims; ``None`` where the algorithm has no paper.
        wrong: known errors in the claim or in the paper's code; ``None`` where none are known.
        here: the implementation in this service.
        proof: the page with the theorem.
        results: the page with the accuracy and the method of measurement.
    """

    claimed: str | None
    wrong: str | None
    here: str
    proof: str
    results: str
