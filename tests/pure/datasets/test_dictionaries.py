"""Drafts of declarations from data dictionaries in two forms, and the list of what they
lack.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from app.core import limits
from app.core.errors import InvalidRequest
from app.wire.datasets import DatasetIn
from grovekeeper_common import dictionaries
from grovekeeper_common.dictionaries import Draft, NotADictionary, draft_declaration
from grovekeeper_forests.data.schema import (
    BOUNDS_NOTES,
    Schema,
    missing_values_problem,
)

FRICTIONLESS: dict[str, Any] = {
    "name": "census",
    "fields": [
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120, "required": True}},
        {"name": "hours", "type": "number", "constraints": {"minimum": "0", "exclusiveMaximum": 100.5}},
        {"name": "children", "type": "integer", "constraints": {"exclusiveMinimum": -1}},
        {"name": "sector", "type": "string", "constraints": {"enum": ["private", "public", "", None]}},
        {"name": "grade", "type": "integer", "categories": [{"value": 1, "label": "low"}, {"value": 2}],
         "categoriesOrdered": True},
        {"name": "smokes", "type": "boolean"},
        {"name": "born", "type": "date", "constraints": {"minimum": "1900-01-01", "maximum": "soon"}},
        {"name": "seen", "type": "datetime"},
        {"name": "income", "type": "boolean", "trueValues": ["high"], "falseValues": ["low"]},
    ],
    "missingValues": ["", "NA"],
}  # fmt: skip
FEATURES = {
    "age": {
        "type": "integer",
        "lower": 0,
        "upper": 120,
        "missing": False,
        "bounds": "documented",
    },
    "hours": {
        "type": "numeric",
        "lower": 0,
        "upper": 100.5,
        "missing": True,
        "bounds": "documented",
    },
    "children": {
        "type": "integer",
        "lower": 0,
        "upper": None,
        "missing": True,
        "bounds": "documented",
    },
    "sector": {
        "type": "categorical",
        "categories": ["private", "public"],
        "ordered": False,
        "missing": True,
    },
    "smokes": {
        "type": "categorical",
        "categories": None,
        "ordered": False,
        "missing": True,
    },
    "born": {
        "type": "date",
        "lower": "1900-01-01",
        "upper": None,
        "missing": True,
        "bounds": "documented",
    },
    "seen": {"type": None, "missing": True},
}


def _draft(dictionary: object, **options: Any) -> Draft:
    return draft_declaration(json.dumps(dictionary).encode(), **options)


def _features(draft: Draft) -> dict[str, dict[str, Any]]:
    features = [dict(feature) for feature in draft.declaration["schema"]["features"]]
    return {feature.pop("name"): feature for feature in features}


def _nulls(value: object, at: str = "") -> Iterator[str]:
    if value is None:
        yield at
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, member in members:
        yield from _nulls(member, f"{at}/{name}")


def test_a_dictionary_becomes_a_draft() -> None:
    draft = _draft(FRICTIONLESS, labels={"income": ()})
    assert draft.declaration["name"] == "census"
    assert draft.declaration["schema"]["label"] == {
        "name": "income",
        "classes": ["low", "high"],
    }
    features = _features(draft)
    assert list(features) == [
        "age",
        "hours",
        "children",
        "sector",
        "grade",
        "smokes",
        "born",
        "seen",
    ]
    assert {name: features[name] for name in FEATURES} == FEATURES


def test_categories_with_labels_keep_their_order() -> None:
    grade = _features(_draft(FRICTIONLESS))["grade"]
    assert grade == {
        "type": "categorical",
        "categories": ["1", "2"],
        "ordered": True,
        "missing": True,
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"labels": {"income": ()}},
        {"labels": {"age": ()}, "unit": "born", "name": "x"},
    ],
)
def test_every_null_is_listed_and_the_service_refuses_nothing_else(
    options: dict[str, Any],
) -> None:
    draft = _draft(FRICTIONLESS, **options)
    lacking = [remark.at for remark in draft.lacking]
    assert sorted(lacking) == sorted(_nulls(draft.declaration))
    assert _refused(draft.declaration) <= set(lacking)


def _refused(declaration: dict[str, Any]) -> set[str]:
    """The places that the service would refuse."""
    try:
        read = DatasetIn.model_validate(declaration)
        Schema.from_json(read.schema_.model_dump(exclude_none=True))
    except ValidationError as error:
        return {
            "".join(f"/{part}" for part in problem["loc"]) for problem in error.errors()
        }
    except InvalidRequest as error:
        return {problem.at for problem in error.errors}
    return set()


def test_a_complete_dictionary_lacks_a_budget_alone_and_a_declaration_lacks_nothing() -> (
    None
):
    schema = {
        "features": [
            {
                "name": "age",
                "type": "integer",
                "lower": 0,
                "upper": 120,
                "description": "in years",
            }
        ],
        "label": {"name": "income", "classes": ["low", "high"]},
    }
    draft = _draft(schema, name="census")
    assert [remark.at for remark in draft.lacking] == ["/budget"]
    budget = {"accountant": "pure", "epsilon": "3"}
    whole = {"name": "census", "schema": schema, "budget": budget, "public_size": 1000}
    complete = _draft(whole)
    assert complete.lacking == ()
    assert _refused(complete.declaration) == set()
    assert (complete.declaration["budget"], complete.declaration["public_size"]) == (
        budget,
        1000,
    )


def test_a_unit_column_is_no_feature_and_its_number_of_rows_is_asked_for() -> None:
    draft = _draft(FRICTIONLESS, unit="born")
    assert "born" not in _features(draft)
    assert draft.declaration["privacy_unit"] == {"column": "born", "max_rows": None}
    assert "/privacy_unit/max_rows" in {remark.at for remark in draft.lacking}


def test_marks_of_missing_values_are_declared_and_to_be_confirmed() -> None:
    draft = _draft(FRICTIONLESS, labels={"income": ()})
    assert draft.declaration["schema"]["missing_values"] == ["NA"]
    (remark,) = draft.to_confirm
    assert remark.at == "/schema/missing_values"
    assert "NA" in remark.text


@pytest.mark.parametrize(
    "dictionary",
    [
        {"fields": [], "missingValues": ["", " NA", "NA", "-99", "1e3", -9, "nan"]},
        {"features": [], "missing_values": ["", " NA", "NA", "-99", "1e3", -9, "nan"]},
    ],
)
def test_numbers_for_missing_values_are_named_and_not_declared(
    dictionary: dict[str, object],
) -> None:
    draft = _draft(dictionary)
    declared = draft.declaration["schema"]["missing_values"]
    assert declared == ["NA", "nan"]
    assert missing_values_problem(declared) is None
    assert "-99, 1e3, -9" in draft.to_confirm[-1].text


def test_missing_values_may_have_labels_and_stand_beside_a_field() -> None:
    """As the second version of Frictionless writes them."""
    marks = [{"value": "n/k", "label": "not known"}, {"value": "-9"}]
    field = {"name": "sex", "missingValues": ["unknown"]}
    draft = _draft({"fields": [field], "missingValues": ["", *marks]})
    assert draft.declaration["schema"]["missing_values"] == ["n/k", "unknown"]
    in_every_column, left_out = draft.to_confirm
    assert "in every column: n/k, unknown" in in_every_column.text
    assert "-9" in left_out.text


@pytest.mark.parametrize("form", [None, "default", "%Y-%m-%d"])
def test_dates_of_another_form_are_to_be_confirmed(form: str | None) -> None:
    born = {"name": "born", "type": "date", "format": "%d.%m.%Y"}
    (remark,) = _draft({"fields": [{"name": "sex"}, born]}).to_confirm
    assert remark.at == "/schema/features/1/type"
    assert "2024-02-29 (the dictionary says %d.%m.%Y)" in remark.text
    assert _draft({"fields": [born | {"format": form}]}).to_confirm == ()


def test_one_table_of_several_is_chosen_and_rows_in_a_package_are_not_read() -> None:
    tables = [
        {"name": name, "data": [{"age": 999}], "schema": FRICTIONLESS}
        for name in ("a", "b")
    ]
    package = {"name": "package", "resources": tables}
    with pytest.raises(NotADictionary, match="a, b"):
        _draft(package)
    draft = _draft(package, table="b")
    assert draft.declaration["name"] == "b"
    assert "999" not in json.dumps(draft.declaration)


@pytest.mark.parametrize(
    "text",
    ["age,income\n39,low\n", '[{"age": 39, "income": "low"}]', "", "39", "[" * 100_000],
)
def test_rows_are_refused(text: str) -> None:
    with pytest.raises(NotADictionary, match="never from rows") as refused:
        draft_declaration(text.encode())
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    "dictionary",
    [
        {"age": 39},
        {"schema": "schema.json"},
        {"fields": "age"},
        {"fields": [1]},
        {"resources": []},
        {"features": {"age": 1}},
        {"schema": []},
        {"schema": 1},
    ],
)
def test_json_of_another_form_is_refused(dictionary: object) -> None:
    with pytest.raises(NotADictionary):
        _draft(dictionary)


@pytest.mark.parametrize(
    "broken", [None, 1, "x", [], {}, [1], {"a": 1}, 1e300, -1, True]
)
@pytest.mark.parametrize(
    "member", ["type", "constraints", "categories", "name", "trueValues"]
)
def test_broken_members_leave_gaps(member: str, broken: object) -> None:
    for kind in ("integer", "boolean", "string", "date"):
        field = {"name": "age", "type": kind} | {member: broken}
        draft = _draft({"fields": [field], "missingValues": broken})
        assert sorted(remark.at for remark in draft.lacking) == sorted(
            _nulls(draft.declaration)
        )


@pytest.mark.parametrize(
    "broken", [None, 1, "x", [], {}, [1], {"a": 1}, 1e300, -1, True]
)
@pytest.mark.parametrize("member", ["type", "categories", "name", "lower", "missing"])
def test_broken_members_of_a_schema_leave_gaps(member: str, broken: object) -> None:
    for kind in ("integer", "categorical", None):
        feature = {"name": "age", "type": kind, "upper": 9} | {member: broken}
        draft = _draft(
            {
                "schema": {"features": [feature], "label": {"classes": broken}},
                "privacy_unit": broken,
            }
        )
        lacking = {remark.at for remark in draft.lacking}
        assert lacking - {"/privacy_unit/max_rows"} == set(
            _nulls(draft.declaration)
        ) - {"/privacy_unit"}


@pytest.mark.parametrize(
    "form",
    [{"tableSchema": {"columns": []}}, {"tables": [{"url": "a.csv"}]}, {"columns": []}],
)
def test_another_form_of_dictionary_is_refused_with_the_forms_that_are_read(
    form: dict[str, object],
) -> None:
    with pytest.raises(
        NotADictionary,
        match="expected the schema of a declaration or a Frictionless table schema",
    ):
        _draft({"@context": "http://www.w3.org/ns/csvw", **form})


def test_a_column_that_the_dictionary_does_not_have_is_refused() -> None:
    with pytest.raises(NotADictionary, match="no column wages"):
        _draft(FRICTIONLESS, labels={"wages": ()})


def test_a_text_without_end_is_refused() -> None:
    with pytest.raises(dictionaries.DictionaryTooLarge):
        draft_declaration(b" " * (16 * 1024 * 1024 + 1))
    with pytest.raises(dictionaries.DictionaryTooLarge):
        draft_declaration(b"[" + b"1," * 600_000 + b"1]")


def test_the_limits_and_notes_are_those_of_a_declaration() -> None:
    largest = dictionaries.MAX_BYTES, dictionaries.MAX_NODES
    assert largest == (
        limits.MAX_DECLARATION_BODY_BYTES,
        limits.MAX_DECLARATION_BODY_NODES,
    )
    assert dictionaries._BOUNDS_NOTES == BOUNDS_NOTES


def test_a_label_that_is_cut_stays_cut_and_is_a_number_otherwise() -> None:
    label = {"name": "los_days", "classes": ["below 3", "3 or more"], "cuts": [3]}
    schema = {"features": [{"name": "ill", "categories": ["no"]}], "label": label}
    draft = _draft({"schema": schema}).declaration["schema"]
    assert draft["label"] == {"name": "los_days", "cuts": [3]}
    other = _draft({"schema": schema}, labels={"ill": ()}).declaration["schema"]
    (feature,) = other["features"]
    assert (feature["type"], feature["lower"]) == ("numeric", None)
