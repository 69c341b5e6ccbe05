"""Predicts the rows of a file part by part into another file, in bounded memory.

With pyarrow, the columns of CSV, Parquet and Arrow travel as Arrow. Without it, and from
the first block of CSV that only the reader of Python may judge, rows travel as JSON. The
answers are equal.
"""

import csv
import gzip
import io
import json
import os
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from grovekeeper_client.cli import prediction_rows as texts
from grovekeeper_client.cli import problems
from grovekeeper_client.cli.command import Client, WrongUse, exists_already
from grovekeeper_client.cli.written import USUAL, Written
from grovekeeper_client.errors import ApiProblem
from grovekeeper_client.models import (
    counted,
    n_rows_at_once,
    predict_arrays,
    predict_rows,
)
from grovekeeper_common import suspicions
from grovekeeper_common.durable_files import new_file
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_text import not_computed
from grovekeeper_common.prediction_columns import PREDICTED, share_column

HAS_PYARROW = find_spec("pyarrow") is not None
"""Whether the extra ``arrow`` is installed."""

if HAS_PYARROW:
    from grovekeeper_client.cli import prediction_tables as tables

_BLOCK_BYTES = 1024 * 1024
"""Bytes of text that are read at once, and then up to the end of the line."""

_TABLES = (suspicions.PARQUET, suspicions.ARROW)
"""First bytes of Parquet and Arrow."""

_NEEDS_PYARROW = "needs pyarrow: pip install 'grovekeeper-client[arrow]'"

_FORMS = (".csv", ".parquet", ".arrow", ".feather")

Columns = dict[str, Any]
"""Cells by column: lists, or arrays of Arrow."""

Unpacked = BufferedReader | gzip.GzipFile
"""The bytes of a file that may be packed."""

Row = tuple[JsonObject, list[str | None]]
"""The features of a row, and its cells that are kept."""


@dataclass(frozen=True)
class Task:
    """What is predicted from a file into a file.

    Attributes:
        source: rows.
        target: does not exist.
        card: of the model.
        keep: columns of the rows that stand before the predictions.
        read_out: ``None``: the model's.
        written: how a source of CSV is written.
    """

    source: Path
    target: Path
    card: JsonMapping
    keep: Sequence[str]
    read_out: str | None
    written: Written = USUAL

    @property
    def schema(self) -> JsonMapping:
        """The public schema of the model."""
        schema: JsonMapping = self.card["schema"]
        return schema

    @property
    def aside(self) -> set[str]:
        """Columns of the file that the model does not read."""
        features = {feature["name"] for feature in self.schema["features"]}
        return {*self.keep, self.schema["label"]["name"]} - features

    def check_columns(self, names: Sequence[str]) -> None:
        """Checks that the file has the columns that are kept and those of the model,
        and no others.
        """
        for name in self.keep:
            if name not in names:
                meant = problems.question(problems.similar([name], names))
                raise WrongUse(f"the rows have no column {name!r} to keep{meant}")
        texts.check_columns(names, self.schema, aside=self.aside)


@dataclass(frozen=True)
class _Part:
    """Consecutive rows of a file.

    Attributes:
        rows: the features, as a table of Arrow or as a list of mappings.
        kept: the columns that are kept.
        share: of the file that ends with this part.
    """

    rows: Any
    kept: Columns
    share: float


_Parts = Generator[_Part, None, None]


def predict_file(
    client: Client, task: Task, on_progress: Callable[[int, float], None]
) -> JsonObject:
    """Writes the kept columns, the predicted class and the probability of each class of
    all rows, or the predicted number, in their order. The file appears when it is
    complete.

    Args:
        client: calls the service.
        task: the files and the model.
        on_progress: called with the number of rows that are done, and the share of the
            source.

    Returns:
        ``model``, ``rows`` (their number), and ``counts`` as a prediction has them.

    Raises:
        WrongUse: the source cannot be read, the columns do not fit, or the target has a
            form that cannot be written.
        ApiProblem: with the number of rows of the source before the refused request.
    """
    classes = task.schema["label"].get("classes", ())
    shares = list(map(share_column, classes))
    _check_names(task.keep, {PREDICTED, *shares})
    # an alias may move meanwhile
    model = str(task.card["id"])
    n_rows = 0
    counts = counted([])
    options: dict[str, Any] = {"schema": task.schema, "read_out": task.read_out}
    with _writer(task.target) as writer, closing(_parts(task)) as parts:
        for part in parts:
            predict = (
                _predict_mappings if isinstance(part.rows, list) else predict_arrays
            )
            try:
                answer = predict(client, model, part.rows, **options)
            except ApiProblem as problem:
                n_before = n_rows + problem.n_before
                raise replace(problem, n_before=n_before) from problem
            by_class = dict(zip(shares, answer["probabilities"], strict=True))
            writer.write(part.kept, {PREDICTED: answer["labels"]} | by_class)
            counts = counted([{"counts": counts}, answer])
            n_rows += len(answer["labels"])
            on_progress(n_rows, part.share)
    return {"model": model, "rows": n_rows, "counts": counts}


