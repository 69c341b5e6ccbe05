"""Reads rows of pandas, Arrow, NumPy or plain Python without loss, and gives answers of
the same kind.
"""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

from grovekeeper_common.declared_columns import Feature, Scalar
from grovekeeper_common.number_text import BLANKS, number_of, text_of_number
from grovekeeper_common.text_cells import TYPES_OF_TEXT, is_mark, marks_of

_BATCH_ROWS = 65_536
_NEEDS_PYARROW = (
    "an upload or a prediction of this table needs pyarrow (pip install pyarrow); or write a file and upload the file: "
    'frame.to_csv("rows.csv", index=False), then upload("rows.csv")'
)

Kind: TypeAlias = Literal["pandas", "pyarrow", "numpy", "columns", "mappings", "lists"]

_MISSING_TYPES = ("NAType", "NaTType")
"""Types of ``pandas.NA`` and ``pandas.NaT``, by name, because pandas may not be
installed.
"""


@dataclass(frozen=True)
class Rows:
    """Rows of a prediction.

    Attributes:
        features: of the model, by name.
        given: columns as they were given; features without cells are absent.
        n_rows: number of rows.
        source: the rows as they were given.
        kind: their kind, which is the kind of the answers.
    """

    features: Mapping[str, Feature]
    given: Mapping[str, Any]
    n_rows: int
    source: Any
    kind: Kind

    @cached_property
    def columns(self) -> dict[str, list[Scalar]]:
        """Cells by feature, as the API reads them in JSON.

        Raises:
            TypeError: a cell has a type that its feature does not take.
        """
        return {
            name: _cells(self.features[name], column)
            for name, column in self.given.items()
        }

    @cached_property
    def table(self) -> Any:
        """The rows as an Arrow table; ``None`` if they are of another library, or
        pyarrow is not installed.

        Raises:
            TypeError: a cell has a type that its feature does not take.
        """
        if self.kind not in ("pandas", "pyarrow"):
            return None
        try:
            import pyarrow

            return pyarrow.table(
                {
                    name: _array(self.features[name], it)
                    for name, it in self.given.items()
                }
            )
        except ImportError:
            return None

    def labels(self, labels: list[Any], *, name: str, is_number: bool = False) -> Any:
        """Labels as a Series, an Arrow or a NumPy array, or a list.

        Args:
            labels: one for each row.
            name: column of the label.
            is_number: whether they are numbers, not texts.
        """
        match self.kind:
            case "pandas":
                import pandas

                dtype = float if is_number else object
                return pandas.Series(
                    labels, index=self.source.index, name=name, dtype=dtype
                )
            case "pyarrow":
                import pyarrow

                kind = pyarrow.float64() if is_number else pyarrow.string()
                return pyarrow.array(labels, type=kind)
            case "numpy":
                import numpy

                return numpy.array(labels, dtype=float if is_number else str)
            case _:
                return labels

    def probabilities(
        self, probabilities: list[list[float]], *, classes: list[str]
    ) -> Any:
        """Probabilities as a DataFrame, a Table, an array, lists by class, mappings by
        class, or lists.

        Args:
            probabilities: by row and class.
            classes: of the label, in declared order.
        """
        by_class = dict(
            zip(classes, map(list, zip(*probabilities, strict=True)), strict=False)
        )
        match self.kind:
            case "pandas":
                import pandas

                return pandas.DataFrame(
                    probabilities, index=self.source.index, columns=classes, dtype=float
                )
            case "pyarrow":
                import pyarrow

                return pyarrow.table(
                    {
                        name: pyarrow.array(by_class.get(name, []), "float64")
                        for name in classes
                    }
                )
            case "numpy":
                import numpy

                return numpy.array(probabilities, dtype=float).reshape(
                    self.n_rows, len(classes)
                )
            case "columns":
                return {name: by_class.get(name, []) for name in classes}
            case "mappings":
                return [dict(zip(classes, row, strict=True)) for row in probabilities]
            case _:
                return probabilities


