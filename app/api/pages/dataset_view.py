"""Prepares the tabs, columns, cells and uploads of a dataset."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from app.access.grants import (
    MANAGE_DATASET,
    PREDICT,
    SEE_BALANCE,
    SEE_DATASET,
    SEE_JOB,
    TRAIN,
)
from app.api.pages import pictures, words
from app.api.pages.rendering import Visit
from app.core import limits
from app.services.authorization import has_role
from app.services.datasets import show
from app.wire.ledger import CellOut, PartitionBalance
from app.wire.uploads import UploadList
from grovekeeper_common.declared_labels import labels_of, number_in_words
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_words import grouped


def shown_dataset(visit: Visit, reference: str) -> JsonObject:
    """A dataset as the API shows it."""
    return show.show_dataset(*visit.by, reference).model_dump(by_alias=True)


def unit_of_dataset(visit: Visit, reference: str) -> str:
    """What the guarantee of a dataset protects."""
    return words.unit_of(shown_dataset(visit, reference)["privacy_unit"]["column"])


@dataclass(frozen=True)
class Tab:
    """A link to a part of a dataset."""

    label: str
    path: str
    is_current: bool


def tabs_of(visit: Visit, dataset: str, current: str) -> list[Tab]:
    """The parts of a dataset that the reader may see, each with an address of its own.

    Args:
        current: the shown part.
    """
    page = f"/ui/datasets/{dataset}"
    parts = [
        ("Overview", page, SEE_DATASET),
        ("Uploads", f"{page}/uploads", SEE_DATASET),
        ("Access", f"{page}/access", SEE_DATASET),
        ("Rules", f"{page}/rules", SEE_DATASET),
        ("Webhooks", f"{page}/webhooks", MANAGE_DATASET),
        ("Statistics", f"{page}/statistics", TRAIN),
        ("Models", f"/ui/models?dataset={dataset}", PREDICT),
        ("Jobs", f"/ui/jobs?dataset={dataset}", SEE_JOB),
        ("Ledger", f"/ui/ledger/{dataset}", SEE_BALANCE),
    ]
    return [
        Tab(label, path, label == current)
        for label, path, roles in parts
        if has_role(*visit.by, dataset, roles)
    ]


@dataclass(frozen=True)
class DeclaredColumn:
    """A column of the declaration; ``values`` are its bounds or categories in words."""

    name: str
    type: str
    values: str


def declared_columns(schema: JsonMapping) -> list[DeclaredColumn]:
    """The columns that a dataset learns from, and at last those to predict."""
    columns = [
        DeclaredColumn(feature["name"], feature["type"], _values(feature))
        for feature in schema["features"]
    ]
    for label in labels_of(schema):
        values = _values_of_label(label)
        columns.append(DeclaredColumn(label["name"], "label", values))
    return columns


def _values_of_label(label: JsonMapping) -> str:
    if "classes" in label:
        return words.listed(label["classes"])
    return number_in_words(label)


def _between(column: JsonMapping) -> str:
    lower = grouped(column["lower"])
    upper = grouped(column["upper"])
    return f"{lower} to {upper}"


def _values(feature: JsonMapping) -> str:
    if feature["type"] == "categorical":
        values = words.listed(feature["categories"])
    elif feature["type"] == "date":
        values = f"{feature['lower']} to {feature['upper']}"
    else:
        values = _between(feature)
    return f"{values}, or missing" if feature.get("missing") else values


@dataclass(frozen=True)
class ShownCell:
    """What is left in a cell.

    Attributes:
        name: of the cell.
        left: what is left, rounded down.
        amounts: all amounts of the cell, in words.
        colour: the class of its colour, which is the stronger, the less is left.
    """

    name: str
    left: str
    amounts: str
    colour: str


def _shown_cells(cells: Sequence[CellOut], cap: str) -> list[ShownCell]:
    return [
        ShownCell(
            name=str(cell.cell),
            left=words.left(cell.remaining),
            amounts=f"{cell.charged} charged, {cell.reserved} reserved, "
            f"{cell.remaining} left",
            colour=pictures.share_class(cell.remaining, cap),
        )
        for cell in cells
    ]


@dataclass(frozen=True)
class ShownPartition:
    """The cells of a partition."""

    name: str
    cells: list[ShownCell]


def shown_partitions(
    partitions: Sequence[PartitionBalance], cap: str
) -> list[ShownPartition]:
    """What is left in the cells of every partition of an account with a cap."""
    return [
        ShownPartition(partition.name, _shown_cells(partition.cells, cap))
        for partition in partitions
    ]


@dataclass(frozen=True)
class PairLink:
    """A link to the grid of two partitions; ``pair`` names them in its address."""

    pair: str
    label: str
    is_current: bool


@dataclass(frozen=True)
class Grid:
    """What is left in every pair of a cell of one partition and a cell of another.

    Attributes:
        label: the names of the two partitions.
        columns: the name of the first partition, and the cells of the second.
        rows: each cell of the first partition, with its pairs.
        links: to the grids of other pairs; empty if there are none.
    """

    label: str
    columns: list[str]
    rows: list[ShownPartition]
    links: list[PairLink]


def pairs_of(partitions: Sequence[PartitionBalance]) -> list[tuple[str, str]]:
    """Pairs of partitions that fit a page as a grid."""
    return [
        (first.name, second.name)
        for first, second in combinations(partitions, 2)
        if 0 < len(first.cells) * len(second.cells) <= limits.MAX_SHOWN_PAIRS
    ]


def grid_of(
    pairs: Sequence[tuple[str, str]],
    chosen: tuple[str, str],
    listed: Sequence[tuple[object, Sequence[CellOut]]],
    cap: str,
) -> Grid:
    """The grid of a pair of partitions.

    Args:
        pairs: all pairs that have a grid.
        listed: each cell of the first partition, with the pairs that it is part of.
    """
    rows = [
        ShownPartition(str(name), _shown_cells(cells, cap)) for name, cells in listed
    ]
    links = [
        PairLink(
            pair=",".join(pair),
            label=" and ".join(pair),
            is_current=pair == chosen,
        )
        for pair in pairs
    ]
    return Grid(
        label=" and ".join(chosen),
        columns=[chosen[0], *(cell.name for cell in rows[0].cells)],
        rows=rows,
        links=links if len(links) > 1 else [],
    )


@dataclass(frozen=True)
class ShownUpload:
    """An upload.

    Attributes:
        n_rows: the number of its stored rows, or a dash; for owners only.
        erased_at: when its rows were erased, by themselves or with the dataset.
    """

    id: str
    uploaded_at: str
    n_rows: str
    erased_at: str | None


@dataclass(frozen=True)
class ShownUploads:
    """The uploads of a dataset, oldest first; ``are_counted``: the reader sees numbers
    of rows.
    """

    uploads: list[ShownUpload]
    are_counted: bool

    @property
    def columns(self) -> list[str]:
        """The columns of their table."""
        counted = ["Rows stored"] if self.are_counted else []
        return ["Time (UTC)", "Upload", *counted, "State"]


def shown_uploads(dataset: JsonMapping, counted: UploadList | None) -> ShownUploads:
    """The uploads of a dataset, with numbers of rows where the reader may see them."""
    listed = [] if counted is None else counted.uploads
    n_rows = {item.epoch: item.rows for item in listed if item.rows is not None}
    uploads = []
    for epoch in dataset["epochs"]:
        # A number that the reader does not get is a dash, and no zero.
        number = n_rows.get(epoch["epoch"])
        uploads.append(
            ShownUpload(
                id=epoch["epoch"],
                uploaded_at=epoch["uploaded_at"],
                n_rows="–" if number is None else grouped(number),
                erased_at=epoch["erased_at"],
            )
        )
    return ShownUploads(uploads, are_counted=bool(n_rows))