def _predict_mappings(
    client: Client, model_id: str, rows: texts.Rows, **options: Any
) -> JsonObject:
    """Predictions with a list of probabilities by class."""
    answer = predict_rows(client, model_id, rows, **options)
    places = range(len(answer["classes"]))
    by_class = [[row[place] for row in answer["probabilities"]] for place in places]
    return answer | {"probabilities": by_class}


def _check_names(keep: Sequence[str], predicted: Collection[str]) -> None:
    """Checks that no kept column has the name of one that is predicted."""
    for name in keep:
        if name in predicted:
            raise WrongUse(
                f"the column {name!r} cannot be kept, because the output has a column "
                "of predictions with this name: rename it in the rows"
            )


def _parts(task: Task) -> _Parts:
    """The parts of the source, each with rows; at least one."""
    with ExitStack() as closes:
        try:
            raw = closes.enter_context(task.source.open("rb"))
        except OSError as error:
            raise WrongUse(f"{task.source} cannot be read: {error.strerror}") from error
        closes.enter_context(texts.unpacking(task.source))
        form = texts.form_of(task.source)
        if not task.written.is_usual:
            texts.check_is_csv(task.source)
            source = _unpacked(raw)
            usual = task.written.as_usual(source, task.source, task.schema)
            raw = closes.enter_context(usual)
        if raw.peek(8).startswith(_TABLES):
            parts = _of_tables(raw, task)
        elif form in texts.OF_CSV:
            parts = _of_csv(raw, task)
        elif form in texts.OF_LINES:
            lines = texts.from_json_lines(_unpacked(raw), task.source)
            parts = _of_rows(_with_kept(lines, task), raw, task)
        else:
            rows = texts.read_rows(task.source, task.schema)
            parts = _of_rows(_with_kept(rows, task), raw, task)
        closes.enter_context(closing(parts))
        has_rows = False
        for part in parts:
            if len(part.rows):
                has_rows = True
                yield part
        if not has_rows:
            raise WrongUse(f"{task.source} has no rows")


def _unpacked(raw: BufferedReader) -> Unpacked:
    is_gzip = raw.peek(2).startswith(b"\x1f\x8b")
    return gzip.open(raw) if is_gzip else raw


def _share(raw: BinaryIO) -> float:
    return raw.tell() / max(os.fstat(raw.fileno()).st_size, 1)


def _of_tables(raw: BufferedReader, task: Task) -> _Parts:
    is_parquet = raw.peek(8).startswith(suspicions.PARQUET)
    if not HAS_PYARROW:
        form = "Parquet" if is_parquet else "Arrow"
        raise WrongUse(f"{task.source} looks like {form}, which {_NEEDS_PYARROW}")
    size = n_rows_at_once(task.schema)
    for batch, share in tables.batches(raw, is_parquet=is_parquet, n_rows=size):
        names = list(map(suspicions.composed, batch.column_names))
        table = batch.rename_columns(names)
        texts.check_distinct(names)
        task.check_columns(names)
        features = tables.features_of(table, task.schema)
        yield _Part(features, _columns(table, task.keep), share)


def _columns(table: Any, names: Sequence[str]) -> Columns:
    return {name: table.column(name) for name in names}


