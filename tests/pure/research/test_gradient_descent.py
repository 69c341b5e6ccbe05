"""Tests the references without trees on tables that ship with scikit-learn."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from research import bundled
from research.datasets import split_of
from research.reference import gradient_descent, methods
from research.reference.gradient_descent import COSINES, LINEAR, METHODS

WDBC = bundled.read("wdbc")


@pytest.mark.parametrize("method", METHODS)
def test_a_reference_learns_at_a_large_epsilon(method: str) -> None:
    train, test = split_of(len(WDBC.y), 0)
    shares = gradient_descent.probabilities(WDBC, method, Fraction(8), train, test)

    assert shares.shape == (len(test), 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-4)
    # 0.93 or more on the mean, with a standard deviation of 0.024; the larger class: 0.63
    assert np.mean(shares.argmax(axis=1) == WDBC.y[test]) > 0.75


def test_rows_have_length_one_and_bounded_columns() -> None:
    which = np.arange(50)
    columns = gradient_descent.columns_of(WDBC, which)
    features = gradient_descent.Features(
        COSINES, columns, 1.0, np.random.default_rng(1)
    )

    assert np.abs(columns.numbers).max() <= 1
    lengths = np.linalg.norm(features.of(columns), axis=1)
    np.testing.assert_allclose(lengths, 1)


def test_a_run_is_a_line_of_the_table_of_references() -> None:
    line = gradient_descent.run(WDBC, LINEAR, "1", 3)

    header = methods.TABLES[0].read_text(encoding="utf-8").splitlines()[0]
    assert list(line) == header.split(",")
    assert 0 <= float(line["accuracy"]) <= 1


def test_references_are_counted_among_the_private_codes() -> None:
    assert set(METHODS) <= set(methods.of_claim(*methods.PRIVATE))
    recorded = Path(methods.TABLES[0]).read_text(encoding="utf-8")
    assert all(f",{method}," in recorded for method in METHODS)
