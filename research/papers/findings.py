"""Compares a paper's stated findings with runs, and states the result in sentences that
are computed, never typed.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from scipy import stats

from grovekeeper_forests.catalogue import BY_SLUG
from grovekeeper_forests.privacy.events import Adjacency
from research.papers.ablations import Values
from research.runs import Task

HOLDS, FAILS, OPEN = "Holds", "Does not hold", "Not decided"

MOST_NAMED = 4
"""Datasets that a basis names; more are counted."""

_ADJACENCIES = {
    Adjacency.ADD_REMOVE_ONE: "add/remove",
    Adjacency.LABEL: "a label changes",
}

_BY_ABSTRACT = " by its abstract"
"""The rule of a forest whose text and code were not at hand (docs/references.md)."""

RULE = """\
The papers' sentences stand beside what our runs show. What follows "Here" is computed, from runs or from printed
numbers as it says. A difference decides if a t-test on pairs of runs rejects zero at 0.05; ± is one standard error
there, and the standard deviation in files, which have the number of runs in brackets. A sentence on several differences
holds if all of them decide for it, and does not hold if one decides against it at 0.05 over their number; where the
sentence states their mean as well, that mean decides. Where cases are counted ("above in 7 of 21") and the sentence
says neither "all", "always", "level" nor "in some cases", more than half must decide for it, or half against it. "On
par" means: not significantly less accurate over datasets, which few datasets make likely. "Level" of several cases
means: each significantly above minus two points, and none significantly below zero. "In some cases" needs one case that
decides for it at 0.05 over their number. Where so many points "count as little", or as "stable", each mean must be
within them, and one significantly beyond them refutes."""
"""How pages judge sentences of the papers."""

LITTLE = 2.0
"""Points that a level forest may be below another one."""

LEVEL = 0.05
"""Level of the two-sided t-test on pairs that decides about a difference."""


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences.

    Attributes:
        mean: in the unit of the pairs.
        error: one standard error; infinite for fewer than two pairs. Folds of one
            cross-validation share rows, so it is an approximation.
        n_pairs: number of pairs.
    """

    mean: float
    error: float
    n_pairs: int

    @classmethod
    def of(cls, first: Sequence[float], second: Sequence[float]) -> Difference:
        """Mean of ``first − second`` over the pairs that both have; NaN without a pair."""
        pairs = [
            one - other
            for one, other in zip(first, second, strict=False)
            if not math.isnan(one - other)
        ]
        error = (
            statistics.stdev(pairs) / math.sqrt(len(pairs))
            if len(pairs) > 1
            else math.inf
        )
        return cls(statistics.fmean(pairs) if pairs else math.nan, error, len(pairs))

    @property
    def sign(self) -> int:
        """1 or −1 where the mean is significantly above or below zero, else 0."""
        return self.sign_at(LEVEL)

    def sign_at(self, level: float, *, limit: float = 0.0) -> int:
        """1 or −1 where the mean is significantly above ``limit`` or below ``−limit``
        at a two-sided level, else 0.
        """
        if self.n_pairs < 2 or not math.isfinite(self.mean):
            return 0
        beyond = (
            abs(self.mean) - limit
            > float(stats.t.ppf(1 - level / 2, self.n_pairs - 1)) * self.error
        )
        return 0 if not beyond else (1 if self.mean > 0 else -1)

    def __neg__(self) -> Difference:
        return Difference(-self.mean, self.error, self.n_pairs)

    def __str__(self) -> str:
        if not self.n_pairs:
            return "– (no runs)"
        spread = f" ± {self.error:.1f}" if math.isfinite(self.error) else ""
        return f"{self.mean:+.1f}{spread}"


@dataclass(frozen=True)
class Finding:
    """A statement of a paper beside what runs show.

    Attributes:
        stated: the paper's words, or their translation.
        ours: what the runs show, in a sentence.
        verdict: :data:`HOLDS`, :data:`FAILS` or :data:`OPEN`.
        basis: which runs the sentence is computed from, as :func:`basis` writes it, or
            which printed numbers.
    """

    stated: str
    ours: str
    verdict: str
    basis: str

    def __str__(self) -> str:
        return f"Here ({self.basis}): {self.ours} **{self.verdict}.**"


def listed(known: Iterable[Finding]) -> Iterator[str]:
    """The lines of a list of findings; those on one statement stand under it."""
    for stated, of_statement in groupby(known, lambda finding: finding.stated):
        texts = list(map(str, of_statement))
        if len(texts) == 1:
            yield f"* The paper: {stated} {texts[0]}"
        else:
            yield f"* The paper: {stated}"
            yield from (f"    * {text}" for text in texts)


def basis(tasks: Iterable[Task], *, literal: str = " as printed") -> str:
    """The forests of tasks, whether they run as printed or at which adjacency, their
    datasets and ε, in words.

    Args:
        tasks: runs.
        literal: what is said of forests that follow a printed rule.
    """
    known = list(tasks)
    slugs_of: dict[str, dict[str, None]] = {}
    for task in known:
        slugs_of.setdefault(_rule_of(task, literal), {})[f"`{task.slug}`"] = None
    forests = "; ".join(
        f"{_joined(list(slugs))}{rule}" for rule, slugs in slugs_of.items()
    )
    datasets = dict.fromkeys(task.dataset.partition("@")[0] for task in known)
    budgets = dict.fromkeys(task.epsilon for task in known if task.epsilon)
    where = (
        ", ".join(datasets)
        if len(datasets) <= MOST_NAMED
        else f"{len(datasets)} datasets"
    )
    at = f", ε = {', '.join(budgets)}" if budgets else ""
    return f"{forests}; {where}{at}"