def _of_csv(raw: BufferedReader, task: Task) -> _Parts:
    """Blocks of lines as tables of Arrow, and from the first block that the reader of
    Python has to judge, rows.
    """
    stream = _unpacked(raw)
    block = stream.read(_BLOCK_BYTES) + stream.readline()
    texts.check_text(block, task.source, task.schema)
    text = block.decode("utf-8-sig")
    texts.check_separator(text, task.source, task.schema)
    reader = csv.reader(io.StringIO(text, newline=""))
    header = texts.header_of(reader)
    task.check_columns(header)
    lines = b"".join(block.splitlines(keepends=True)[reader.line_num :])
    n_bytes = 0
    n_lines = 0
    while block and HAS_PYARROW:
        read = tables.of_csv(lines, header, task.schema)
        if read is None:
            break
        features, cells = read
        for part in tables.ranges(cells.num_rows, n_rows_at_once(task.schema)):
            kept = _columns(cells.slice(*part), task.keep)
            yield _Part(features.slice(*part), kept, _share(raw))
        n_bytes = n_bytes + len(block)
        n_lines = n_lines + block.count(b"\n")
        block = lines = stream.read(_BLOCK_BYTES) + stream.readline()
    if block:
        stream.seek(n_bytes)
        rows = _rows_of_csv(stream, header if n_bytes else [], n_lines, task)
        yield from _of_rows(rows, raw, task)


def _rows_of_csv(
    stream: Unpacked, header: Sequence[str], n_lines: int, task: Task
) -> Iterator[Row]:
    """The rows of the rest of a file.

    Args:
        stream: at the begin of the file, or behind some of its lines.
        header: names of the columns; empty: the file begins with it.
        n_lines: lines before the rest.
        task: with the schema.
    """
    encoding = "utf-8" if header else "utf-8-sig"
    lines = io.TextIOWrapper(stream, encoding, newline="")
    cells = texts.CellReader(task.schema, aside=task.aside)
    try:
        for line, found in texts.csv_records(lines, header, n_before=n_lines):
            row = cells.row(found, line=line)
            yield row, [found[name] for name in task.keep]
    except UnicodeDecodeError as error:
        raise texts.no_text(task.source, error.object) from None
    finally:
        lines.detach()


def _with_kept(rows: Iterable[JsonObject], task: Task) -> Iterator[Row]:
    """Rows of JSON without the cells that the model does not read."""
    for found in rows:
        row = {suspicions.composed(name): cell for name, cell in found.items()}
        absent = next((name for name in task.keep if name not in row), None)
        if absent is not None:
            raise WrongUse(f"a row has no column {absent!r} to keep")
        kept = [_text(row[name]) for name in task.keep]
        yield {name: row[name] for name in row if name not in task.aside}, kept


def _text(value: object) -> str | None:
    return value if isinstance(value, str | None) else json.dumps(value)


def _of_rows(rows: Iterator[Row], raw: BinaryIO, task: Task) -> _Parts:
    size = n_rows_at_once(task.schema)
    while part := list(islice(rows, size)):
        features = [row for row, _ in part]
        names = dict.fromkeys(name for row in features for name in row)
        task.check_columns([*names, *task.keep])
        kept = zip(*(cells for _, cells in part), strict=True)
        columns = dict(zip(task.keep, map(list, kept), strict=True))
        yield _Part(features, columns, _share(raw))


class _CsvWriter:
    """Writes columns of lists as CSV: texts in quotes, numbers without. A spreadsheet
    computes no text.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._text = io.TextIOWrapper(file, "utf-8", newline="")
        self._csv = csv.writer(
            self._text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n"
        )
        self._has_header = False

    def write(self, kept: Mapping[str, Any], predicted: Mapping[str, Any]) -> None:
        """Writes columns, which are lists."""
        columns = {**kept, **predicted}
        if not self._has_header:
            self._csv.writerow(map(not_computed, columns))
            self._has_header = True
        cells = (map(not_computed, column) for column in columns.values())
        self._csv.writerows(zip(*cells, strict=True))

    def close(self) -> None:
        """Hands everything to the file, which stays open."""
        self._text.detach()


@contextmanager
def _writer(target: Path) -> Iterator["_CsvWriter | tables.TableWriter"]:
    """A writer by the ending of a file, which appears when the block ends well.

    Raises:
        WrongUse: no form has this ending, or pyarrow is needed.
    """
    form = target.suffix.lower()
    if form not in _FORMS:
        raise WrongUse(f"{target}: the output is one of {', '.join(_FORMS)}")
    if not HAS_PYARROW and form != ".csv":
        raise WrongUse(f"{target}: this form {_NEEDS_PYARROW}")
    try:
        with new_file(target, existing="refuse") as file:
            writer = tables.TableWriter(file, form) if HAS_PYARROW else _CsvWriter(file)
            yield writer
            writer.close()
    except FileExistsError:  # it appeared meanwhile
        raise exists_already(target) from None
