"""Declarations that break a rule."""

from collections.abc import Iterator
from typing import Any

from tests.server.refused.case import CANARY, MISSING, Refused, changed
from tests.support.server import declaration


def declarations() -> Iterator[Refused]:
    full = declaration(
        partitions=[{"name": "shard", "kind": "hash", "cells": 4}],
        privacy_unit={"max_rows": 1},
    )
    long = CANARY + "x" * 300
    rules: list[tuple[str, object, str, str]] = [
        ("/name", "", "/name", "malformed"),
        ("/name", "x" * 65, "/name", "too-long"),
        ("/name", "..", "/name", "malformed"),
        ("/name", f"{CANARY} space", "/name", "malformed"),
        ("/name", f"{CANARY}\x00", "/name", "malformed"),
        ("/name", "naïve", "/name", "malformed"),
        ("/name", "０５", "/name", "malformed"),
        ("/name", None, "/name", "not-a-string"),
        ("/name", 5, "/name", "not-a-string"),
        ("/name", MISSING, "/name", "required"),
        ("/budget", MISSING, "/budget", "required"),
        ("/budget", None, "/budget", "not-an-object"),
        ("/budget", CANARY, "/budget", "not-an-object"),
        ("/budget/accountant", CANARY, "/budget/accountant", "unknown-choice"),
        ("/budget/delta", "1e-6", "/budget", "delta-not-for-pure"),
        (
            "/budget",
            {"accountant": "zcdp", "epsilon": "1"},
            "/budget",
            "delta-required",
        ),
        (
            "/budget",
            {"accountant": "gdp", "epsilon": "1", "delta": "1"},
            "/budget",
            "delta-not-below-one",
        ),
        (
            "/budget",
            {"accountant": "gdp", "epsilon": "1", "delta": "0"},
            "/budget/delta",
            "not-positive",
        ),
        (
            "/budget",
            {"accountant": "gdp", "epsilon": "1000001", "delta": "1e-6"},
            "/budget/epsilon",
            "too-large",
        ),
        (
            "/budget",
            {"accountant": "zcdp", "epsilon": "1e-9", "delta": "1e-18"},
            "/budget/epsilon",
            "too-small",
        ),
        ("/budget/epsilon", "1000000001", "/budget/epsilon", "too-large"),
        ("/budget/epsilon", "1e-10", "/budget/epsilon", "too-small"),
        ("/budget/epsilon", MISSING, "/budget/epsilon", "required"),
        ("/schema", MISSING, "/schema", "required"),
        ("/schema/features", [], "/schema/features", "too-few"),
        ("/schema/features", {}, "/schema/features", "not-a-list"),
        ("/schema/features/0", CANARY, "/schema/features/0", "not-an-object"),
        ("/schema/features", _numbers(2_001), "/schema/features", "too-many"),
        (
            "/schema/features/0/type",
            CANARY,
            "/schema/features/0/type",
            "unknown-choice",
        ),
        ("/schema/features/0/name", "", "/schema/features/0/name", "empty"),
        ("/schema/features/0/name", long[:129], "/schema/features/0/name", "too-long"),
        (
            "/schema/features/0/name",
            f"{CANARY}\x00",
            "/schema/features/0/name",
            "control-character",
        ),
        (
            "/schema/features/0/name",
            f"{CANARY}\u202e",
            "/schema/features/0/name",
            "control-character",
        ),
        ("/schema/features/0/name", "\u200b", "/schema/features/0/name", "not-visible"),
        (
            "/schema/features/0/name",
            "sex\u200b",
            "/schema/features/2/name",
            "not-distinct",
        ),
        ("/schema/features/0/name", "sex", "/schema/features/2/name", "not-distinct"),
        ("/schema/features/0/name", "income", "/schema/label/name", "not-distinct"),
        ("/schema/features/0/lower", 121, "/schema/features/0/lower", "above-upper"),
        ("/schema/features/0/lower", 0.5, "/schema/features/0/lower", "not-an-integer"),
        ("/schema/features/0/lower", "0", "/schema/features/0/lower", "not-a-number"),
        ("/schema/features/0/lower", True, "/schema/features/0/lower", "not-a-number"),
        ("/schema/features/0/lower", MISSING, "/schema/features/0/lower", "missing"),
        ("/schema/features/0/upper", None, "/schema/features/0/upper", "missing"),
        ("/schema/features/0/upper", 10**400, "/schema/features/0/upper", "not-finite"),
        (
            "/schema/features/0/categories",
            ["a"],
            "/schema/features/0/categories",
            "not-for-numbers",
        ),
        (
            "/schema/features/0/ordered",
            True,
            "/schema/features/0/ordered",
            "not-for-numbers",
        ),
        (
            "/schema/features/0/missing",
            "no",
            "/schema/features/0/missing",
            "not-a-boolean",
        ),
        (
            "/schema/features/0/bounds",
            CANARY,
            "/schema/features/0/bounds",
            "unknown-choice",
        ),
        (
            "/schema/features/2/categories",
            [],
            "/schema/features/2/categories",
            "too-few",
        ),
        (
            "/schema/features/2/categories",
            _names(256),
            "/schema/features/2/categories",
            "too-many",
        ),
        (
            "/schema/features/2/categories",
            [CANARY, CANARY],
            "/schema/features/2/categories",
            "not-distinct",
        ),
        (
            "/schema/features/2/categories",
            ["a", ""],
            "/schema/features/2/categories",
            "empty",
        ),
        (
            "/schema/features/2/categories",
            [long],
            "/schema/features/2/categories/0",
            "too-long",
        ),
        (
            "/schema/features/2/categories",
            [f"{CANARY}\n"],
            "/schema/features/2/categories",
            "control-character",
        ),
        (
            "/schema/features/2/categories",
            [f"{CANARY}\u2066"],
            "/schema/features/2/categories",
            "control-character",
        ),
        (
            "/schema/features/2/categories",
            ["a", "\u200b"],
            "/schema/features/2/categories",
            "not-visible",
        ),
        (
            "/schema/features/2/categories",
            ["\u00e9", "e\u0301"],
            "/schema/features/2/categories",
            "not-distinct",
        ),
        (
            "/schema/features/2/categories",
            ["a", 1],
            "/schema/features/2/categories/1",
            "not-a-string",
        ),
        (
            "/schema/features/2/categories",
            None,
            "/schema/features/2/categories",
            "too-few",
        ),
        (
            "/schema/features/2/lower",
            0,
            "/schema/features/2/lower",
            "not-for-categories",
        ),
        ("/schema/label/name", "", "/schema/label/name", "empty"),
        ("/schema/label/classes", ["one"], "/schema/label/classes", "too-few"),
        ("/schema/label/classes", _names(1_001), "/schema/label/classes", "too-many"),
        ("/schema/label/classes", ["a", "a"], "/schema/label/classes", "not-distinct"),
        ("/schema/label/name", "\ufeff", "/schema/label/name", "not-visible"),
        (
            "/schema/label/classes",
            ["a", "a\u2060"],
            "/schema/label/classes",
            "not-distinct",
        ),
        ("/schema/label/classes", [0, 1], "/schema/label/classes/0", "not-a-string"),
        ("/privacy_unit/max_rows", 0, "/privacy_unit/max_rows", "too-small"),
        ("/privacy_unit/max_rows", 2, "/privacy_unit/max_rows", "needs-a-unit-column"),
        ("/privacy_unit/column", "age", "/privacy_unit/column", "not-distinct"),
        ("/privacy_unit/column", "income", "/privacy_unit/column", "not-distinct"),
        ("/privacy_unit/column", "", "/privacy_unit/column", "empty"),
        (
            "/privacy_unit/column",
            f"{CANARY}\n",
            "/privacy_unit/column",
            "control-character",
        ),
        (
            "/privacy_unit/column",
            f"{CANARY}\u2028",
            "/privacy_unit/column",
            "control-character",
        ),
        ("/privacy_unit/max_rows", 10**30, "/privacy_unit/max_rows", "too-large"),
        ("/protects", CANARY, "/protects", "unknown-choice"),
        ("/visibility", CANARY, "/visibility", "every-dataset-is-private"),
        ("/visibility", "public", "/visibility", "every-dataset-is-private"),
        ("/population", f"{CANARY} x", "/population", "malformed"),
        ("/public_size", 0, "/public_size", "too-small"),
        ("/public_size", -1, "/public_size", "too-small"),
        ("/public_size", 1.5, "/public_size", "not-an-integer"),
        ("/public_size", 10**40, "/public_size", "too-large"),
        ("/public_size", "200", "/public_size", "not-an-integer"),
        ("/partitions", None, "/partitions", "not-a-list"),
        ("/partitions/0/name", "", "/partitions/0/name", "malformed"),
        ("/partitions/0/cells", 0, "/partitions/0/cells", "too-small"),
        ("/partitions/0/cells", 1_025, "/partitions/0/cells", "too-large"),
        ("/partitions/0/cells", MISSING, "/partitions/0/cells", "required"),
        ("/partitions/0/column", "sex", "/partitions/0/column", "not-for-hash"),
        ("/partitions/0/kind", CANARY, "/partitions/0/kind", "unknown-choice"),
        ("/partitions/0/kind", "epoch", "/partitions/0/cells", "not-for-epoch"),
        *_partitions(full["partitions"][0]),
        (f"/{CANARY}", 1, "", "unknown-field"),
        (f"/schema/{CANARY}", 1, "/schema", "unknown-field"),
        (f"/schema/features/1/{CANARY}", 1, "/schema/features/1", "unknown-field"),
        (f"/schema/label/{CANARY}", 1, "/schema/label", "unknown-field"),
        (f"/budget/{CANARY}", 1, "/budget", "unknown-field"),
        (f"/privacy_unit/{CANARY}", 1, "/privacy_unit", "unknown-field"),
        (f"/partitions/0/{CANARY}", 1, "/partitions/0", "unknown-field"),
    ]
    for index, (pointer, value, at, problem) in enumerate(rules):
        body = {"json": changed(full, pointer, value)}
        yield Refused(
            f"declare-{index}{at or '/'}-{problem}",
            "POST",
            "/datasets",
            "invalid-request",
            body,
            at,
            problem,
        )
    set_aside = {
        "accountant": "zcdp",
        "epsilon": "1",
        "delta": "1e-6",
        "delta_set_aside": "2.5e-7",
    }
    body = {"json": {"name": f"{CANARY}-people", "budget": set_aside}}
    yield Refused("population-later", "POST", "/populations", "not-supported", body)
    opened = {
        "name": f"{CANARY}-people",
        "budget": {"accountant": "pure", "epsilon": "1"},
    }
    for pointer, value, at, problem in [
        ("/name", "", "/name", "malformed"),
        ("/budget/epsilon", "0", "/budget/epsilon", "not-positive"),
        ("/budget/epsilon", "1e10", "/budget/epsilon", "too-large"),
        ("/budget/epsilon", "1e-12", "/budget/epsilon", "too-small"),
        ("/budget/delta", "1e-6", "/budget", "delta-not-for-pure"),
        (f"/{CANARY}", 1, "", "unknown-field"),
    ]:
        body = {"json": changed(opened, pointer, value)}
        yield Refused(
            f"population{at}-{problem}",
            "POST",
            "/populations",
            "invalid-request",
            body,
            at,
            problem,
        )
    erasing = "/datasets/{dataset}/erasures"
    for unit, at, problem in [
        ({"unit": CANARY}, "/unit", "no-unit-column"),
        ({"unit": ""}, "/unit", "too-short"),
        ({"unit": 7}, "/unit", "not-a-string"),
        ({}, "/unit", "required"),
        ({"unit": "x", CANARY: 1}, "", "unknown-field"),
    ]:
        yield Refused(
            f"erase{at}-{problem}",
            "POST",
            erasing,
            "invalid-request",
            {"json": unit},
            at,
            problem,
        )
    joining = "/datasets/{dataset}/population"
    named = {"json": {"population": f"{CANARY} "}}
    yield Refused(
        "join-name",
        "PUT",
        joining,
        "invalid-request",
        named,
        "/population",
        "malformed",
    )
    taken = {"json": declaration(name="{name}")}
    yield Refused("declare-taken", "POST", "/datasets", "name-taken", taken)


