"""The text of a receipt: every number is the event's number, or is rounded to the
cautious side.
"""

from fractions import Fraction

import pytest

from grovekeeper_forests.privacy import receipts
from grovekeeper_forests.privacy.accountants import pure
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    Part,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
    UnknownPrivacyEvent,
)

AR = Adjacency.ADD_REMOVE_ONE


def in_words(event: Event) -> str:
    return receipts.in_words(
        event, accountant="pure", adjacency=Adjacency.ADD_REMOVE_ONE
    )


def counts(inverse_scale: Fraction, adjacency: Adjacency = AR) -> DiscreteLaplace:
    return DiscreteLaplace(adjacency, Fraction(1), inverse_scale, 8)


def test_one_release_of_counts_in_words() -> None:
    words = in_words(Sequential((Part(4, counts(Fraction(1, 4))),)))

    assert words == (
        "one after another, so that losses add up (ε = 1):\n"
        "  4 × release of 8 whole numbers, each with discrete Laplace noise of scale 4; one row moves all of them "
        "together by at most 1 (ε = 0.25 each)\n"
        "Total, given everything that was released before: adding or removing one row changes the chance of any "
        "outcome by a factor of at most e^ε, ε = 1; "
        "replacing one row, by twice that ε."
    )


def test_selections_on_disjoint_rows_in_words() -> None:
    selection = PermuteAndFlip(AR, Fraction(512), Fraction(1, 1024), 37)
    words = in_words(Parallel("nodes", (Part(2, selection),)))

    assert (
        "one set of rows per node, so that only the largest loss counts (ε = 0.5)"
        in words
    )
    assert (
        "2 × choice of one among at most 37 public candidates by permute-and-flip"
        in words
    )
    assert "by at most 512 (ε = 0.5 each)" in words


def test_total_is_rounded_up_and_noise_down() -> None:
    third = Fraction(1, 3)
    words = in_words(counts(third * (1 - Fraction(1, 10**12))))

    assert "ε ≤ 0.333334; replacing" in words
    assert "of scale 3;" in words
    assert "0.333333;" not in words


@pytest.mark.parametrize(
    "inverse_scale",
    [Fraction(1, 2**32), Fraction(7, 2**32), Fraction(2**31 + 1, 2**32), Fraction(64)],
)
def test_total_in_words_is_never_below_the_exact_loss(inverse_scale: Fraction) -> None:
    event: Event = Sequential((Part(3, counts(inverse_scale)),))
    printed = (
        in_words(event).splitlines()[-1].split("e^ε, ε ")[1].split(";")[0].split()[1]
    )

    exact = pure.loss(event, adjacency=AR)
    assert exact <= Fraction(printed) <= exact * Fraction(100_001, 100_000)


def test_nested_parts_are_indented() -> None:
    tree = Sequential((Part(1, counts(Fraction(1))), Part(1, counts(Fraction(2)))))
    lines = in_words(Parallel("trees", (Part(5, tree),))).splitlines()

    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4, 4, 0]
    assert lines[1].startswith("  5 × one after another")


def test_event_without_a_bound_has_no_words() -> None:
    with pytest.raises(UnknownPrivacyEvent):
        in_words(counts(Fraction(1), Adjacency.LABEL))


def test_free_event_is_said_to_cost_nothing() -> None:
    words = in_words(counts(Fraction(0)))

    assert "noise of scale without bound" in words
    assert "ε = 0;" in words


def test_plans_name_the_unit_of_the_account() -> None:
    event = Sequential(
        (Part(4, ExponentialMechanism(AR, Fraction(2), Fraction(1, 4), 9)),)
    )

    assert receipts.in_words(
        event, accountant="zcdp", adjacency=Adjacency.ADD_REMOVE_ONE
    ) == (
        "one after another, so that losses add up (ρ = 0.125):\n"
        "  4 × choice of one among at most 9 public candidates by the exponential mechanism: the weight of a candidate "
        "of score u is exp(u · 0.25); one row moves scores against each other by at most 2 (ρ = 0.03125 each)\n"
        "Total, given everything that was released before: ρ = 0.125 "
        "of zero-concentrated differential privacy where one row is added or removed; four times that "
        "ρ where one is replaced."
    )
    assert (
        "Total, given everything that was released before: μ² ≤ 0.391825 of Gaussian"
        in receipts.in_words(
            event, accountant="gdp", adjacency=Adjacency.ADD_REMOVE_ONE
        )
    )


def test_normal_noise_in_words() -> None:
    event = RoundedGaussian(AR, Fraction(3), Fraction(400), 12)

    assert receipts.in_words(
        event, accountant="gdp", adjacency=Adjacency.ADD_REMOVE_ONE
    ).startswith(
        "1 × release of 12 whole numbers, each with normal noise of variance 400, rounded to the nearest whole number; "
        "the squares of what one row moves them by add up to at most 3, so that the noise's deviation is 11.547 times "
        "that length (μ² = 0.0075 each)\n"
        "Total, given everything that was released before: μ² = 0.0075 of Gaussian differential privacy"
    )
    with pytest.raises(UnknownPrivacyEvent):
        receipts.in_words(event, accountant="pure", adjacency=Adjacency.ADD_REMOVE_ONE)


def test_labels_only_is_said_and_add_remove_releases_count_twice() -> None:
    native = Sequential(
        (Part(4, DiscreteLaplace(Adjacency.LABEL, Fraction(2), Fraction(1, 8), 8)),)
    )
    words = receipts.in_words(native, accountant="pure", adjacency=Adjacency.LABEL)

    assert words == (
        "one after another, so that losses add up (ε = 1):\n"
        "  4 × release of 8 whole numbers, each with discrete Laplace noise of scale 8; one changed label moves all of "
        "them together by at most 2 (ε = 0.25 each)\n"
        "Total, given everything that was released before: "
        "changing one label changes the chance of any outcome by a factor of at most e^ε, ε = 1. Features and "
        "membership are not protected."
    )
    for accountant, symbol in (
        ("pure", "twice their ε"),
        ("zcdp", "four times their ρ"),
        ("gdp", "four times their μ²"),
    ):
        reported = receipts.in_words(
            counts(Fraction(1, 4)), accountant=accountant, adjacency=Adjacency.LABEL
        )
        assert (
            f"are counted at {symbol}: a changed label is both."
            in reported.splitlines()[-1]
        )
    assert "(ε = 0.5 each)" in receipts.in_words(
        counts(Fraction(1, 4)), accountant="pure", adjacency=Adjacency.LABEL
    )


@pytest.mark.parametrize(
    ("squared", "variance", "times"),
    [
        (1, 1, "1"),
        (2**40, 2**48, "16"),
        (2, 1, "0.707106"),
        (0, 1, "infinitely many"),
        (10**18, 1, "0"),
    ],
)
def test_the_receipt_states_normal_noise_relative_to_the_sensitivity_rounded_down(
    squared: int, variance: int, times: str
) -> None:
    event = RoundedGaussian(AR, Fraction(squared), Fraction(variance), 1)

    words = receipts.in_words(
        event, accountant="zcdp", adjacency=Adjacency.ADD_REMOVE_ONE
    )
    assert f"the noise's deviation is {times} times that length" in words
