"""Tests that every row lies in one cell of every partition, and that a box is the rows
in all of its cells.
"""

import dataclasses
import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from app.core.errors import InstallationError, RowsInvalid
from app.datasets import private_rows, row_layout
from app.datasets.private_rows import Selection
from app.datasets.row_layout import hash_cells, hash_keys, stored_columns
from grovekeeper_forests.data.schema import Feature, Label
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    EpochPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from tests.support.uploads import KEY, SCHEMA, Ingestion, store_table, stored_table

REGION = ColumnPartition("region", "land", False, ("EU", "US"), has_missing=True)
SEX = ColumnPartition("by sex", "sex", True, ("Female", "Male"), has_missing=True)
CANTON = ColumnPartition(
    "canton", "city, canton", True, ("Bern, BE", "0"), has_missing=False
)
PARTITIONS = Partitions(
    (
        HashPartition("shard", 3),
        REGION,
        SEX,
        EpochPartition("batch", "monthly"),
        HashPartition("coin", 2),
        CANTON,
    )
)
HEADER = 'land,age,height,sex,"city, canton",income\n'
LANDS = ["EU", "US", "XX", "", "eu"]
SEXES = ["Female", "Male", "none", ""]
CANTONS = ["0", '"Bern, BE"', "elsewhere"]
ROWS = list(itertools.product(LANDS, SEXES, CANTONS)) * 4


@pytest.fixture
def ingest(ingest: Ingestion) -> Ingestion:
    """Ingests 240 rows of every combination under six partitions; a row's age is the
    number of its combination.
    """
    ingest.partitions = PARTITIONS
    combinations = list(dict.fromkeys(ROWS))
    lines = (
        f"{land},{combinations.index((land, sex, city))},1,{sex},{city},>50K\n"
        for land, sex, city in ROWS
    )
    ingest(HEADER + "".join(lines))
    return ingest


def _ids(ingest: Ingestion, **scope) -> set[bytes]:
    rows = ingest.read_box(Scope(scope))
    return {row_id.tobytes() for row_id in rows.row_ids}


def test_hash_partitions_and_columns_that_are_no_feature_have_stored_columns(ingest):
    assert [(column.name, column.partition.name) for column in stored_columns(PARTITIONS)] == [
        ("cell", "shard"), ("cell1", "region"), ("cell2", "coin")
    ]  # fmt: skip
    table = stored_table(ingest.destination)
    assert table.column_names == [
        "f0",
        "f1",
        "f2",
        "f3",
        "label",
        "row_id",
        "cell",
        "cell1",
        "cell2",
    ]
    assert table.schema.equals(row_layout.arrow_schema(SCHEMA, PARTITIONS))
    assert table.column("cell1").to_pylist() == [
        {"EU": 0, "US": 1, "": 3}.get(land, 2) for land, _, _ in ROWS
    ]


def test_every_row_is_in_one_cell_of_each_partition(ingest):
    everything = _ids(ingest)
    assert len(everything) == len(ROWS)
    for partition in PARTITIONS.declared:
        if partition.known_cells is None:
            continue
        cells = [
            _ids(ingest, **{partition.name: (cell,)}) for cell in partition.known_cells
        ]
        assert all(cells)
        assert sum(map(len, cells)) == len(everything)
        assert set.union(*cells) == everything


def test_a_box_is_the_rows_in_all_of_its_cells(ingest):
    region, sex = ("EU", "OTHER"), ("MISSING", "OTHER")
    box = _ids(
        ingest, region=region, **{"by sex": sex, "canton": ("OTHER",), "coin": (1,)}
    )
    assert len(box) > 0
    assert box == _ids(ingest, region=region) & _ids(ingest, **{"by sex": sex}) & _ids(
        ingest, canton=("OTHER",)
    ) & _ids(ingest, coin=(1,))
    ages = ingest.read_box(
        Scope({"region": region, "by sex": sex, "canton": ("OTHER",)})
    ).features.columns[0]
    combinations = list(dict.fromkeys(ROWS))
    expected = [
        at
        for at, (land, who, city) in enumerate(combinations)
        if land in ("EU", "XX", "eu") and who in ("", "none") and city == "elsewhere"
    ]
    assert Counter(ages.tolist()) == dict.fromkeys(map(float, expected), 4)


def test_the_uploads_of_a_box_do_not_filter_the_rows_of_a_file(ingest):
    assert _ids(ingest, batch=("ep_other",)) == _ids(ingest)


def test_hash_partitions_have_keys_of_their_own():
    keys = hash_keys(PARTITIONS, dataset_key=KEY)
    assert set(keys) == {"shard", "coin"}
    assert len({KEY, *keys.values()}) == 3
    ids = b"".join(bytes([at]) * 16 for at in range(256))
    first, second = (
        hash_cells(ids, partition=HashPartition(name, 4), dataset_key=keys[name])
        for name in ("shard", "coin")
    )
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == 16, (
        "with one key only 4 pairs would occur"
    )


def test_the_cell_of_a_row_does_not_depend_on_other_rows(tmp_path):
    alone = Ingestion(tmp_path / "alone")
    alone.partitions = Partitions((REGION,))
    alone(HEADER + "US,1,1,Male,0,>50K\n")
    assert stored_table(alone.destination).column("cell").to_pylist() == [1]


