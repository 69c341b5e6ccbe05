"""Tests ingestion against a small model in plain Python, on random declarations, rows,
dialects and damages.
"""

import csv
import gzip
import io
import math
import re
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core import limits
from app.core.errors import InstallationError, RowsInvalid
from grovekeeper_common import suspicions
from grovekeeper_forests.data.sanitiser import sanitise_prediction_rows
from grovekeeper_forests.data.schema import Feature, Label, Schema
from tests.support.uploads import Ingestion, path_of

pytestmark = pytest.mark.property

NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)

# Texts of a declaration have no control characters and no surrogates.
words = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=6)
bounds = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).map(sorted)
whole_bounds = st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000)).map(sorted)
number_texts = st.one_of(
    st.floats().map(repr),
    st.integers(-(10**400), 10**400).map(str),
    st.integers(-1200, 1200).map("{}.0".format),
    st.integers(-1200, 1200).map(" {}\t".format),
    st.sampled_from(
        ["", " ", "nan", "+INF", "-infinity", "1e400", "-1E+400", ".5", "5."]
    ),
    st.from_regex(NUMBER, fullmatch=True),
)
odd_texts = st.text(st.sampled_from("0123456789.eE+-_ ,xinfa\u0663"), max_size=8)


@st.composite
def declarations(draw):
    names = draw(st.lists(words, min_size=2, max_size=5, unique=True))
    features = []
    for name in names[1:]:
        kind, missing = (
            draw(st.sampled_from(["numeric", "integer", "categorical"])),
            draw(st.booleans()),
        )
        if kind == "categorical":
            categories = tuple(
                draw(st.lists(words, min_size=1, max_size=3, unique=True))
            )
            features.append(Feature(name, kind, categories=categories, missing=missing))
        else:
            lower, upper = draw(bounds if kind == "numeric" else whole_bounds)
            features.append(
                Feature(
                    name, kind, lower=float(lower), upper=float(upper), missing=missing
                )
            )
    return Schema(
        tuple(features),
        Label(
            names[0], tuple(draw(st.lists(words, min_size=2, max_size=3, unique=True)))
        ),
    )


def cells_of(feature, *, texts):
    if not feature.is_categorical:
        return texts
    return st.one_of(st.sampled_from(feature.categories), words, st.just(""))


@st.composite
def uploads(draw, texts=number_texts):
    schema = draw(declarations())
    cells = [cells_of(feature, texts=texts) for feature in schema.features]
    label = st.one_of(st.sampled_from(schema.label.classes), words, st.just(""))
    rows = draw(st.lists(st.tuples(*cells, label), max_size=12))
    return schema, rows


def parsed(text):
    """The model's reading of a number cell: a float, ``None`` for an empty cell, or a
    slug.
    """
    text = text.strip(" \t")
    if not text:
        return None
    if not NUMBER.fullmatch(text):
        return "not-a-number"
    value = float(text)
    return None if math.isnan(value) else value


def problem_of(feature, text):
    value = (text or None) if feature.is_categorical else parsed(text)
    if value is None:
        return None if feature.missing else "empty"
    if feature.is_categorical:
        return None
    if value == "not-a-number":
        return value
    return (
        "not-an-integer"
        if feature.type == "integer" and math.isfinite(value) and value % 1
        else None
    )


def image_of(feature, text):
    if feature.is_categorical:
        if not text:
            return feature.missing_code
        return (
            feature.categories.index(text)
            if text in feature.categories
            else feature.other_code
        )
    value = parsed(text)
    return math.nan if value is None else min(max(value, feature.lower), feature.upper)


def expected_problems(schema, rows):
    problems = Counter()
    for row in rows:
        for feature, text in zip(schema.features, row, strict=False):
            problem = problem_of(feature, text)
            if problem:
                problems[feature.name, problem] += 1
    return problems


def with_marks(schema, rows):
    return {
        feature.name
        for row in rows
        for feature, text in zip(schema.features, row, strict=False)
        if text.strip(" ").casefold() in suspicions.MARKS and not feature.missing
    }


def with_commas(schema, rows):
    """Columns of integers with a cell that may have a decimal comma."""
    return {
        feature.name
        for row in rows
        for feature, text in zip(schema.features, row, strict=False)
        if feature.type == "integer" and "," in text
    }


def as_csv(schema, rows, *, order, quoting, end):
    names = [*(feature.name for feature in schema.features), schema.label.name]
    text = io.StringIO()
    writer = csv.writer(text, quoting=quoting, lineterminator=end)
    for row in [names, *rows]:
        writer.writerow([row[index] for index in order])
    return text.getvalue().encode()


@st.composite
def bodies(draw, schema, rows):
    order = draw(st.permutations(range(len(schema.features) + 1)))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    body = as_csv(
        schema,
        rows,
        order=order,
        quoting=quoting,
        end=draw(st.sampled_from(["\n", "\r\n", "\r"])),
    )
    # Short blocks, so that cells, quotes and multi-byte characters cross the ends of
    # blocks.
    longest = max(len(line) for line in re.split(rb"[\r\n]", body))
    return body, draw(st.integers(longest, longest + 40)), draw(st.booleans())


