"""Reads the exact losses that tables of the proofs state."""

from pathlib import Path

PROOFS = Path(__file__).parents[2] / "docs" / "proofs"


def stated(page: str, row: str) -> tuple[str, str]:
    """The losses of a row of a table of exact losses: under add/remove, and if a row is
    replaced.
    """
    lines = (PROOFS / page).read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith(f"| {row} |"))
    *_, add_remove, replace_one = line.strip("| ").split(" | ")
    return add_remove, replace_one
