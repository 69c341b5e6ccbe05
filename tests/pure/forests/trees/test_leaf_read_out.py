"""Read-outs against values computed by hand, and prediction from one table of rows
against that from columns.
"""

import numpy as np
import pytest

from grovekeeper_forests.data.encoding import Encoding, pairs_of_schema
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedTable
from grovekeeper_forests.data.schema import Feature, Label, Schema
from grovekeeper_forests.trees import leaf_read_out
from grovekeeper_forests.trees.leaf_read_out import LeafSums

COUNTS = np.array([[[6, 2], [-3, -1]], [[0, 5], [4, 4]]], dtype=np.int64)
"""Two trees of two leaves; noise made all counts of the first tree's second leaf
negative.
"""


def test_a_vote_is_for_the_largest_count_and_the_first_of_equals() -> None:
    assert leaf_read_out.leaf_values(
        COUNTS, leaf_read_out.VOTE, noise_scale=1.0
    ).tolist() == [
        [[0.5, 0.0], [0.0, 0.5]],
        [[0.0, 0.5], [0.5, 0.0]],
    ]


def test_averages_are_of_shares_without_what_is_negative() -> None:
    values = leaf_read_out.leaf_values(COUNTS, leaf_read_out.AVERAGE, noise_scale=1.0)

    assert values == pytest.approx(
        np.array([[[0.375, 0.125], [0.25, 0.25]], [[0.0, 0.5], [0.25, 0.25]]])
    )


def test_sums_are_of_whole_rows() -> None:
    values = leaf_read_out.leaf_values(COUNTS, leaf_read_out.SUM, noise_scale=1.0)

    assert values.tolist() == [[[6, 2], [0, 0]], [[0, 5], [4, 4]]]


def test_class_proportions_are_those_of_all_leaves_and_a_deviation_of_their_noise() -> (
    None
):
    """Sums of 7 and 10 over four cells; the noise deviation √(2 · 4) · 0.5 is added to
    each sum.
    """
    spread = np.sqrt(8.0) * 0.5

    assert leaf_read_out.class_proportions(COUNTS.astype(float), 0.5) == pytest.approx(
        np.array([7 + spread, 10 + spread]) / (17 + 2 * spread)
    )


def test_logarithms_are_of_shares_drawn_toward_the_class_proportions_by_the_noise() -> (
    None
):
    prior = leaf_read_out.class_proportions(COUNTS.astype(float), 3.0)
    values = leaf_read_out.leaf_values(
        COUNTS, leaf_read_out.LOGARITHMIC, noise_scale=3.0
    )

    assert values[0, 1] == pytest.approx(np.log(prior) / 2), (
        "a leaf without counts says what the forest says"
    )
    assert values[0, 0] == pytest.approx(
        np.log((np.array([6, 2]) + 3.0 * prior) / 11.0) / 2
    )
    assert values[1, 0] == pytest.approx(
        np.log((np.array([0, 5]) + 3.0 * prior) / 8.0) / 2
    )


def test_sums_become_probabilities() -> None:
    sums = np.array([[1.0, 3.0], [0.0, 0.0]])
    logs = np.log(np.array([[0.2, 0.6], [0.5, 0.5]])) - 700.0

    assert leaf_read_out.to_probabilities(sums, leaf_read_out.AVERAGE).tolist() == [
        [0.25, 0.75],
        [0.5, 0.5],
    ]
    assert leaf_read_out.to_probabilities(
        logs, leaf_read_out.LOGARITHMIC
    ) == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]))


FEATURES = (
    Feature("a", "numeric", upper=1.0, missing=True),
    Feature("b", "categorical", categories=("x", "y", "z"), missing=True),
    Feature("c", "numeric", upper=1.0),
)


@pytest.mark.parametrize("used", [(0,), (0, 1), (2, 1), (0, 1, 2)])
@pytest.mark.parametrize("paired", [False, True])
def test_rows_in_a_table_have_the_sums_of_rows_in_columns(
    used: tuple[int, ...], paired: bool
) -> None:
    rng = np.random.default_rng(len(used))
    schema = Schema(FEATURES, Label("y", ("0", "1")))
    encoding = Encoding.of(schema, 16).paired(pairs_of_schema(schema) if paired else ())
    nodes = (5, 7)
    feature = rng.choice(used, nodes).astype(np.int32)
    if paired:
        feature[:, 0] = len(FEATURES)
    arrays = {
        "feature": feature,
        "threshold": rng.integers(0, 15, nodes, dtype=np.uint8),
        "equals": np.zeros(nodes, dtype=np.bool_),
    }
    sums = LeafSums(encoding, arrays, rng.normal(size=(5, 8, 2)))
    numbers, codes = rng.random((2, 40)), rng.integers(0, 5, 40, dtype=np.int32)
    numbers[0, ::7] = np.nan
    columns = (numbers[0], codes, numbers[1])
    table = np.array(columns, dtype=np.float64)
    result = sums.packed.sums(SanitisedTable(table, None, (False, True, False)))
    np.testing.assert_array_equal(
        result, sums.packed.sums(SanitisedColumns(columns, 40))
    )
    assert len(np.unique(result)) > 4
