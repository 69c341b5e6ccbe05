"""The integer kernels of the reweighted forest against Python's integers."""

from decimal import Decimal, localcontext
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.kernels import boosting, fourth_roots, node_rows

LARGEST = forest_limits.MAX_ROWS_PER_DATASET * boosting.UNIT
weight_vectors = st.integers(0, 38).flatmap(
    lambda bits: st.lists(st.integers(0, 2**bits), min_size=1, max_size=2)
)


def norm(weights: list[int]) -> int:
    return int(fourth_roots.norms(np.array([weights], dtype=np.int64))[0])


def exact(weights: list[int]) -> int:
    return isqrt(isqrt(sum(weight**4 for weight in weights)))


def test_every_admitted_dataset_stays_below_the_limit_of_the_kernel() -> None:
    assert fourth_roots.MAX_TOTAL > LARGEST
    assert norm([LARGEST]) == LARGEST
    assert norm([LARGEST - 1, 1]) == LARGEST - 1


@given(weights=weight_vectors)
@settings(max_examples=400, deadline=None)
def test_norm_is_the_exact_root_rounded_down(weights: list[int]) -> None:
    if sum(weights) < fourth_roots.MAX_TOTAL:
        assert norm(weights) == exact(weights)


@pytest.mark.parametrize(
    "root", [1, 2, 3, 255, 2**16, 2**16 + 1, 2**31 - 1, 2**32, 2**32 + 1, 2**36 - 1]
)
def test_sums_next_to_a_fourth_power_fall_on_the_right_side(root: int) -> None:
    """Sums of two fourth powers at and next to r⁴, which a float cannot distinguish."""
    assert norm([root, 0]) == root
    assert norm([root, 1]) == root
    assert norm([root - 1, 1]) == exact([root - 1, 1]) <= root
    # the largest part that keeps the sum at most root⁴
    almost = isqrt(isqrt(root**4 - (root - 1) ** 4))
    for part in (almost - 1, almost, almost + 1):
        if part >= 0:
            assert norm([root - 1, part]) == exact([root - 1, part])


def test_floating_point_alone_gives_wrong_roots() -> None:
    """Floating point alone fails on these vectors, and the integer correction repairs
    the result.
    """
    vectors = []
    for root in (2**34 + 1, 2**35 - 5, 2**36 - 1, 2**37 + 3):
        largest = isqrt(isqrt(root**4 - (root - 1) ** 4))
        vectors += [[root - 1, largest + step] for step in (-1, 0, 1)]
    wrong = [
        vector
        for vector in vectors
        if int(np.sqrt(np.sqrt(np.sum(np.float64(vector) ** 4)))) != exact(vector)
    ]

    assert wrong
    assert [norm(vector) for vector in vectors] == [exact(vector) for vector in vectors]


@given(
    weights=st.lists(st.integers(0, 2**33), min_size=1, max_size=5),
    at=st.integers(0, 4),
    added=st.integers(0, 256),
)
@settings(max_examples=300, deadline=None)
def test_added_weight_raises_the_norm_by_at_most_itself(
    weights: list[int], at: int, added: int
) -> None:
    more = list(weights)
    more[at % len(weights)] += added

    assert 0 <= norm(more) - norm(weights) <= added


def test_the_whole_sensitivity_is_used_up() -> None:
    assert norm([10**9 + 256, 5]) - norm([10**9, 5]) == 256


def test_split_norms_are_the_norms_of_both_sides() -> None:
    generator = np.random.default_rng(3)
    n_codes, n_rows = np.array([4, 1, 3], dtype=np.int32), 500
    X = np.stack([generator.integers(0, n, n_rows).astype(np.uint8) for n in n_codes])
    y, slot = (generator.integers(0, n, n_rows).astype(np.int32) for n in (3, 2))
    own = generator.integers(0, 257, n_rows).astype(np.uint16)
    histogram = node_rows.class_histogram(
        X,
        y,
        slot,
        n_bins=n_codes,
        weight=own,
        onto=node_rows.no_sums(2, 3, n_bins=n_codes),
    )
    splits = (
        np.array([0, 0, 0, 2, 2], dtype=np.int32),
        np.array([0, 1, 2, 0, 2], dtype=np.uint8),
        np.array([False, False, False, True, True]),
    )
    norms = fourth_roots.split_norms(histogram, n_codes=n_codes, splits=splits)

    for node in range(2):
        codes = {0: histogram[node, :4], 2: histogram[node, 5:8]}
        for r, (feature, threshold, equals) in enumerate(zip(*splits, strict=True)):
            own = codes[int(feature)]
            left = own[threshold] if equals else own[: threshold + 1].sum(axis=0)
            right = own.sum(axis=0) - left
            assert norms[node, r] == exact(left.tolist()) + exact(right.tolist())