def read(source: Any, schema: Mapping[str, Any]) -> Rows:
    """Reads rows by the public schema of a model. Texts that it declares to mean a
    missing value are missing, as in uploads.

    Args:
        source: a DataFrame, a Table or RecordBatch, a table of another library that
            gives a stream of Arrow (polars, DuckDB, ibis; answered by an Arrow table),
            a NumPy array with two dimensions, a mapping from column to cells, a
            sequence of mappings, or a sequence of sequences. Rows without names of
            columns have a cell for every feature, in declared order.
        schema: of the model card.

    Raises:
        ValueError: an unknown or repeated column, an absent column whose feature cannot
            be missing, or columns or rows of unequal length.
        TypeError: rows of another kind.
    """
    features = {feature["name"]: feature for feature in schema["features"]}
    source = _of_stream(source)
    kind = kind_of(source)
    by_name = _named(source, kind, list(features))
    unknown = [name for name in by_name if name not in features]
    if unknown:
        raise ValueError(
            f"the model does not read these columns: {', '.join(map(str, unknown))}"
        )
    absent = [
        name
        for name, feature in features.items()
        if name not in by_name and not feature.get("missing")
    ]
    if absent:
        raise ValueError(f"these columns are needed: {', '.join(absent)}")
    lengths = {len(column) for column in by_name.values()}
    if len(lengths) > 1:
        raise ValueError("the columns have unequal lengths")
    marks = marks_of(schema)
    given = {name: without_marks(cells, marks[name]) for name, cells in by_name.items()}
    return Rows(features, given, lengths.pop() if lengths else 0, source, kind)


def without_marks(column: Any, marks: Collection[str]) -> Any:
    """A column of pandas, Arrow or Python in which some texts are missing cells.

    Args:
        column: is returned as it is if it has none of them.
        marks: the texts.
    """
    if not marks:
        return column
    if hasattr(column, "to_pylist"):
        return _without_marks_in_arrow(column, marks)
    cells = column.tolist() if hasattr(column, "tolist") else column
    if not any(is_mark(cell, marks) for cell in cells):
        return column
    return [None if is_mark(cell, marks) else cell for cell in cells]


def _without_marks_in_arrow(column: Any, marks: Collection[str]) -> Any:
    import pyarrow
    import pyarrow.compute as pc

    kinds = pyarrow.types
    kind = column.type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if kinds.is_string_view(kind):  # pyarrow 17 computes nothing with views
        kind = pyarrow.large_string()
        column = pyarrow.array(column.to_pylist(), kind)
    if not (kinds.is_string(kind) or kinds.is_large_string(kind)):
        return column
    trimmed = pc.utf8_trim(column, BLANKS)
    is_missing = pc.is_in(trimmed, pyarrow.array(sorted(marks), kind))
    if not pc.any(is_missing).as_py():
        return column
    return pc.if_else(is_missing, pyarrow.scalar(None, kind), column)


def write_stream(table: Any, start: int, stop: int, *, read_out: str | None) -> bytes:
    """Rows of a table as the body of a prediction: an Arrow stream."""
    import pyarrow

    part = table.slice(start, stop - start).combine_chunks()
    options = (
        {"counts": "true"}
        if read_out is None
        else {"counts": "true", "read_out": read_out}
    )
    part = part.replace_schema_metadata(options)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, part.schema) as stream:
        stream.write_table(part)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_stream(answer: bytes) -> dict[str, Any]:
    """The answer to a prediction in Arrow, as it is in JSON."""
    facts = read_arrays(answer)
    n_classes = len(facts["classes"])
    shares = facts["probabilities"]
    if not n_classes:
        return facts | {"labels": facts["labels"].to_pylist()}
    flat = shares.flatten().to_pylist()
    return facts | {
        "labels": facts["labels"].to_pylist(),
        "probabilities": [
            flat[start : start + n_classes] for start in range(0, len(flat), n_classes)
        ],
    }


def read_arrays(answer: bytes) -> dict[str, Any]:
    """The answer to a prediction in Arrow; ``labels`` and ``probabilities`` stay arrays
    of Arrow. Where the label is a number, there are no classes and no probabilities.
    """
    import pyarrow

    batch = pyarrow.ipc.open_stream(answer).read_next_batch()
    label = batch.column("label")
    metadata = batch.schema.metadata
    facts = {
        "model": metadata[b"model"].decode(),
        "counts": json.loads(metadata[b"counts"]),
        "classes": [],
        "labels": label,
        "probabilities": [],
    }
    if pyarrow.types.is_dictionary(label.type):
        facts["classes"] = label.dictionary.to_pylist()
        facts["probabilities"] = batch.column("probabilities")
    return facts