@pytest.mark.parametrize("damaged", [-1, 4, 99, None])
def test_a_damaged_code_of_a_column_is_in_the_cell_other(ingest, damaged):
    table = stored_table(ingest.destination)
    at = table.column_names.index("cell1")
    codes = [damaged, *table.column("cell1").to_pylist()[1:]]
    form = table.schema.set(at, pa.field("cell1", pa.int32(), nullable=damaged is None))
    arrays = [
        *table.columns[:at],
        pa.chunked_array([pa.array(codes, pa.int32())]),
        *table.columns[at + 1 :],
    ]
    store_table(pa.Table.from_arrays(arrays, schema=form), ingest.destination)
    if damaged is None:
        with pytest.raises(InstallationError, match="damaged"):
            ingest.read_box(Scope({"region": ("OTHER",)}))
        return
    first = table.column("row_id")[0].as_py()
    cells_of_row = [
        cell for cell in REGION.known_cells if first in _ids(ingest, region=(cell,))
    ]
    assert cells_of_row == ["OTHER"]


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (HEADER.replace("land,", ""), [("land", "missing-column", 1)]),
        (HEADER.replace("land,", "land,land,"), [("land", "duplicate-column", 2)]),
        (HEADER.replace("land,", "land,batch,"), [("", "unknown-column", 1)]),
    ],
)
def test_an_upload_has_each_column_of_a_partition_once(tmp_path, header, problem):
    ingest = Ingestion(tmp_path / "home")
    ingest.partitions = PARTITIONS
    with pytest.raises(RowsInvalid) as refused:
        ingest(header)
    assert [
        (column.name, column.problem, column.count) for column in refused.value.columns
    ] == problem
    assert ingest.files() == []


def test_the_owners_report_counts_a_partitions_column_like_a_feature(tmp_path):
    ingest = Ingestion(tmp_path / "home")
    ingest.partitions = Partitions((REGION,))
    report = ingest(
        HEADER
        + "EU,1,1,Male,0,>50K\nXX,1,1,Male,0,>50K\n,1,1,Male,0,>50K\n,1,1,Male,0,>50K\n"
    )
    last = report.columns[-1]
    assert (last.name, last.clamped, last.missing, last.unknown) == ("land", 0, 2, 1)


@pytest.mark.parametrize(
    "scope",
    [{"nowhere": (0,)}, {"shard": (3,)}, {"shard": ("0",)}, {"region": ("XX",)}],
)
def test_an_undeclared_partition_or_cell_is_refused(ingest, scope):
    with pytest.raises(ValueError, match="the declaration has no such"):
        ingest.read_box(Scope(scope))


def test_rows_of_an_unknown_label_are_in_no_box(tmp_path):
    ingest = Ingestion(tmp_path / "home")
    ingest.partitions = Partitions((REGION,))
    ingest(HEADER + "EU,1,1,Male,0,who knows\nEU,2,1,Male,0,>50K\n")
    assert np.array_equal(
        ingest.read_box(Scope({"region": ("EU",)})).features.columns[0], [2.0]
    )


def test_columns_are_read_without_pandas():
    """Each job has a process of its own, in which pandas would take longer than the
    rows of a small job.
    """
    program = (
        "import sys, pyarrow as pa; from app.datasets import private_rows;"
        "print(*private_rows.integers(pa.chunked_array([pa.nulls(1, pa.int32())])));"
        "print(*private_rows.numbers(pa.chunked_array([pa.nulls(1, pa.float64())])));"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["-1", "nan", "False"]


OTHER_SEX = Feature("sex", "categorical", categories=("Female",), missing=True)
CHANGED = {
    "two names exchanged": tuple(
        dataclasses.replace(
            feature,
            name={"sex": "city, canton", "city, canton": "sex"}.get(
                feature.name, feature.name
            ),
        )
        for feature in SCHEMA.features
    ),
    "a category less": (*SCHEMA.features[:2], OTHER_SEX, SCHEMA.features[3]),
    "categories exchanged": tuple(
        dataclasses.replace(feature, categories=feature.categories[::-1])
        for feature in SCHEMA.features
    ),
    "nothing may be missing": tuple(
        dataclasses.replace(feature, missing=False) for feature in SCHEMA.features
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_rows_are_not_read_by_another_schema_than_they_were_stored_by(ingest, change):
    """A partition by a feature finds its column by the feature's name: the cells would
    be those of other rows.
    """
    schema = dataclasses.replace(SCHEMA, features=CHANGED[change])
    with pytest.raises(InstallationError):
        private_rows.read(
            [ingest.destination],
            Selection(schema, PARTITIONS, Scope({"by sex": ("Male",)})),
        )
    classes = dataclasses.replace(SCHEMA, label=Label("income", (">50K", "<=50K")))
    with pytest.raises(InstallationError):
        private_rows.read([ingest.destination], Selection(classes, PARTITIONS, WHOLE))


def test_a_file_of_an_earlier_version_is_read_with_the_cells_that_the_account_states(
    ingest,
):
    """Such a file does not say by which schema it was stored; its cells are those of
    the partition in every case.
    """
    honest = _ids(ingest, **{"by sex": ("OTHER",)})
    table = stored_table(ingest.destination)
    kept = {
        name: text for name, text in table.schema.metadata.items() if name != b"meaning"
    }
    assert len(kept) == len(table.schema.metadata) - 1
    store_table(table.replace_schema_metadata(kept), ingest.destination)
    assert _ids(ingest, **{"by sex": ("OTHER",)}) == honest
    schema = dataclasses.replace(SCHEMA, features=CHANGED["a category less"])
    both = Selection(SCHEMA, PARTITIONS, Scope({"by sex": ("Male",), "shard": (1, 2)}))
    assert both.columns == ["f2", "cell", "label"], (
        "also where codes are read and values are not"
    )
    rows = private_rows.read(
        [ingest.destination],
        Selection(schema, PARTITIONS, Scope({"by sex": ("OTHER",)})),
    )
    assert {row_id.tobytes() for row_id in rows.row_ids} == honest
