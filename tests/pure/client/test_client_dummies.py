"""Dummy rows fit every declaration: the reader of uploads takes each of their files
without a problem.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.services.datasets.check_file import OwnersFile, check_file
from app.services.datasets.declaration_rules import read_partitions
from app.wire.datasets import DatasetIn
from grovekeeper_client.dummies import DummyRows, declaration_like, not_alike
from grovekeeper_client.uploads import headers_of
from grovekeeper_common.dummy_rows import NOTE
from grovekeeper_forests.data.schema import Schema
from tests.support.chance import examples

ENDINGS = ["csv", "parquet", "arrow", "feather"]
texts = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp", "Mn")),
    min_size=1,
    max_size=6,
)
marks = st.sampled_from(["NA", ".", "\\N", "unbekannt", "unit-1"])
values = st.lists(st.one_of(texts, marks), min_size=2, max_size=4, unique=True)
numbers = st.one_of(
    st.sampled_from([-1.7e308, -(2.0**53), -1.0, 0.0, 0.1, 3.0, 2.0**53, 1.7e308]),
    st.floats(-1e6, 1e6),
)


@st.composite
def declarations(draw: Any) -> dict[str, Any]:
    names = draw(st.lists(texts, min_size=5, max_size=5, unique_by=str.casefold))
    lower, upper = sorted((draw(numbers), draw(numbers)))
    integers = {"lower": float(int(lower)), "upper": float(int(upper))}
    missing = [draw(st.booleans()) for _ in range(3)]
    features = [
        {"type": "numeric", "lower": lower, "upper": upper, "missing": missing[0]},
        {"type": "integer", **integers, "missing": missing[1]},
        {"type": "categorical", "categories": draw(values), "missing": missing[2]},
    ]
    unit: dict[str, Any] = {"column": None, "max_rows": 1}
    if draw(st.booleans()):
        form = draw(st.sampled_from(["text", "integer"]))
        unit = {"column": "the unit", "form": form, "max_rows": draw(st.integers(1, 5))}
    partitions = [
        {"name": "shard", "kind": "hash", "cells": 4},
        {"name": "own", "kind": "column", "column": names[4]},
        {"name": "by", "kind": "column", "column": names[2]},
        {"name": "batch", "kind": "epoch", "how": "by month"},
    ]
    partitions[1]["categories"] = draw(st.lists(texts, min_size=1, unique=True))
    label: dict[str, Any] = {"name": names[3], "classes": draw(values)}
    if draw(st.booleans()):
        points = st.lists(numbers, min_size=1, max_size=4, unique=True)
        label = {"name": names[3], "cuts": sorted(draw(points))}
    elif draw(st.booleans()):
        ends = draw(st.lists(numbers, min_size=2, max_size=2, unique=True))
        lower, upper = sorted(ends)
        label = {"name": names[3], "type": "number", "lower": lower, "upper": upper}
    labels: dict[str, Any] = {"label": label}
    if draw(st.booleans()):
        second = {"name": "another label", "cuts": [draw(numbers)]}
        labels = {"labels": [label, second]}
    return {
        "name": "dummies",
        "schema": {
            "features": [
                {"name": name, **feature}
                for name, feature in zip(names[:3], features, strict=True)
            ],
            **labels,
            "missing_values": draw(st.lists(marks, max_size=3, unique=True)),
        },
        "budget": {"accountant": "pure", "epsilon": "3"},
        "privacy_unit": unit,
        "partitions": partitions,
    }


def facts_of(declaration: dict[str, Any]) -> dict[str, Any]:
    """What ``GET /datasets/{id}`` answers about a declaration."""
    declared = DatasetIn.model_validate(declaration)
    schema = Schema.from_json(declared.schema_.model_dump(exclude_none=True))
    partitions = read_partitions(
        declared.partitions, schema, unit_column=declared.privacy_unit.column
    )
    return json.loads(
        json.dumps(
            {
                "name": declared.name,
                "schema": schema.to_json(),
                "privacy_unit": declared.privacy_unit.model_dump(),
                "partitions": partitions.to_json(),
                "account": {"accountant": "pure", "cap": "3"},
                "protects": "row",
                "public_size": None,
            }
        )
    )


def checked(declaration: dict[str, Any], file: Path) -> dict[str, Any]:
    owners = OwnersFile(file, headers_of(file), {})
    return check_file(json.dumps(declaration).encode(), owners)


@settings(max_examples=examples(40), deadline=None)
@given(declarations(), st.integers(0, 60), st.sampled_from(ENDINGS), st.integers())
def test_every_declaration_accepts_its_dummy_rows(
    tmp_path_factory: pytest.TempPathFactory,
    declaration: dict[str, Any],
    n_rows: int,
    ending: str,
    seed: int,
) -> None:
    file = tmp_path_factory.mktemp("dummies") / f"rows.{ending}"
    facts = facts_of(declaration)
    DummyRows(facts, n_rows, seed=seed).write(file)
    answer = checked(declaration_like(facts, {}), file)
    assert [kind["problem"] for kind in answer["problems"]] == ["empty"] * (not n_rows)
    assert {cells["problem"] for cells in answer["mapped"]} <= {"missing"}
    assert not any(answer["dropped"].values())


DECLARATION = {
    "name": "visits",
    "schema": {
        "features": [
            {"name": "age", "type": "integer", "lower": 0, "upper": 120},
            {
                "name": "cm",
                "type": "numeric",
                "lower": 40,
                "upper": 220,
                "missing": True,
            },
            {
                "name": "land",
                "type": "categorical",
                "categories": ["NA", "CH"],
                "missing": True,
            },
        ],
        "label": {"name": "ill", "classes": ["no", "yes"]},
        "missing_values": ["NA", "."],
    },
    "budget": {"accountant": "pure", "epsilon": "3"},
    "privacy_unit": {"column": "patient", "max_rows": 3},
    "partitions": [
        {"name": "site", "kind": "column", "column": "site", "categories": ["a", "b"]}
    ],
}


def test_every_declared_value_and_every_number_of_rows_of_a_unit_occurs(
    tmp_path: Path,
) -> None:
    frame = DummyRows(facts_of(DECLARATION), 2000, seed=0).frame()
    assert list(frame) == ["age", "cm", "land", "ill", "site", "patient"]
    assert set(frame["age"]) == set(range(121))
    assert frame["cm"].between(40, 220).sum() + frame["cm"].isna().sum() == 2000
    assert 150 < frame["cm"].isna().sum() < 250
    assert not frame["ill"].isna().any()
    for name, categories in (
        ("land", {"NA", "CH"}),
        ("ill", {"no", "yes"}),
        ("site", {"a", "b"}),
    ):
        assert set(frame[name].dropna()) == categories
    assert set(frame["patient"].value_counts()) == {1, 2, 3}
    assert frame.attrs["note"] == NOTE

    file = tmp_path / "rows.csv"
    DummyRows(facts_of(DECLARATION), 2000, seed=0).write(file)
    cells = pd.read_csv(file, keep_default_na=False, dtype=str)
    assert (cells["cm"] == "NA").sum() == frame["cm"].isna().sum()
    assert (cells["land"] == ".").sum() == frame["land"].isna().sum(), "NA is a country"


@pytest.mark.parametrize(
    ("cuts", "is_whole"), [([3, 7], True), ([0.5, 1], False), ([-2], True)]
)
def test_every_class_of_a_label_that_is_cut_occurs(
    cuts: list[float], is_whole: bool
) -> None:
    label = {"name": "los_days", "cuts": cuts}
    schema = {**DECLARATION["schema"], "label": label}
    facts = facts_of({**DECLARATION, "schema": schema})
    frame = DummyRows(facts, 2000, seed=0).frame()
    classes = np.searchsorted(cuts, frame["los_days"], side="right")
    counts = np.bincount(classes, minlength=len(cuts) + 1)
    assert counts.min() > 500
    assert (frame["los_days"].dtype == np.int64) is is_whole
    assert bool(frame["los_days"].min() >= 0) is (cuts[0] > 0)


def test_a_seed_repeats_the_rows_and_uploads_do_not_matter() -> None:
    facts = facts_of(DECLARATION)
    rows = DummyRows(facts, 50, seed=7).columns
    uploaded = {**facts, "epochs": [{"epoch": "ep_1"}]}
    assert DummyRows(uploaded, 50, seed=7).columns == rows
    assert DummyRows(facts, 50, seed=8).columns != rows


def test_files_say_that_the_rows_mean_nothing(tmp_path: Path) -> None:
    rows = DummyRows(facts_of(DECLARATION), 5, seed=0)
    rows.write(tmp_path / "rows.parquet")
    metadata = pq.read_schema(tmp_path / "rows.parquet").metadata
    assert metadata[b"note"].decode() == NOTE
    with pytest.raises(ValueError, match=r"ends in \.csv, \.parquet"):
        rows.write(tmp_path / "rows.xlsx")


def test_a_file_gets_its_name_when_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = DummyRows(facts_of(DECLARATION), 5, seed=0)
    file = tmp_path / "rows.csv"

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("grovekeeper_common.dummy_rows.write", full)
    with pytest.raises(OSError, match="no space"):
        rows.write(file)
    assert not list(tmp_path.iterdir())


def test_what_a_like_declaration_lacks_is_said() -> None:
    facts = {**facts_of(DECLARATION), "population": None}
    assert not not_alike(facts)
    joined = {**facts, "population": "pop_1"}
    assert ["population" in sentence for sentence in not_alike(joined)] == [True]
    account = {"accountant": "zcdp", "unit": "rho", "cap": "0.0119"}
    (sentence,) = not_alike({**facts, "account": account})
    assert "now 0.0119 rho" in sentence
