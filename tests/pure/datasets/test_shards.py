"""Tests that shards of a file have each row once, and that no shard is read from a file
that took its place.
"""

import numpy as np
import pytest

from app.core.errors import InstallationError
from app.datasets import private_rows
from app.datasets.private_rows import Selection
from app.datasets.row_layout import RowGroups
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.bins.quantile_bins import Grid
from grovekeeper_forests.data.coded_rows import CodedRows, CodeRequest
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support.uploads import HEADER, SCHEMA, Ingestion, store_table, stored_table

BODY = HEADER + "".join(
    f"{index % 120},1,Male,0,{'>50K' if index % 5 else 'unknown'}\n"
    for index in range(300)
)


def store(ingest: Ingestion, body: str = BODY) -> None:
    """Stores rows in row groups of 40 rows."""
    ingest(body)
    store_table(stored_table(ingest.destination), ingest.destination, group_rows=40)


def shards(ingest: Ingestion, n_rows: int) -> list[RowGroups]:
    return private_rows.shards(
        ingest.destination, Selection(SCHEMA, ingest.partitions, WHOLE), n_rows=n_rows
    )


def read(ingest: Ingestion, shard: RowGroups) -> CodedRows:
    selection = Selection(SCHEMA, ingest.partitions, Scope({"shard": (1, 3)}))
    codes = CodeRequest(quantile_bins.public_grid(SCHEMA, Grid.COARSE), with_ids=True)
    return private_rows.read_shard(shard, selection, codes=codes)


@pytest.mark.parametrize(("n_rows", "n_shards"), [(1, 8), (100, 3), (1_000, 1)])
def test_shards_have_the_rows_of_the_scope_once(
    ingest: Ingestion, n_rows: int, n_shards: int
) -> None:
    store(ingest)
    parts = [read(ingest, shard) for shard in shards(ingest, n_rows)]

    whole = ingest.read([1, 3])
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), whole.y)
    np.testing.assert_array_equal(
        np.concatenate([part.ids for part in parts]), whole.row_ids
    )
    assert len(parts) == n_shards


def test_an_upload_of_many_shards_has_each_row_in_one(ingest: Ingestion) -> None:
    ingest(BODY)
    store_table(stored_table(ingest.destination), ingest.destination, group_rows=10)
    parts = [read(ingest, shard) for shard in shards(ingest, 1)]
    assert len(parts) == 30
    ids = np.concatenate([part.ids for part in parts])
    expected = ingest.read([1, 3])
    np.testing.assert_array_equal(ids, expected.row_ids)


def test_an_upload_without_rows_is_one_shard(ingest: Ingestion) -> None:
    store(ingest, HEADER)
    [shard] = shards(ingest, 100)
    assert read(ingest, shard).y.size == 0


def test_a_shard_of_a_file_that_was_replaced_is_refused(ingest: Ingestion) -> None:
    """After the erasure of a unit, a row may be in another row group and would be read
    in two shards.
    """
    store(ingest)
    before = shards(ingest, 100)
    store_table(stored_table(ingest.destination), ingest.destination, group_rows=40)
    with pytest.raises(InstallationError):
        read(ingest, before[0])