@given(
    weights=st.lists(st.integers(0, 2**35), min_size=1, max_size=7),
    unit=st.sampled_from([1, 256]),
)
@settings(max_examples=400, deadline=None)
def test_root_that_floating_point_is_certain_of_is_the_exact_one(
    weights: list[int], unit: int
) -> None:
    assert norm([weight * unit // 256 for weight in weights]) == exact(
        [weight * unit // 256 for weight in weights]
    )


@pytest.mark.parametrize("bits", [1, 9, 24, 36])
def test_pair_norms_are_the_norms_of_the_four_parts(bits: int) -> None:
    """Against Python's integers, in empty nodes, in nodes of one class, and beyond the
    precision of floats.
    """
    generator = np.random.default_rng(bits)
    histogram = generator.integers(0, 2**bits, (3, 4, 8, 3)) // 32
    histogram[1] = 0
    histogram[2, :, :, 1:] = 0
    histogram[0, :, 5:] = 0  # the third column's codes contain the first column's rows
    histogram[0, :, 5] = histogram[0, :, :4].sum(axis=1) - histogram[0, :, 6]
    n_codes = np.array([4, 1, 3], dtype=np.int32)
    splits = (
        np.array([0, 0, 0, 2, 2], dtype=np.int32),
        np.array([0, 1, 2, 0, 2], dtype=np.uint8),
        np.array([False, False, False, True, True]),
    )
    for first in (
        (np.array([0, 2], np.uint8), np.zeros(2, bool)),
        (np.array([1, 3], np.uint8), np.ones(2, bool)),
    ):
        norms = fourth_roots.pair_norms(
            histogram, first=first, n_codes=n_codes, splits=splits
        )
        for r, (own, own_equals) in enumerate(zip(*first, strict=True)):
            for s, (feature, threshold, equals) in enumerate(zip(*splits, strict=True)):
                expected = 0
                for node in histogram:
                    codes = node[:, :4] if feature == 0 else node[:, 5:8]
                    is_left = np.arange(4) == own if own_equals else np.arange(4) <= own
                    goes_left = (
                        np.arange(codes.shape[1]) == threshold
                        if equals
                        else np.arange(codes.shape[1]) <= threshold
                    )
                    whole = [
                        node[side][:, :4].sum(axis=(0, 1))
                        for side in (is_left, ~is_left)
                    ]
                    parts = [
                        codes[side][:, goes_left].sum(axis=(0, 1))
                        for side in (is_left, ~is_left)
                    ]
                    rests = [
                        both - part for both, part in zip(whole, parts, strict=True)
                    ]
                    expected += sum(exact(part.tolist()) for part in [*parts, *rests])
                assert norms[r, s] == expected


def test_arguments_that_would_break_the_loops_are_refused() -> None:
    codes = np.array([2], dtype=np.int32)
    table = np.ones((1, 2, 2), dtype=np.int64)
    good = (
        np.array([0], dtype=np.int32),
        np.array([0], dtype=np.uint8),
        np.array([False]),
    )
    with pytest.raises(ValueError, match="weights has a value out of range"):
        fourth_roots.norms(np.array([[2**38, 2**38]]))
    with pytest.raises(ValueError, match="weights has a value out of range"):
        fourth_roots.norms(np.array([[-1, 1]]))
    with pytest.raises(ValueError, match="histogram has a value out of range"):
        fourth_roots.split_norms(
            np.array([[[3, 3], [-1, 0]]]), n_codes=codes, splits=good
        )
    with pytest.raises(ValueError, match="out of order"):
        fourth_roots.split_norms(
            table,
            n_codes=codes,
            splits=(good[0], np.array([2], dtype=np.uint8), good[2]),
        )
    with pytest.raises(ValueError, match="out of order"):
        twice = tuple(np.repeat(array, 2) for array in good)
        fourth_roots.split_norms(table, n_codes=codes, splits=twice)  # type: ignore[arg-type]


def test_arguments_that_would_break_the_loops_of_pairs_are_refused() -> None:
    codes = np.array([2], dtype=np.int32)
    table = np.ones((1, 2, 2, 2), dtype=np.int64)
    first = (np.array([0], dtype=np.uint8), np.array([False]))
    splits = (
        np.array([0], dtype=np.int32),
        np.array([0], dtype=np.uint8),
        np.array([False]),
    )
    assert fourth_roots.pair_norms(
        table, first=first, n_codes=codes, splits=splits
    ).shape == (1, 1)
    for wrong in (table - 2, table * 2**37, table * (2**60)):
        with pytest.raises(ValueError, match="value out of range"):
            fourth_roots.pair_norms(wrong, first=first, n_codes=codes, splits=splits)
    for own in (np.array([2], dtype=np.uint8), np.array([1, 1], dtype=np.uint8)):
        with pytest.raises(ValueError, match="out of order"):
            fourth_roots.pair_norms(
                table,
                first=(own, np.zeros(own.size, bool)),
                n_codes=codes,
                splits=splits,
            )
    with pytest.raises(ValueError, match="out of order"):
        fourth_roots.pair_norms(
            table,
            first=first,
            n_codes=codes,
            splits=(splits[0], splits[1] + np.uint8(2), splits[2]),
        )
    with pytest.raises(ValueError, match="wrong shape"):
        fourth_roots.pair_norms(
            table[:, :, :1], first=first, n_codes=codes, splits=splits
        )


def weight(sums: list[int], y: int) -> int:
    return int(
        boosting.weights(
            np.array([sums]), np.array([y], dtype=np.int32), margin=(7, 20)
        )[0]
    )


def test_doubt_of_at_least_the_margin_keeps_the_whole_weight() -> None:
    assert weight([0, 0], 0) == 256
    assert weight([0, 0, 0], 2) == 256
    assert weight([50_000, 0], 1) == 256


def test_certainty_takes_the_weight_away() -> None:
    assert weight([2**40, 0], 0) == 0
    assert weight([0, 2**40], 0) == 256
    assert weight([-(2**62), 2**62 - 1], 1) == 0


@given(
    sums=st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6),
    y=st.integers(0, 5),
)
@settings(max_examples=200, deadline=None)
def test_weight_is_close_to_the_real_formula_and_never_above_a_row(
    sums: list[int], y: int
) -> None:
    y %= len(sums)
    with localcontext() as context:
        context.prec = 50
        shares = [(Decimal(value) / 2**16).exp() for value in sums]
        real = 256 * (sum(shares) - shares[y]) / sum(shares) / Decimal("0.35")
    result = weight(sums, y)

    assert 0 <= result <= 256
    assert abs(Decimal(result) - min(real, Decimal(256))) <= Decimal("1.001")


def test_the_weight_of_a_row_does_not_depend_on_other_rows() -> None:
    generator = np.random.default_rng(9)
    sums = generator.integers(-300_000, 300_000, (200, 4))
    y = generator.integers(0, 4, 200).astype(np.int32)
    alone = np.concatenate(
        [
            boosting.weights(sums[i : i + 1], y[i : i + 1], margin=(7, 20))
            for i in range(200)
        ]
    )
    order = generator.permutation(200)

    assert np.array_equal(boosting.weights(sums, y, margin=(7, 20)), alone)
    assert np.array_equal(
        boosting.weights(sums[order], y[order], margin=(7, 20)), alone[order]
    )
    assert np.array_equal(
        boosting.weights(np.asfortranarray(sums), y, margin=(7, 20)), alone
    )


def test_exponential_table_is_exact_to_its_unit() -> None:
    """The product form of the exponential stays within two units of 2⁻³¹ of the real
    value.
    """
    coarse, fine = boosting._exponentials()
    with localcontext() as context:
        context.prec = 40
        for gap in (0, 1, 255, 256, 257, 65_535, 65_536, 1_000_003):
            real = (Decimal(-gap) / 2**16).exp() * 2**31
            result = int(coarse[gap >> 12] * fine[gap & 4095]) >> 31
            assert abs(Decimal(result) - real) <= 3
    assert Fraction(int(coarse[0]), 2**31) == 1