def joined_arrays(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ``labels`` of several answers of :func:`read_arrays` as texts or numbers, and
    their ``probabilities`` as a list of columns by class.
    """
    import pyarrow
    import pyarrow.compute

    if not answers[0]["classes"]:
        numbers = [answer["labels"] for answer in answers]
        return {"labels": pyarrow.chunked_array(numbers), "probabilities": []}
    labels = [answer["labels"].cast(pyarrow.string()) for answer in answers]
    shares = pyarrow.chunked_array([answer["probabilities"] for answer in answers])
    by_class = [
        pyarrow.compute.list_element(shares, place)
        for place in range(len(answers[0]["classes"]))
    ]
    return {"labels": pyarrow.chunked_array(labels), "probabilities": by_class}


def write_arrow(source: Any, file: Path, features: Sequence[Feature] = ()) -> None:
    """Writes a DataFrame without its index, or a table that Arrow knows, as an Arrow
    file in batches of bounded size.

    A stream of Arrow, such as a relation of DuckDB gives, may be larger than the
    memory: it is read batch by batch.

    Args:
        features: of the declared schema. Numbers and truth values in a column of
            categories become the text that they become in a prediction.

    Raises:
        TypeError: rows of another kind, or a cell has a type that its feature does not
            take.
        ModuleNotFoundError: pyarrow is not installed.
    """
    batches = _batches(source, features)
    import pyarrow

    for field in batches.schema:
        if pyarrow.types.is_union(field.type):
            raise TypeError(
                f"column {field.name!r} is a union of types, which an upload does not read: "
                "cast it to one of them, or to text"
            )
    schema = _as_declared(batches.schema.empty_table(), features).schema
    with pyarrow.ipc.new_file(file, schema) as writer:
        for batch in batches:
            table = _as_declared(pyarrow.Table.from_batches([batch]), features)
            writer.write_table(table, max_chunksize=_BATCH_ROWS)


def _batches(source: Any, features: Sequence[Feature]) -> Any:
    """A reader of the batches of a DataFrame, or of a table that Arrow knows."""
    stream = _stream(source)
    if stream is not None:
        return stream
    kind = kind_of_table(source)
    if kind is None:
        raise TypeError(
            f"an upload is a file, a DataFrame or an Arrow table, not {type(source).__name__}"
        )
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise ModuleNotFoundError(_NEEDS_PYARROW, name="pyarrow") from None

    if kind == "pandas":
        table = _table_of_pandas(_with_plain_days(source), features)
    else:
        table = (
            source
            if isinstance(source, pyarrow.Table)
            else pyarrow.Table.from_batches([source])
        )
    return table.to_reader(max_chunksize=_BATCH_ROWS)


def _table_of_pandas(source: Any, features: Sequence[Feature]) -> Any:
    import pyarrow

    # cells of several types in a column, or a number that no type of Arrow holds
    with suppress(pyarrow.ArrowException, OverflowError, TypeError):
        return pyarrow.Table.from_pandas(source, preserve_index=False)
    declared = {feature["name"]: feature for feature in features}
    columns = {}
    for name, column in _named(source, "pandas", []).items():
        array = _inferred(column)
        if array is None and name in declared:
            array = _array_of_several_types(declared[name], column)
        if array is None:
            # not from the error of the library, which quotes a cell
            raise TypeError(
                f"column {name!r}: it has cells of several types, or of a type that "
                "Arrow cannot hold, such as integers of more than 64 bits; make texts of them"
            )
        columns[str(name)] = array
    return pyarrow.table(columns)


def _array_of_several_types(feature: Feature, column: Any) -> Any:
    """A column as an array of Arrow. Numbers beside texts become texts, which the service
    reads as those of a file: it knows the marks for missing values, and names the rows.
    """
    import pyarrow

    cells = column.tolist()
    has_texts = any(isinstance(cell, str) for cell in cells)
    if feature["type"] in TYPES_OF_TEXT or not has_texts:
        return _array(feature, column)
    texts = [
        cell if isinstance(cell, str) else _text_of_cell(feature, cell)
        for cell in cells
    ]
    return pyarrow.array(texts, pyarrow.string())


def _text_of_cell(feature: Feature, cell: Any) -> str | None:
    [number] = cells(feature, [cell])
    return None if number is None else _text_of_number(number)


def _inferred(column: Any) -> Any:
    """A column as an array of Arrow; ``None`` where its cells have several types, or one
    is a number that no type of Arrow holds.
    """
    import pyarrow

    # the library raises the last two of wide integers and of an infinite decimal
    with suppress(pyarrow.ArrowException, OverflowError, TypeError):
        return pyarrow.array(column, from_pandas=True)
    return None


def _as_declared(table: Any, features: Sequence[Feature]) -> Any:
    """A table whose columns of categories are texts; the types of its columns follow
    from those of the given ones.
    """
    for feature in features:
        place = table.schema.get_field_index(feature["name"])
        if place >= 0 and feature["type"] == "categorical":
            table = table.set_column(
                place, feature["name"], _array(feature, table.column(place))
            )
    return table


def _of_stream(source: Any) -> Any:
    """A table of Arrow in place of rows that give a stream of Arrow."""
    # One row of a data frame is a series, and gives a stream of its cells.
    if hasattr(source, "to_frame"):
        raise TypeError(
            "rows are a table, not a series: one row of a pandas "
            "frame as a table is frame.iloc[[0]]"
        )
    stream = _stream(source)
    return source if stream is None else stream.read_all()


def _stream(source: Any) -> Any:
    """The stream of Arrow that rows of another library give: of polars, of a relation
    of DuckDB, of ibis; else ``None``.

    Their views of texts become plain texts, which every version of the service reads.
    """
    is_known = (
        kind_of_table(source) is not None
        and type(source).__name__ != "RecordBatchReader"
    )
    if is_known or not hasattr(source, "__arrow_c_stream__"):
        return None
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise ModuleNotFoundError(_NEEDS_PYARROW, name="pyarrow") from None

    try:
        stream = pyarrow.RecordBatchReader.from_stream(source)
    except pyarrow.ArrowInvalid:
        if not hasattr(source, "columns"):
            return None  # a stream of something else, such as one column
        raise TypeError(
            f"{_with_unread_type(source)} has a type that pyarrow does not read, such as integers of 128 bits: cast it"
        ) from None
    schema = pyarrow.schema(
        [field.with_type(_without_views(field.type)) for field in stream.schema]
    )
    return pyarrow.RecordBatchReader.from_batches(
        schema, (_as_typed(batch, schema) for batch in stream)
    )


def _with_unread_type(source: Any) -> str:
    """Names the first column of a table that pyarrow does not read."""
    import pyarrow

    for name in source.columns:
        try:
            pyarrow.RecordBatchReader.from_stream(source[[name]])
        except pyarrow.ArrowInvalid:
            return f"column {name!r}"
        except (TypeError, LookupError, AttributeError):
            break  # a library that selects columns in another way
    return "a column"


def _without_views(kind: Any) -> Any:
    """Plain texts in place of views of texts, and in place of dictionaries of views
    (polars: Categorical and Enum).
    """
    import pyarrow

    values = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return pyarrow.large_string() if pyarrow.types.is_string_view(values) else kind


def _as_typed(batch: Any, schema: Any) -> Any:
    """A batch with the types of a schema."""
    import pyarrow

    columns = [
        # Cell by cell: pyarrow 17 casts no views.
        column
        if column.type == field.type
        else pyarrow.array(column.to_pylist(), field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def kind_of_table(source: Any) -> Literal["pandas", "pyarrow"] | None:
    """The library of a table, if it is one of the two that this module reads itself."""
    libraries = _libraries(source)
    if "pandas" in libraries and hasattr(source, "columns"):
        return "pandas"
    if "pyarrow" in libraries and hasattr(source, "schema"):
        return "pyarrow"
    return None


def _libraries(source: Any) -> set[str]:
    """The libraries of a value's class and of its bases: a frame of geopandas is one of
    pandas.
    """
    return {kind.__module__.partition(".")[0] for kind in type(source).__mro__}


def kind_of(source: Any) -> Kind:
    """The kind of rows, without importing the library that they are of."""
    table = kind_of_table(source)
    if table is not None:
        return table
    if "numpy" in _libraries(source) and getattr(source, "ndim", 0) == 2:
        return "numpy"
    if isinstance(source, Mapping):
        return "columns"
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return "mappings" if source and isinstance(source[0], Mapping) else "lists"
    raise TypeError(
        f"rows are a table, a list or a mapping of columns, not {type(source).__name__}"
    )


def rows_of_body(body: Any) -> Any:
    """The rows of the body of a prediction, which has them as ``rows`` or as
    ``columns``, lists of one length by name; other values are returned as they are.
    """
    match body:
        case {"rows": rows} if len(body) == 1:
            return rows
        case {"columns": dict() as columns} if len(body) == 1:
            cells = list(columns.values())
            are_lists = all(isinstance(column, list) for column in cells)
            if are_lists and len(set(map(len, cells))) <= 1:
                names = list(columns)
                return [
                    dict(zip(names, row, strict=True))
                    for row in zip(*cells, strict=True)
                ]
    return body


def _named(source: Any, kind: Kind, features: list[str]) -> dict[str, Any]:
    match kind:
        case "pandas":
            if not source.columns.is_unique:
                raise ValueError("a name of a column occurs twice")
            source = _with_plain_days(source)
            columns = {name: source[name] for name in source.columns}
            return (
                _in_order(list(columns.values()), features)
                if _is_unnamed(source.columns)
                else columns
            )
        case "pyarrow":
            if len(set(source.schema.names)) < len(source.schema.names):
                raise ValueError("a name of a column occurs twice")
            return {name: source.column(name) for name in source.schema.names}
        case "numpy":
            return _in_order(source.T.tolist(), features)
        case "columns":
            if any(
                isinstance(column, str) or not isinstance(column, Iterable)
                for column in source.values()
            ):
                raise TypeError(
                    "a mapping has a list of cells for each column; one row is a list of one mapping"
                )
            return {name: list(column) for name, column in source.items()}
        case "mappings":
            names = dict.fromkeys(name for row in source for name in row)
            return {name: [row.get(name) for row in source] for name in names}
        case "lists":
            if not source:
                return {name: [] for name in features}
            return _in_order(
                [list(column) for column in zip(*source, strict=True)], features
            )


def _with_plain_days(frame: Any) -> Any:
    """A frame of pandas whose periods of a day are days, as dates are read. Other
    periods, such as months, are refused by name: Arrow would make numbers of them.
    """
    places = [
        place
        for place, kind in enumerate(frame.dtypes)
        if str(kind).startswith("period[")
    ]
    if not places:
        return frame
    plain = frame.copy(deep=False)
    # by place: a name may be a number, or occur twice
    for place in places:
        column = frame.iloc[:, place]
        is_day = str(column.dtype) == "period[D]"
        plain.isetitem(
            place, column.dt.to_timestamp() if is_day else column.astype(object)
        )
    return plain


def _is_unnamed(names: Any) -> bool:
    """Whether pandas numbered the columns, because a caller named none."""
    return list(names) == list(range(len(names)))


def _in_order(columns: list[Any], features: list[str]) -> dict[str, Any]:
    if len(columns) != len(features):
        raise ValueError(
            f"rows without names of columns need {len(features)} cells, not {len(columns)}"
        )
    return dict(zip(features, columns, strict=True))


def _cells(feature: Feature, column: Any) -> list[Scalar]:
    listed = getattr(column, "to_pylist", None) or getattr(column, "tolist", None)
    return cells(feature, column if listed is None else listed())


def _array(feature: Feature, column: Any) -> Any:
    """A column of pandas or Arrow as it is, if the service reads its type for the
    feature, else its cells.
    """
    import pyarrow

    array = column if hasattr(column, "to_pylist") else _inferred(column)
    if array is None:
        array = pyarrow.nulls(0)
    kinds = pyarrow.types
    kind = array.type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
        array = array.cast(kind)
    if feature["type"] in TYPES_OF_TEXT:
        is_read = kinds.is_string(kind) or kinds.is_large_string(kind)
        if feature["type"] == "date" and not is_read:
            is_time = kinds.is_timestamp(kind) and kind.tz is None
            is_read = is_time or kinds.is_date(kind)
        return (
            array
            if is_read
            else pyarrow.array(_cells(feature, column), pyarrow.string())
        )
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return array
    numbers = [
        None if cell is None else float(cell) for cell in _cells(feature, column)
    ]
    return pyarrow.array(numbers, pyarrow.float64())


def plain(value: Any) -> Any:
    """A value with lists, mappings and scalars of Python alone, for parameters and
    scopes.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | range):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array, or a scalar of NumPy
        return value.tolist()
    return value


