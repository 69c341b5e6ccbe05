"""The law of a release that copies its last noisy table equals its law over every path;
other releases are walked.
"""

from collections.abc import Hashable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.privacy import enumeration
from tests.privacy.enumeration import EnumeratingRandomness, output_law

EXACT = np.array([[0, 2], [1, 0]])


def noisy(randomness: EnumeratingRandomness) -> NDArray[np.int64]:
    noise = randomness.discrete_laplace(EXACT.shape, inverse_scale=Fraction(1, 2))
    return EXACT + noise  # type: ignore[operator, no-any-return]


def copied(randomness: EnumeratingRandomness) -> Hashable:
    return randomness.uniform(3), noisy(randomness).tobytes()


def transposed(randomness: EnumeratingRandomness) -> Hashable:
    return ("counts", (noisy(randomness).T.tobytes(), b"public"))


def after_a_table(randomness: EnumeratingRandomness) -> Hashable:
    """The first table decides on a draw; the second is copied."""
    return randomness.uniform(2) if noisy(randomness)[0, 0] else 2, noisy(
        randomness
    ).tobytes()


def before_a_draw(randomness: EnumeratingRandomness) -> Hashable:
    return noisy(randomness).tobytes(), randomness.uniform(2)


def sometimes_without(randomness: EnumeratingRandomness) -> Hashable:
    return noisy(randomness).tobytes() if randomness.uniform(2) else None


def in_rows(randomness: EnumeratingRandomness) -> Hashable:
    """Normal noise in units of a seventh of a row, rounded to rows."""
    noise = randomness.rounded_gaussian(EXACT.shape, scale_bits=4)
    return ((7 * EXACT + noise + 3) // 7).tobytes()  # type: ignore[operator]


def truncated_to_rows(randomness: EnumeratingRandomness) -> Hashable:
    noise = randomness.rounded_gaussian(EXACT.shape, scale_bits=4)
    return ((7 * EXACT + noise) // 7).tobytes()  # type: ignore[operator]


def zeros_beside_a_large_number(randomness: EnumeratingRandomness) -> Hashable:
    return (0 * noisy(randomness)).tobytes(), np.array([2**62]).tobytes()


def summed(randomness: EnumeratingRandomness) -> Hashable:
    return noisy(randomness).sum(axis=0).tobytes()


def clipped(randomness: EnumeratingRandomness) -> Hashable:
    return np.minimum(noisy(randomness), 0).tobytes()


def ordered(randomness: EnumeratingRandomness) -> Hashable:
    return np.sort(noisy(randomness), axis=None).tobytes()


def without_rows_of_zeros(randomness: EnumeratingRandomness) -> Hashable:
    counts = noisy(randomness)
    return counts[counts[:, 0] != 0].tobytes()


def without_empty_rows(randomness: EnumeratingRandomness) -> Hashable:
    counts = noisy(randomness)
    return counts[counts.any(axis=1)].tobytes()


def n_of_ones(randomness: EnumeratingRandomness) -> Hashable:
    return int((noisy(randomness) == 1).sum())


@pytest.mark.parametrize("window", [(0, 1), (-1, 1)])
@pytest.mark.parametrize(
    "run",
    [
        copied, transposed, after_a_table, before_a_draw, sometimes_without, in_rows, truncated_to_rows,
        zeros_beside_a_large_number, summed, clipped, ordered, without_rows_of_zeros, without_empty_rows, n_of_ones,
    ],
)  # fmt: skip
def test_the_law_is_that_of_every_path(
    run: enumeration.Run, window: tuple[int, int]
) -> None:
    walked = enumeration.law_of_every_path(
        lambda walk: run(EnumeratingRandomness(walk, window=window, key=b""))
    )

    assert output_law(run, window=window) == pytest.approx(walked, abs=1e-15)


def test_a_copied_table_is_run_twice_for_each_path_before_it_and_once_more_for_the_first() -> (
    None
):
    n_runs = 0

    def counted(randomness: EnumeratingRandomness) -> Hashable:
        nonlocal n_runs
        n_runs += 1
        return copied(randomness)

    assert len(output_law(counted)) == 3 * 2**4
    assert n_runs == 1 + 3 * 2 + 1