def _partitions(shard: dict[str, Any]) -> Iterator[tuple[str, object, str, str]]:
    """Lists of partitions, each with the position and the name of the rule that it
    breaks.
    """
    region = {
        "name": "region",
        "kind": "column",
        "column": "land",
        "categories": ["EU", "US"],
    }
    batch = {"name": "batch", "kind": "epoch", "how": "one per month"}
    sex = {"name": "sex", "kind": "column", "column": "sex"}
    all_sized = [{"cell": cell, "rows": 9} for cell in ("EU", "US", "OTHER", "MISSING")]
    broken: list[tuple[list[dict[str, Any]], str, str]] = [
        ([shard | {"name": str(index)} for index in range(7)], "", "too-many"),
        ([region, shard | {"name": "region"}], "/1/name", "not-distinct"),
        ([region | {"column": None}], "/0/column", "required"),
        ([region | {"cells": 3}], "/0/cells", "not-for-column"),
        ([region | {"how": CANARY}], "/0/how", "not-for-column"),
        ([region | {"column": ""}], "/0/column", "empty"),
        ([region | {"column": f"{CANARY}\x00"}], "/0/column", "control-character"),
        ([region | {"column": "\u200b"}], "/0/column", "not-visible"),
        (
            [region | {"categories": ["EU", "E\u200bU"]}],
            "/0/categories",
            "not-distinct",
        ),
        ([region | {"column": "income"}], "/0/column", "not-distinct"),
        ([region, region | {"name": "again"}], "/1/column", "not-distinct"),
        ([region | {"categories": None}], "/0/categories", "required"),
        ([region | {"categories": []}], "/0/categories", "too-few"),
        ([region | {"categories": _names(256)}], "/0/categories", "too-many"),
        ([region | {"categories": [CANARY, CANARY]}], "/0/categories", "not-distinct"),
        ([region | {"categories": ["EU", "OTHER"]}], "/0/categories", "reserved-cell"),
        ([region | {"categories": ["MISSING"]}], "/0/categories", "reserved-cell"),
        ([region | {"sizes": []}], "/0/sizes", "not-the-cells"),
        ([region | {"sizes": all_sized[1:]}], "/0/sizes", "not-the-cells"),
        (
            [region | {"sizes": [*all_sized, {"cell": CANARY, "rows": 1}]}],
            "/0/sizes",
            "not-the-cells",
        ),
        (
            [region | {"sizes": [size | {"rows": 0} for size in all_sized]}],
            "/0/sizes",
            "not-positive",
        ),
        (
            [region | {"sizes": [{"cell": "EU", "rows": -1}]}],
            "/0/sizes/0/rows",
            "too-small",
        ),
        (
            [region | {"sizes": [{"cell": "EU", "rows": 1.5}]}],
            "/0/sizes/0/rows",
            "not-an-integer",
        ),
        ([sex | {"categories": ["Female"]}], "/0/categories", "not-for-a-feature"),
        ([sex | {"column": "age"}], "/0/column", "not-categorical"),
        ([batch | {"how": None}], "/0/how", "required"),
        ([batch | {"how": ""}], "/0/how", "empty"),
        ([batch | {"how": CANARY + "x" * 300}], "/0/how", "too-long"),
        ([batch | {"column": "sex"}], "/0/column", "not-for-epoch"),
        ([batch, batch | {"name": "again"}], "/1/kind", "not-distinct"),
    ]
    for value, at, problem in broken:
        yield "/partitions", value, f"/partitions{at}", problem


def _numbers(count: int) -> list[dict[str, Any]]:
    return [
        {"name": f"x{index}", "type": "numeric", "lower": 0, "upper": 1}
        for index in range(count)
    ]


def _names(count: int) -> list[str]:
    return [f"{CANARY}-{index}" for index in range(count)]