def cells(feature: Feature, column: Sequence[Any]) -> list[Scalar]:
    """The cells of a column as the API reads them: ``None``, NaN, NaT and NA are
    missing.

    Numbers of a categorical feature become the text of a declared category where one
    has that value: 1, 1.0 and ``True`` become ``"1"`` if ``"1"`` is declared, and 1 and
    1.0 become ``"1.0"`` if that alone is. Infinities become the bound to which the
    service would clamp them.

    Raises:
        TypeError: a cell has a type that the feature does not take, or is a text that
            is no number. The message names the column and the type.
    """
    convert = _READERS.get(feature["type"], lambda _: _number)(feature)
    try:
        return [None if is_missing(cell) else convert(cell) for cell in column]
    except (TypeError, ValueError) as error:
        raise TypeError(f"column {feature['name']!r}: {error}") from None


def is_missing(cell: Any) -> bool:
    """Whether a cell is ``None``, NaN, NaT or NA."""
    if cell is None or type(cell).__name__ in _MISSING_TYPES:
        return True
    return bool(isinstance(cell, Real | Decimal) and cell != cell) or _is_numpy_nat(
        cell
    )


def _is_numpy_nat(cell: Any) -> bool:
    return type(cell).__name__ in ("datetime64", "timedelta64") and bool(cell != cell)


