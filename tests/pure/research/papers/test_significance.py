"""Ranks and tests against printed ranks and enumerations of all signs and all samples."""

from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from research.papers import findings, printed_further, ranks_page, significance
from research.papers.significance import BETTER, NEITHER, WORSE


@pytest.mark.parametrize("ranked", ranks_page.RANKED, ids=lambda ranked: ranked.item)
def test_printed_accuracies_have_the_printed_ranks(ranked: ranks_page.Ranked) -> None:
    """The papers number equal accuracies, here they share a rank: a pair of 24 datasets
    moves two ranks by 0.02.
    """
    printed = {
        method: rank
        for (_, method), rank in printed_further.numbers(ranked.item).items()
    }
    rows = ranks_page.matrix(ranked.table, list(printed), lambda cell: cell.printed)
    accuracies = np.array(
        [row for dataset, row in rows.items() if dataset not in ranked.absent]
    )
    assert len(accuracies) == (22 if ranked.absent else 24)
    ranks = significance.average_ranks(accuracies)
    assert np.abs(ranks - list(printed.values())).max() < 0.07
    assert ranks.sum() == pytest.approx(len(printed) * (len(printed) + 1) / 2)


def test_equal_accuracies_share_their_mean_rank() -> None:
    accuracies = np.array([[0.9, 0.8, 0.8], [0.5, 0.7, 0.6]])
    assert significance.average_ranks(accuracies).tolist() == [2.0, 1.75, 2.25]


def _signed_rank_probability(differences: Sequence[float]) -> float:
    """Wilcoxon's two-sided probability over all signs, in plain Python."""
    ranks = stats.rankdata(np.abs(differences))
    seen = abs(float(ranks @ np.sign(differences)))
    sums = [
        abs(float(ranks @ np.array(signs)))
        for signs in product((-1, 1), repeat=len(ranks))
    ]
    return float(np.mean([total >= seen - 1e-9 for total in sums]))


def _pairs(seed: int) -> tuple[list[float], list[float]]:
    """Ten pairs; every third seed has accuracies on few rows, with equal differences
    and zeros.
    """
    random = np.random.default_rng(seed)
    ours, theirs = (
        random.normal(0.1 * (seed % 13 - 6), 0.3, 10),
        random.normal(0, 0.3, 10),
    )
    digits = 1 if seed % 3 == 0 else 9
    return ours.round(digits).tolist(), theirs.round(digits).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_the_signed_rank_mark_is_that_of_all_signs(seed: int) -> None:
    ours, theirs = _pairs(seed)
    differences = np.round(np.subtract(ours, theirs), 9)
    differences = differences[differences != 0]
    probability = _signed_rank_probability(differences.tolist())
    assert significance.signed_rank_probability(differences) == pytest.approx(
        probability
    )
    mark = significance.signed_rank_mark(ours, theirs)
    assert (mark != NEITHER) == (probability < 0.05)
    assert significance.signed_rank_mark(theirs, ours) == {
        BETTER: WORSE,
        WORSE: BETTER,
    }.get(mark, NEITHER)


def test_the_seeds_of_the_signed_rank_test_reach_every_mark() -> None:
    assert {significance.signed_rank_mark(*_pairs(seed)) for seed in range(30)} == {
        BETTER,
        WORSE,
        NEITHER,
    }


def test_the_probability_of_many_pairs_is_that_of_scipy() -> None:
    differences = np.random.default_rng(0).normal(0.2, 1, 40)
    exact = stats.wilcoxon(differences, method="exact").pvalue
    assert significance.signed_rank_probability(differences) == pytest.approx(exact)


@pytest.mark.parametrize(("ours", "theirs", "mark"), [
    ([0.9, 0.91, 0.92, 0.93], [0.1, 0.2, 0.3, 0.4], BETTER),
    ([0.1, 0.2, 0.3, 0.4], [0.9, 0.91, 0.92, 0.93], WORSE),
    ([0.9, 0.91, 0.92], [0.1, 0.2, 0.3], NEITHER),
    ([0.1, 0.5, 0.3, 0.9], [0.2, 0.4, 0.6, 0.8], NEITHER),
])  # fmt: skip
def test_the_rank_sum_mark_is_that_of_all_samples(
    ours: list[float], theirs: list[float], mark: str
) -> None:
    ranks = stats.rankdata([*ours, *theirs])
    n, middle = len(ours), len(ours) * (len(ranks) + 1) / 2
    sums = [
        abs(sum(ranks[list(sample)]) - middle)
        for sample in combinations(range(len(ranks)), n)
    ]
    probability = np.mean([total >= abs(sum(ranks[:n]) - middle) for total in sums])
    assert (mark != NEITHER) == (probability < 0.05)
    assert significance.rank_sum_mark(ours, theirs) == mark


def test_equal_accuracies_have_no_mark() -> None:
    assert significance.signed_rank_mark([0.5] * 10, [0.5] * 10) == NEITHER
    assert significance.rank_sum_mark([0.5] * 10, [0.5] * 10) == NEITHER


def test_a_star_needs_a_lead_over_every_rival() -> None:
    high, low, middle = (
        [0.9, 0.91, 0.92, 0.93, 0.94],
        [0.1, 0.2, 0.3, 0.4, 0.5],
        [0.8, 0.92, 0.91, 0.9, 0.93],
    )
    assert ranks_page.star({"SPE": high, "SRT": low}) == "SPE"
    assert ranks_page.star({"SPE": high, "SRT": low, "RDT": middle}) == ""