def run(schema, body, *, line_bytes, is_gzip, then):
    with (
        tempfile.TemporaryDirectory() as home,
        mock.patch.object(limits, "MAX_CSV_LINE_BYTES", line_bytes),
    ):
        ingestion = Ingestion(Path(home), schema)
        try:
            report = ingestion(gzip.compress(body) if is_gzip else body, gzip=is_gzip)
        except RowsInvalid as refusal:
            assert ingestion.files() == []
            problems = {}
            for problem in refusal.columns:
                problems.setdefault((problem.name, problem.problem), problem.count)
            return problems
        assert ingestion.files() == ["ep_a.parquet", "ep_a.prints"]
        then(ingestion, report)
        return {}


@settings(max_examples=80, deadline=None)
@given(st.data(), uploads())
def test_uploads_are_stored_or_refused_as_in_the_model(data, upload):
    schema, rows = upload
    body, line_bytes, is_gzip = data.draw(bodies(schema, rows))

    def then(ingestion, report):
        kept = [row for row in rows if row[-1] in schema.label.classes]
        read = ingestion.read()
        assert report.n_rows == len(rows)
        assert read.features.n_rows == len(kept)
        assert read.y.tolist() == [schema.label.classes.index(row[-1]) for row in kept]
        for index, (feature, column) in enumerate(
            zip(schema.features, read.features.columns, strict=True)
        ):
            np.testing.assert_array_equal(
                column, [image_of(feature, row[index]) for row in kept]
            )
        assert [counts.unknown for counts in report.columns][-1] == len(rows) - len(
            kept
        )

    assert run(
        schema, body, line_bytes=line_bytes, is_gzip=is_gzip, then=then
    ) == expected_problems(schema, rows)


@settings(max_examples=100, deadline=None)
@given(st.data(), uploads())
def test_the_report_counts_mapped_cells(data, upload):
    schema, rows = upload
    body, line_bytes, is_gzip = data.draw(bodies(schema, rows))

    def then(ingestion, report):
        *of_features, _ = report.columns  # the label is the last column
        for index, (feature, counts) in enumerate(
            zip(schema.features, of_features, strict=True)
        ):
            texts = [row[index] for row in rows]
            if feature.is_categorical:
                unknown = sum(
                    bool(text) and text not in feature.categories for text in texts
                )
                assert (counts.clamped, counts.missing, counts.unknown) == (
                    0,
                    texts.count(""),
                    unknown,
                )
            else:
                values = [value for value in map(parsed, texts) if value is not None]
                clamped = sum(
                    not feature.lower <= value <= feature.upper for value in values
                )
                assert (counts.clamped, counts.missing, counts.unknown) == (
                    clamped,
                    len(texts) - len(values),
                    0,
                )

    run(schema, body, line_bytes=line_bytes, is_gzip=is_gzip, then=then)


@settings(max_examples=80, deadline=None)
@given(st.data(), uploads(texts=odd_texts))
def test_every_cell_that_is_not_a_number_is_counted(data, upload):
    schema, rows = upload
    body, line_bytes, is_gzip = data.draw(bodies(schema, rows))
    problems = run(
        schema, body, line_bytes=line_bytes, is_gzip=is_gzip, then=lambda *_: None
    )
    expected = expected_problems(schema, rows)
    # marks such as a point are also looked at as missing cells, which some columns refuse
    of_marks = {(name, "empty") for name in with_marks(schema, rows)}
    # with decimal commas, which are suspected and named, a number may be no integer
    of_commas = {(name, "not-an-integer") for name in with_commas(schema, rows)}
    assert expected.keys() <= problems.keys()
    assert problems.keys() <= expected.keys() | of_marks | of_commas
    assert all(problems[cause] == count for cause, count in expected.items())


@settings(max_examples=100, deadline=None)
@given(uploads(), st.binary(max_size=60))
def test_any_bytes_are_stored_or_refused_with_a_named_error(upload, tail):
    schema, rows = upload
    order = range(len(schema.features) + 1)
    body = as_csv(schema, rows, order=order, quoting=csv.QUOTE_MINIMAL, end="\n") + tail
    run(
        schema,
        body,
        line_bytes=10_000,
        is_gzip=False,
        then=lambda ingestion, _: ingestion.read(),
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**20), st.integers(1, 255))
def test_a_damaged_file_is_refused(position, flips):
    feature = Feature("x", "integer", lower=0, upper=9)
    category = Feature("c", "categorical", categories=("a", "b"))
    schema = Schema((feature, category), Label("y", ("0", "1")))
    body = b"x,c,y\n" + b"".join(
        b"%d,%s,%d\n" % (index % 10, b"ab?"[index % 3 :][:1], index % 2)
        for index in range(60)
    )

    def then(ingestion, _):
        content = bytearray(path_of(ingestion.destination).read_bytes())
        content[position % len(content)] ^= flips
        path_of(ingestion.destination).write_bytes(content)
        with pytest.raises(InstallationError):
            ingestion.read()

    assert run(schema, body, line_bytes=10_000, is_gzip=False, then=then) == {}


@settings(max_examples=100, deadline=None)
@given(st.data(), declarations())
def test_prediction_and_ingestion_map_a_value_alike(data, schema):
    texts = [
        data.draw(cells_of(feature, texts=number_texts)) for feature in schema.features
    ]
    if any(
        problem_of(feature, text)
        for feature, text in zip(schema.features, texts, strict=True)
    ):
        return
    row = {}
    for feature, text in zip(schema.features, texts, strict=True):
        row[feature.name] = (text or None) if feature.is_categorical else parsed(text)
    encoded = sanitise_prediction_rows(schema, [row])
    for feature, text, column in zip(
        schema.features, texts, encoded.columns, strict=True
    ):
        np.testing.assert_array_equal(column, [image_of(feature, text)])
