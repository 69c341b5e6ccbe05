"""Tests codes by public bins: coarser bins read from them are the bins of the values."""

import weakref

import numpy as np
import pytest

from grovekeeper_forests.bins import quantile_bins, releases
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.coded_rows import CodedBlock, CodedColumns, code_bits
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Feature, Label, Schema
from tests.support.wide_codes import wide_codes

FEATURES = (
    Feature("wide", "numeric", lower=-3.0, upper=11.0, missing=True),
    Feature("skewed", "numeric", lower=0.0, upper=1e6),
    Feature("whole", "integer", lower=0.0, upper=90.0, missing=True),
    Feature("large", "integer", lower=-500.0, upper=70_000.0),
    Feature("constant", "numeric", lower=2.0, upper=2.0, missing=True),
    Feature("few", "categorical", categories=("a", "b", "c"), missing=True),
    Feature(
        "ordered",
        "categorical",
        categories=tuple(f"v{i}" for i in range(200)),
        ordered=True,
        missing=True,
    ),
    Feature(
        "many",
        "categorical",
        categories=tuple(f"v{i}" for i in range(255)),
        missing=True,
    ),
)
SCHEMA = Schema(FEATURES, Label("y", ("no", "yes")))
GRIDS = {grid: quantile_bins.public_grid(SCHEMA, grid) for grid in Grid}
GRID = GRIDS[Grid.COARSE]


def values(n_rows: int, seed: int = 0) -> SanitisedColumns:
    """Sanitised rows with values at edges, empty cells and undeclared categories."""
    generator = np.random.default_rng(seed)
    columns: list[np.ndarray] = []
    for index, feature in enumerate(FEATURES):
        if feature.is_categorical:
            last = feature.missing_code if feature.missing else feature.other_code
            columns.append(generator.integers(0, last + 1, n_rows).astype(np.int32))
            continue
        column = (
            feature.lower
            + (feature.upper - feature.lower) * generator.random(n_rows) ** 3
        )
        edges = GRID.edges[index]
        if edges is not None and len(edges):
            at_edges = generator.random(n_rows) < 0.3
            column[at_edges] = generator.choice(edges, int(at_edges.sum()))
        if feature.type == "integer":
            column = np.rint(column)
        column[: n_rows // 9] = np.nan if feature.missing else feature.upper
        columns.append(column)
    return SanitisedColumns(tuple(columns), n_rows)


def coded(public: Encoding, rows: SanitisedColumns, *cuts: int) -> CodedColumns:
    """The rows as codes, in blocks."""
    codes = wide_codes(public, rows)
    blocks = [
        CodedBlock.of(block, n_bits=code_bits(public))
        for block in np.split(codes, cuts, axis=1)
    ]
    return CodedColumns(public, blocks)


def cuts_of(seed: int, grid: Grid = Grid.COARSE) -> np.ndarray:
    generator = np.random.default_rng(seed)
    cuts = quantile_bins.no_cuts(SCHEMA)
    for row, index in enumerate(quantile_bins.private_features(SCHEMA)):
        n_cells = int(GRIDS[grid].n_codes[index]) - SCHEMA.features[index].missing
        cuts[row, :9] = np.sort(
            generator.choice(np.arange(1, n_cells), 9, replace=False)
        )
    return cuts


@pytest.mark.parametrize("n_codes", [255, 256, 257, 511, 512, 513, 1_000, 2**16])
def test_a_block_holds_every_code_whatever_their_number(n_codes: int) -> None:
    """The fine grid of whole numbers has a cell for each of them: any number."""
    column = Feature("count", "integer", lower=1.0, upper=float(n_codes))
    schema = Schema((column,), Label("y", ("no", "yes")))
    public = Encoding.with_edges(schema, (np.arange(1.5, n_codes),))
    assert public.n_codes.tolist() == [n_codes]
    codes = np.arange(n_codes, dtype=np.uint16)[np.newaxis]
    block = CodedBlock.of(codes, n_bits=code_bits(public))
    np.testing.assert_array_equal(block.column(0), codes[0])


@pytest.mark.parametrize("grid", Grid)
@pytest.mark.parametrize("seed", range(3))
def test_released_bins_are_read_from_the_public_grid(seed: int, grid: Grid) -> None:
    encoding = quantile_bins.encoding(SCHEMA, cuts_of(seed, grid), grid)
    rows = values(700, seed)
    columns = coded(GRIDS[grid], rows, 0, 13, 13, 300)
    blocks = [taken.codes() for taken in columns.take(encoding, 250)]
    np.testing.assert_array_equal(np.concatenate(blocks, axis=1), encoding.encode(rows))
    assert [block.shape[1] for block in blocks] == [13, 287, 400]


def test_taken_rows_are_in_memory_once() -> None:
    columns = coded(GRID, values(20), 10)
    blocks = [weakref.ref(block) for block in columns.blocks]
    (taken,) = columns.take(
        quantile_bins.encoding(SCHEMA, cuts_of(0), Grid.COARSE), 100
    )
    taken.codes()
    assert columns.n_rows == 0
    assert [block() for block in blocks] == [None, None]


def test_public_bins_are_read_as_they_are() -> None:
    encoding, rows = Encoding.of(SCHEMA, 32), values(300)
    (taken,) = coded(encoding, rows).take(encoding, 1)
    np.testing.assert_array_equal(taken.codes(), encoding.encode(rows))


def test_the_grids_are_wide_and_bins_with_a_byte_are_not() -> None:
    assert code_bits(GRID) == 9
    assert code_bits(GRIDS[Grid.FINE]) == 16
    assert code_bits(Encoding.of(SCHEMA, 255)) == 8
    assert (
        CodedBlock.of(
            wide_codes(Encoding.of(SCHEMA, 255), values(20)), n_bits=8
        ).high.size
        == 0
    )


@pytest.mark.parametrize("grid", Grid)
def test_counts_of_cells_are_those_of_the_values(grid: Grid) -> None:
    rows = values(500)
    features = coded(GRIDS[grid], rows, 100)
    for index in quantile_bins.private_features(SCHEMA):
        counts = releases.cell_counts(FEATURES[index], rows.columns[index], grid)
        np.testing.assert_array_equal(features.counts(index)[: len(counts)], counts)


@pytest.mark.parametrize("grid", Grid)
def test_rows_are_left_out_one_by_one(grid: Grid) -> None:
    rows, kept = values(101), np.random.default_rng(5).random(101) < 0.5
    (block,) = coded(GRIDS[grid], rows).blocks
    codes = wide_codes(GRIDS[grid], rows)
    for index in range(len(FEATURES)):
        np.testing.assert_array_equal(
            block.where(kept).column(index), codes[index, kept]
        )
    assert block.where(np.ones(101, dtype=np.bool_)) is block


def test_no_rows_give_one_empty_part() -> None:
    (taken,) = CodedColumns(GRID).take(
        quantile_bins.encoding(SCHEMA, cuts_of(0), Grid.COARSE), 100
    )
    assert taken.codes().shape == (len(FEATURES), 0)


def test_bins_that_the_public_bins_do_not_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="not public"):
        coded(Encoding.of(SCHEMA, 7), values(3)).take(Encoding.of(SCHEMA, 8), 10)