@pytest.mark.parametrize(
    ("table", "rival"), [("mrf-2", "Breiman"), ("mrf-3", "MRF"), ("bms-3", "MRF")]
)
def test_printed_marks_agree_with_the_printed_accuracies(
    table: str, rival: str
) -> None:
    """A mark that was read from a wrong column would stand beside a difference of the
    other sign.
    """
    cells = ranks_page.cells_of(table)
    for (dataset, method), mark in printed_further.marks(table).items():
        gap = cells[dataset, method].printed - cells[dataset, rival].printed
        assert (gap > 0) == (mark == BETTER), (dataset, method)


def test_marks_on_both_sides_are_counted() -> None:
    """Of every method beside MRF: ours are better on one dataset and worse on another."""
    cells = ranks_page.cells_of("mrf-3")
    better, worse = "Zoo", "Hayes"
    accuracies = {}
    for (dataset, method), cell in cells.items():
        assert cell.plain is not None or dataset not in (better, worse)
        if cell.plain is not None and dataset in (better, worse):
            ahead = (dataset == better) != (method == "MRF")
            level = 0.9 if ahead else 0.5
            accuracies[cell.plain.key] = [level + 0.001 * fold for fold in range(30)]
    _, _, first, *_ = ranks_page.advanced(accuracies)
    *_, n_better, n_worse, _, _, n_datasets, n_folds = first.split(" | ")

    assert (n_better, n_worse, n_datasets, n_folds) == ("1", "1", "2", "30 |")


def made_up(
    table: str, leader: str, lead: float
) -> dict[tuple[object, ...], list[float]]:
    """Accuracies of a table in which one method leads the others by a number of points
    on all datasets but the first.
    """
    cells = ranks_page.cells_of(table)
    first = next(dataset for (dataset, _), cell in cells.items() if cell.plain)
    return {
        cell.plain.key: [
            0.5 + 0.01 * lead * (method == leader) * (-0.5 if dataset == first else 1)
        ]
        for (dataset, method), cell in cells.items()
        if cell.plain is not None
    }


def _statements(
    accuracies: dict[tuple[object, ...], list[float]],
) -> list[findings.Finding]:
    return [
        *ranks_page.statements_of_bai(accuracies),
        *ranks_page.statements_of_huang(),
        *ranks_page.statements_of_song(accuracies),
    ]


@pytest.mark.parametrize(
    ("lead", "verdict"), [(3.0, "Holds"), (-3.0, "Does not hold"), (0.0, "Not decided")]
)
def test_a_lead_over_the_consistent_forests_is_tested_over_datasets(
    lead: float, verdict: str
) -> None:
    accuracies = made_up("mrf-2", "MRF", lead)
    printed, ours = (
        finding
        for finding in _statements(accuracies)
        if "significantly exceeds" in finding.stated
    )
    assert (printed.verdict, ours.verdict) == ("Holds", verdict)
    assert printed.basis == "printed numbers of table 2 of Bai et al."
    assert ours.basis.startswith("`mrf-plain`, `denil14`, `brf` and `comprf-c`")


@pytest.mark.parametrize(
    ("lead", "verdict"), [(3.0, "Holds"), (-3.0, "Does not hold"), (0.0, "Holds")]
)
def test_a_forest_is_on_par_unless_it_is_significantly_behind(
    lead: float, verdict: str
) -> None:
    found = [
        finding.verdict
        for finding in _statements(made_up("mrf-2", "MRF", lead))
        if "on par with the standard RF" in finding.stated
    ]
    assert found == ["Holds", verdict]


def test_a_contest_counts_datasets_and_leaves_out_equal_ones() -> None:
    contest = ranks_page.Contest.of([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0])
    assert (contest.n_above, contest.n_datasets, contest.sign) == (6, 7, 1)
    assert contest.probability == pytest.approx(2 / 2**6)
    assert contest.gap == pytest.approx(3.0)
    assert ranks_page.Contest.of([1.0, -2.0]).sign == 0
    assert ranks_page.Contest.of([]).probability == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ahead", "behind", "verdict"),
    [
        (True, "", "Holds"),
        (False, "", "Not decided"),
        (True, "Wdbc", "Holds"),
        (False, "Zoo", "Does not hold"),
    ],
)
def test_a_number_of_leads_is_refuted_by_a_marked_dataset_that_is_behind(
    ahead: bool, behind: str, verdict: str
) -> None:
    """The paper marks Zoo and not Wdbc."""
    accuracies = {
        cell.plain.key: [
            0.5 + 0.001 * fold + 0.01 * (method == "BMS-RF") * lead
            for fold in range(30)
        ]
        for (dataset, method), cell in ranks_page.cells_of("bms-3").items()
        if cell.plain is not None
        for lead in [-1 if dataset == behind else int(ahead)]
    }
    _, ours, _ = ranks_page.statements_of_song(accuracies)
    assert (ours.verdict, "on Zoo." in ours.ours) == (verdict, behind == "Zoo")


def test_statements_on_printed_numbers_are_judged() -> None:
    verdicts = {
        finding.stated.partition("”")[0]: finding.verdict
        for finding in _statements({})
        if finding.basis.startswith("printed")
    }
    assert (
        verdicts[
            "“MRF achieves more than 2% improvement in most cases, compared with … BRF"
        ]
        == "Not decided"
    )
    assert (
        verdicts[
            "“The largest improvement is more than 25%, obtained on the Robot data set"
        ]
        == "Holds"
    )
    assert (
        verdicts[
            "on the CAR dataset the “forest-level performance is not significantly different from the standard RF"
        ]
        == "Does not hold"
    )
    in_words = {stated[:9]: verdict for stated, verdict in verdicts.items()}
    assert in_words["“the only"] == "Not decided", "a star says nothing on SPE alone"
    assert in_words["SSPE-2 an"] == "Holds"
    assert in_words["SSPE-1 “r"] == "Does not hold"
    assert len(verdicts) == 16