def _number(cell: Any) -> int | float | None:
    value = _python_scalar(cell)
    if isinstance(value, str):  # as an upload reads it
        return number_of(value)
    if not isinstance(value, Real | Decimal):
        raise TypeError(f"a number is needed, not {type(cell).__name__}")
    number = int(value) if isinstance(value, Integral) else float(value)
    # JSON has no infinity, and Arrow no wider number. The service puts the nearer bound
    # in the place of the largest float, and counts it.
    return min(max(number, -sys.float_info.max), sys.float_info.max)


def _day(_: Feature) -> Callable[[Any], str]:
    def convert(cell: Any) -> str:
        value = cell
        if type(cell).__name__ == "datetime64":
            # NumPy's times have nanoseconds, which Python's have not
            rounded = cell.astype("M8[us]")
            value = rounded.item() if rounded == cell else str(cell)
        if isinstance(value, str):
            return value
        has_zone = isinstance(value, datetime) and value.tzinfo is not None
        if not isinstance(value, date) or has_zone:
            raise TypeError(f"a date is needed, not {type(cell).__name__}")
        # a time of the day stays, and the service refuses it
        return str(value).removesuffix(" 00:00:00")

    return convert


def _category(feature: Feature) -> Callable[[Any], str]:
    declared = frozenset(feature["categories"])

    def convert(cell: Any) -> str:
        value = _python_scalar(cell)
        if isinstance(value, str):
            return str(value)
        if not isinstance(value, Real | Decimal):
            raise TypeError(f"text or a number is needed, not {type(cell).__name__}")
        texts = _texts(value)
        return next((text for text in texts if text in declared), texts[0])

    return convert


_READERS = {"categorical": _category, "date": _day}


def _texts(value: Any) -> list[str]:
    """Texts of a number or a truth value, the usual text first."""
    if isinstance(value, bool):
        return [str(value), str(value).lower(), str(value).upper(), str(int(value))]
    text = _text_of_number(value)
    return [text, f"{text}.0"] if text.removeprefix("-").isdigit() else [text]


def _text_of_number(value: Any) -> str:
    """The text that the service gives a number of Parquet: the shortest decimal, as
    JavaScript writes it, but for infinities. Integers and decimals keep all their
    digits, 2.00 too.
    """
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Decimal) and value.is_finite():
        return format(value if value else value.copy_abs(), "f")
    return text_of_number(float(value))


def _python_scalar(cell: Any) -> Any:
    return cell.item() if hasattr(cell, "item") else cell