def _rule_of(task: Task, literal: str) -> str:
    if task.slug in BY_SLUG:
        return f", repaired, {_ADJACENCIES[BY_SLUG[task.slug].adjacency]}"
    if task.parameters.get("stop") == "leaves":
        return " with the stop of section 3.2 of Bai et al."
    return _BY_ABSTRACT if task.slug == "hobraf" else literal


def _joined(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def by_sign(difference: Difference) -> str:
    """The verdict on a statement that a difference is above zero."""
    return {1: HOLDS, -1: FAILS, 0: OPEN}[difference.sign]


def by_signs(differences: Iterable[Difference]) -> str:
    """The verdict on a statement that all differences are above zero: one below zero
    refutes it, all above prove it.

    One of many is below zero by chance, so the level of a refutation is divided by
    their number.
    """
    known = list(differences)
    if any(difference.sign_at(LEVEL / len(known)) == -1 for difference in known):
        return FAILS
    return HOLDS if _all_above(known) else OPEN


def by_majority(differences: Iterable[Difference]) -> str:
    """The verdict on a statement that most differences are above zero: decided by more
    than half of all.
    """
    signs = [difference.sign for difference in differences]
    if 2 * signs.count(1) > len(signs):
        return HOLDS
    return FAILS if 2 * signs.count(-1) >= len(signs) > 0 else OPEN


def never_below(differences: Iterable[Difference]) -> str:
    """The verdict on a statement that no difference is below zero: proved if none is and
    all are above −:data:`LITTLE`, as few pairs show nothing below zero; the level of a
    refutation is divided by their number.
    """
    known = list(differences)
    if any(gap.sign_at(LEVEL / len(known)) == -1 for gap in known):
        return FAILS
    signs = {gap.sign for gap in known}
    return HOLDS if -1 not in signs and _all_above(beside_little(known)) else OPEN


def beside_little(differences: Iterable[Difference]) -> list[Difference]:
    """What differences are above −:data:`LITTLE`."""
    return [replace(gap, mean=gap.mean + LITTLE) for gap in differences]


def _all_above(known: Sequence[Difference]) -> bool:
    return bool(known) and all(gap.sign == 1 for gap in known)


def somewhere(differences: Iterable[Difference]) -> str:
    """The verdict on a statement that some difference is above zero: proved by one,
    whose level is divided by their number; refuted if all are below.
    """
    opposite = {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}
    return opposite[by_signs([-gap for gap in differences])]


def agreed(verdicts: Iterable[str]) -> str:
    """The verdict of all readings of a statement; open where they differ."""
    known = set(verdicts)
    return known.pop() if len(known) == 1 else OPEN


def within(differences: Iterable[Difference], limit: float) -> str:
    """The verdict on a statement that all differences are at most ``limit``, whatever
    their sign.

    A difference that is significantly beyond the limit refutes it; the level is divided
    by their number.
    """
    known = list(differences)
    if any(gap.sign_at(LEVEL / len(known), limit=limit) for gap in known):
        return FAILS
    return (
        HOLDS
        if known and all(abs(gap.mean) <= limit and gap.n_pairs > 1 for gap in known)
        else OPEN
    )


def counted(differences: Sequence[Difference]) -> str:
    """How many differences are above zero, below it, or undecided, in words."""
    signs = [difference.sign for difference in differences]
    return f"above in {signs.count(1)} of {len(signs)} cases, below in {signs.count(-1)}, undecided in {signs.count(0)}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The text of a CSV file."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return lines.getvalue()


def text_of(numbers: Sequence[float], *, digits: int = 1) -> str:
    """Mean ± standard deviation and, in brackets, how many numbers; a dash for none."""
    if not numbers:
        return "–"
    spread = f" ± {statistics.stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    return f"{statistics.fmean(numbers):.{digits}f}{spread} ({len(numbers)})"


def folds(values: Values, tasks: Iterable[Task]) -> str:
    """How many folds the numbers of tasks are means of, by forest where they differ."""
    of_forest: dict[str, set[int]] = {}
    for task in tasks:
        if runs := values.get(task):
            of_forest.setdefault(f"`{task.slug}`", set()).add(len(runs))
    known = {slug: range_of(counts) for slug, counts in of_forest.items()}
    if len(set(known.values())) == 1:
        return f"Every number is of {next(iter(known.values()))} folds a dataset."
    counted = ", ".join(f"{slug} {counts}" for slug, counts in known.items())
    return f"Folds of a dataset: {counted}."


def range_of(counts: set[int]) -> str:
    """The smallest and the largest of some counts, in words; a dash for none."""
    if not counts:
        return "–"
    fewest, most = min(counts), max(counts)
    return str(most) if fewest == most else f"{fewest} to {most}"


def trees(count: int) -> str:
    """A number of trees in words."""
    return "1 tree" if count == 1 else f"{count} trees"
